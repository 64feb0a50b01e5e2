//! Programs by their names, as a shell finds them.

use std::path::{Path, PathBuf};

/// The first executable file called `name` in the folders of `path`.
pub fn find_on_path(name: &str, path: Option<&str>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

/// True for a file that somebody may run.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
