//! The layers that `src/lib.rs` lists are the truth: nothing is used that stands below, and nobody touches the world
//! without saying so.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What only the modules of the world may say. A type alone (`Path`, `Duration`) touches nothing.
const WORLD: [&str; 17] = [
    "std::fs::",
    "File::open",
    "File::create",
    "File::options",
    "std::env::",
    "Instant::now",
    "SystemTime::now",
    "Command::new",
    "TcpStream::connect",
    "TcpListener::bind",
    "UnixStream::connect",
    "to_socket_addrs",
    "std::thread::",
    "tokio::",
    "rustix::",
    "if_addrs::",
    "std::process::id",
];

struct Module {
    layer: usize,
    touches_the_world: bool,
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The table of `lib.rs`: `//! | words | `variables` `signal` | no |`
fn layers() -> BTreeMap<String, Module> {
    let text = std::fs::read_to_string(source().join("lib.rs")).unwrap();
    let rows = text.lines().skip_while(|line| !line.contains("| layer |")).skip(2);
    let mut modules = BTreeMap::new();
    for (layer, row) in rows.take_while(|row| row.starts_with("//! |")).enumerate() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for name in cells[2].split_whitespace() {
            let module = Module { layer, touches_the_world: cells[3] == "yes" };
            assert!(modules.insert(name.trim_matches('`').to_owned(), module).is_none(), "{name} twice");
        }
    }
    modules
}

/// Lines with their numbers.
type Lines = Vec<(usize, String)>;

/// Every file, with its module and its lines; without its tests, its fuzzers and comments.
fn files() -> Vec<(String, String, Lines)> {
    let mut found = Vec::new();
    let mut folders = vec![source()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let for_tests = path.ends_with("tests.rs") || path.ends_with("fuzzing.rs");
            if for_tests || path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let name = path.strip_prefix(source()).unwrap().to_str().unwrap().to_owned();
            let module = name.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = code.lines().enumerate().map(|(number, line)| (number + 1, line.to_owned()));
            let lines = lines.filter(|(_, line)| !line.trim_start().starts_with("//")).collect();
            if module != "lib" {
                found.push((name, module, lines));
            }
        }
    }
    found.sort();
    found
}

/// The names behind each `crate::` of a line; `crate::{a, b}` is not written here.
fn used(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default())
}

#[test]
fn no_module_uses_what_stands_below_it() {
    let layers = layers();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, module, lines) in files() {
        let own = layers.get(&module).unwrap_or_else(|| panic!("{module} stands in no layer of lib.rs"));
        seen.insert(module.clone());
        for (number, line) in lines {
            for other in used(&line).filter(|other| *other != module) {
                let other_layer = layers.get(other).map(|module| module.layer);
                // A macro or a type of the crate's root would have no layer.
                if other_layer.is_none_or(|layer| layer > own.layer) {
                    wrong.push(format!("src/{name}:{number}: {module} uses {other}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these use what stands below them in lib.rs:\n{}", wrong.join("\n"));
    let listed: BTreeSet<String> = layers.into_keys().collect();
    assert_eq!(listed, seen, "lib.rs lists modules that do not exist, or not all that do");
}

#[test]
fn modules_of_one_layer_do_not_need_each_other() {
    let layers = layers();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, module, lines) in files() {
        let others = lines.iter().flat_map(|(_, line)| used(line)).map(str::to_owned);
        uses.entry(module.clone()).or_default().extend(others.filter(|other| *other != module));
    }
    for module in layers.keys() {
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = uses[module].iter().map(String::as_str).collect();
        while let Some(name) = next.pop() {
            if reached.insert(name) {
                next.extend(uses.get(name).into_iter().flatten().map(String::as_str));
            }
        }
        assert!(!reached.contains(module.as_str()), "{module} needs a module that needs it");
    }
}

/// The same inside each folder: a file that needs another is not needed by it.
#[test]
fn files_of_one_folder_do_not_need_each_other() {
    let mut uses: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (name, _, lines) in files() {
        let Some((folder, file)) = name.trim_end_matches(".rs").rsplit_once('/') else { continue };
        let others = lines.iter().flat_map(|(_, line)| line.split("super::").skip(1)).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest[..end].to_owned()
        });
        // What a folder shares stands in its mod.rs.
        if file != "mod" {
            uses.entry((folder.to_owned(), file.to_owned())).or_default().extend(others);
        }
    }
    for (folder, file) in uses.keys() {
        let others = |file: &str| uses.get(&(folder.clone(), file.to_owned())).into_iter().flatten();
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = others(file).map(String::as_str).collect();
        while let Some(name) = next.pop() {
            if reached.insert(name) {
                next.extend(others(name).map(String::as_str));
            }
        }
        assert!(!reached.contains(file.as_str()), "src/{folder}/{file}.rs needs a file that needs it");
    }
}

#[test]
fn nobody_touches_the_world_without_saying_so() {
    let layers = layers();
    let mut wrong = Vec::new();
    for (name, module, lines) in files() {
        if layers[&module].touches_the_world {
            continue;
        }
        for (number, line) in lines {
            if let Some(door) = WORLD.iter().find(|door| line.contains(**door)) {
                wrong.push(format!("src/{name}:{number}: {door}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "lib.rs says that these do not touch the world:\n{}", wrong.join("\n"));
}
