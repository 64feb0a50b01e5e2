//! Where the TensorFlow is that a running program has loaded, whatever has started it: `train.sh`, `poetry run`,
//! a module of the site. The kernel lists the files that a process has mapped.

use super::find::{FRAMEWORKS, LIBRARIES, libraries_in};
use crate::process::tree;
use std::path::{Path, PathBuf};

/// The folder with the libraries that one of these programs, or what it has started, has mapped; `None` if none has.
pub(crate) fn mapped_by(programs: &[u32]) -> Option<PathBuf> {
    tree::below(programs).into_iter().find_map(mapped_in)
}

fn mapped_in(pid: u32) -> Option<PathBuf> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    // The path is that of the program's own file system: inside a container it may be nothing here.
    maps.lines().filter_map(folder_of).find(|folder| libraries_in(folder, "mapped").is_some())
}

/// `7f4c1e400000-7f4c1e7f2000 r--p 00000000 fe:00 793134    /venv/lib/python3.11/site-packages/tensorflow/libtensorflow_cc.so.2`
fn folder_of(line: &str) -> Option<PathBuf> {
    let file = Path::new(&line[line.find('/')?..]);
    let names = LIBRARIES.iter().chain(&FRAMEWORKS);
    names.filter(|name| file.ends_with(name)).find_map(|name| {
        let depth = Path::new(name).components().count();
        file.ancestors().nth(depth).map(Path::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_library_tells_its_folder() {
        let folder = |path: &str| {
            folder_of(&format!("7f4c1e400000-7f4c1e7f2000 r--p 00000000 fe:00 793134    {path}"))
        };
        let tensorflow = "/home/me/my venv/lib/python3.11/site-packages/tensorflow";
        for name in
            ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2", "python/_pywrap_tensorflow_internal.so"]
        {
            assert_eq!(folder(&format!("{tensorflow}/{name}")), Some(tensorflow.into()), "{name}");
        }
        for other in
            ["", "[heap]", "/usr/lib/libc.so.6", "/a/libtensorflow_cc.so.2 (deleted)", "/a/xlibtensorflow.so"]
        {
            assert_eq!(folder(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_has_none() {
        assert_eq!(mapped_by(&[std::process::id()]), None);
    }
}
