//! Error texts name no setting of a front end, and every error says whether it has a hint.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

/// The sources of the library and of the command, without their tests.
fn sources() -> Vec<(String, String)> {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![crates.join("core/src"), crates.join("cli/src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
                found.push((path.display().to_string(), code));
            }
        }
    }
    found
}

#[test]
fn texts_of_errors_have_neither_hints_nor_options() {
    for (file, code) in sources() {
        for text in code.split("#[error(").skip(1).filter_map(|rest| rest.split(")]\n").next()) {
            assert!(!text.contains("hint: ") && !text.contains("--"), "{file}: {text}");
        }
    }
}

#[test]
fn every_error_says_whether_it_has_a_hint() {
    for (file, code) in sources() {
        let derives = |line: &str| line.starts_with("#[derive(") && line.contains("Error)]");
        let mut lines = code.lines();
        while lines.by_ref().any(derives) {
            let declared = lines.find(|line| line.contains("enum ") || line.contains("struct ")).unwrap();
            let name =
                declared.split([' ', '(']).skip_while(|word| *word != "enum" && *word != "struct").nth(1);
            let implemented = format!("impl Hinted for {} {{", name.unwrap());
            assert!(code.contains(&implemented), "{file}: {declared}");
        }
    }
}
