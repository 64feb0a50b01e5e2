//! Every promise of `docs/reference/promises.md` names a test that exists.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of all tests, in Rust and in Python.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root().join("crates"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let lines = text.lines().map(str::trim_start);
            match path.extension().and_then(|extension| extension.to_str()) {
                // Only what stands behind the attribute.
                Some("rs") => {
                    let names = lines.clone().zip(lines.skip(1)).filter(|(before, _)| *before == "#[test]");
                    found.extend(names.filter_map(|(_, line)| name(line, "fn ")));
                }
                Some("py") => found.extend(
                    lines.filter_map(|line| name(line, "def test_")).map(|name| format!("test_{name}")),
                ),
                _ => {}
            }
        }
    }
    found
}

fn name(line: &str, before: &str) -> Option<String> {
    Some(line.strip_prefix(before)?.split_once('(')?.0.to_owned())
}

#[test]
fn every_promise_is_kept_by_a_test() {
    let page = std::fs::read_to_string(root().join("docs/reference/promises.md")).unwrap();
    let tests = tests();
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| if")).collect();
    assert!(rows.len() > 30, "{}", rows.len());
    let mut named = 0;
    for row in rows {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap();
        for test in last.split(',').map(|test| test.trim().trim_matches('`')).filter(|test| !test.is_empty())
        {
            assert!(tests.contains(test), "no test is called {test}: {row}");
            named += 1;
        }
    }
    assert!(named > 30, "{named}");
}
