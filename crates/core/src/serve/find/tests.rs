//! TensorFlow in all the places where it may be.

use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("rallypoint-find-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Made by another process: one that is open for writing here, in a child of a neighbour test too,
    /// cannot be run.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let text = self.file(&format!("{name}.text"), &format!("#!/bin/sh\n{script}\n"));
        let file = self.0.join(name);
        let install = Command::new("install").args(["-m", "755"]).args([&text, &file]).status();
        assert!(install.unwrap().success());
        file
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

const SITE: &str = "venv/lib/python3.11/site-packages";

fn venv(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    scratch.file("venv/pyvenv.cfg", "home = /nowhere/bin\nversion = 3.11.7\n");
    scratch.program("venv/bin/python", "exit 1");
    scratch.file(&format!("{SITE}/tensorflow/libtensorflow_cc.so.2"), "");
    scratch.file(&format!("{SITE}/tensorflow/libtensorflow_framework.so.2"), "");
    scratch.file(&format!("{SITE}/tensorflow_cpu-2.21.0.dist-info/METADATA"), "");
    scratch
}

#[test]
fn a_given_folder_may_be_any_of_those_around_the_libraries() {
    let scratch = venv("given");
    let package = scratch.0.join(SITE).join("tensorflow");
    let nothing = Environ::from_variables::<String, String>([]);
    for given in [
        "venv",
        SITE,
        &format!("{SITE}/tensorflow"),
        "venv/bin/python",
        &format!("{SITE}/tensorflow/libtensorflow_cc.so.2"),
    ] {
        let found = find(Some(&scratch.0.join(given)), &[], &nothing).expect(given);
        assert_eq!(found.folder, package, "{given}");
        assert_eq!(found.framework, Some(package.join("libtensorflow_framework.so.2")));
    }
    assert_eq!(version_beside(&package).as_deref(), Some("2.21.0"));
    let error = find(Some(&scratch.0), &[], &nothing).unwrap_err().to_string();
    assert!(
        error.contains(&format!("the place that was given, {}: no tensorflow there", scratch.0.display())),
        "{error}"
    );
}

#[test]
fn the_commands_own_python_comes_before_the_active_environment() {
    let scratch = venv("command");
    let other = Scratch::new("other");
    other.file("lib/python3.9/site-packages/tensorflow/libtensorflow_cc.so.2", "");
    let environ = Environ::from_variables([("VIRTUAL_ENV", other.0.to_str().unwrap())]);
    let python = scratch.0.join("venv/bin/python").into_os_string();
    let found = find(None, &["nice".into(), python, "train.py".into()], &environ).unwrap();
    assert!(found.folder.starts_with(&scratch.0), "{found:?}");
    let installed = scratch.program("venv/bin/train", "exit 1").into_os_string();
    let found = find(None, &[installed], &environ).unwrap();
    assert!(found.folder.starts_with(&scratch.0), "{found:?}");
    let found = find(None, &["sh".into(), "train.sh".into()], &environ).unwrap();
    assert!(found.folder.starts_with(&other.0), "{found:?}");
    assert!(found.how.starts_with("VIRTUAL_ENV="), "{}", found.how);
}

#[test]
fn a_python_on_path_is_asked_once_and_every_place_is_told() {
    let scratch = Scratch::new("asked");
    let count = scratch.0.join("count");
    let bin = scratch.program("bin/python3", &format!("echo x >> {}", count.display()));
    let path = bin.parent().unwrap().to_str().unwrap();
    let environ = Environ::from_variables([("PATH", path), ("CONDA_PREFIX", "/no/conda")]);
    let error = find(None, &["python3".into()], &environ).unwrap_err();
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\n");
    let text = hint::in_full(&error);
    for says in [
        "python3, which the command starts: it has no tensorflow",
        "VIRTUAL_ENV: not set",
        "CONDA_PREFIX=/no/conda: no tensorflow there",
        "python3, from PATH: asked already",
        "LD_LIBRARY_PATH and the system's library directories: no tensorflow there",
        "hint: activate",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn an_answer_is_where_the_libraries_are_looked_for() {
    let scratch = venv("answer");
    let package = scratch.0.join(SITE).join("tensorflow");
    let bin = scratch.program("bin/python3", &format!("echo {}; echo 2.21.0", package.display()));
    let environ = Environ::from_variables([("PATH", bin.parent().unwrap().to_str().unwrap())]);
    assert_eq!(find(None, &[], &environ).unwrap().folder, package);
    std::fs::remove_file(package.join("libtensorflow_cc.so.2")).unwrap();
    scratch.file(&format!("{SITE}/tensorflow/__init__.py"), "");
    let error = find(None, &[], &environ).unwrap_err().to_string();
    assert!(error.contains("tensorflow has no libtensorflow_cc.so.2"), "{error}");
}

#[test]
fn a_library_of_the_system_is_the_last_resort() {
    let scratch = Scratch::new("system");
    scratch.file("lib/libtensorflow.so.2", "");
    let lib = scratch.0.join("lib");
    let environ = Environ::from_variables([("LD_LIBRARY_PATH", lib.to_str().unwrap())]);
    let found = find(None, &[], &environ).unwrap();
    assert_eq!((found.library, found.framework), (lib.join("libtensorflow.so.2"), None));
}

#[test]
fn an_older_wheel_comes_with_the_library_of_its_python() {
    let scratch = Scratch::new("older");
    let library = scratch.file("base/lib/libpython3.7m.so.1.0", "");
    scratch.file("venv/pyvenv.cfg", &format!("home = {}/base/bin\n", scratch.0.display()));
    let site = "venv/lib/python3.7/site-packages";
    scratch.file(&format!("{site}/tensorflow/__init__.py"), "");
    scratch.file(&format!("{site}/tensorflow_core/python/_pywrap_tensorflow_internal.so"), "");
    let nothing = Environ::from_variables::<String, String>([]);
    let found = find(Some(&scratch.0.join("venv")), &[], &nothing).unwrap();
    let names = ["libpython3.7.so.1.0", "libpython3.7m.so.1.0"].map(PathBuf::from);
    assert_eq!(found.python, [library, names[0].clone(), names[1].clone()]);

    scratch.file("target/tensorflow/python/_pywrap_tensorflow_internal.so", "");
    let wheel = "Wheel-Version: 1.0\nTag: cp37-cp37m-manylinux2010_x86_64\n";
    scratch.file("target/tensorflow-2.4.0.dist-info/WHEEL", wheel);
    let found = find(Some(&scratch.0.join("target")), &[], &nothing).unwrap();
    assert_eq!(found.python, names);
}
