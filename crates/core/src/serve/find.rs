//! Where TensorFlow's libraries are: in a package of Python's, or by themselves.
//!
//! Python is asked only where looking at folders is not enough, and TensorFlow is never imported: that
//! takes seconds.

use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::process::{find_on_path, run_with_limit};
use crate::variables as var;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use thiserror::Error;

/// The library with TensorFlow's C API: in wheels from 2.12 on, in the C library, in older wheels.
pub(super) const LIBRARIES: [&str; 5] = [
    "libtensorflow_cc.so.2",
    "libtensorflow.so.2",
    "libtensorflow.so.1",
    "libtensorflow.so",
    "python/_pywrap_tensorflow_internal.so",
];
/// What it needs, and what has to be there for all to see before it.
pub(super) const FRAMEWORKS: [&str; 3] =
    ["libtensorflow_framework.so.2", "libtensorflow_framework.so.1", "libtensorflow_framework.so"];
/// A Python that does not answer within this time hangs, as on a file system that is gone.
const LIMIT: Duration = Duration::from_secs(10);

/// How it begins where there is none: a stand-in's last words are known by it.
pub(crate) const NOT_FOUND: &str = "no TensorFlow was found";

/// TensorFlow's libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The folder that has them, such as the package `tensorflow`.
    pub folder: PathBuf,
    /// With the C API.
    pub library: PathBuf,
    /// `libtensorflow_framework.so.2`, which the library needs, if it lies beside it.
    pub framework: Option<PathBuf>,
    /// Python's own library, which wheels before 2.12 do not load without: paths or names, any of them will do.
    pub python: Vec<PathBuf>,
    /// Why it was looked for there.
    pub how: String,
}

/// Every place that was looked at, and why it was not it.
#[derive(Debug, Error)]
pub struct NotFound {
    /// The place, and why: `VIRTUAL_ENV`, `not set`.
    pub looked: Vec<(String, String)>,
}

impl Hinted for NotFound {
    fn hint(&self) -> Option<Hint> {
        Some(hint!(
            "activate its virtual environment, or give ",
            Setting::Tensorflow.with("DIR"),
            ", the directory with libtensorflow_cc.so.2"
        ))
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NOT_FOUND)?;
        for (place, why) in &self.looked {
            write!(f, "\n  {place}: {why}")?;
        }
        Ok(())
    }
}

/// The package that a Python has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) folder: PathBuf,
    pub(crate) version: Option<String>,
}

/// Finds the package and reads its metadata; prints nothing if it is not there. A file called tensorflow.py in
/// the current folder is not what is meant.
const QUESTION: &str = "
import importlib.util, sys
sys.path = [folder for folder in sys.path if folder]
spec = importlib.util.find_spec('tensorflow')
if spec is not None and spec.submodule_search_locations:
    version = ''
    try:
        import importlib.metadata as metadata
        for name in ('tensorflow', 'tensorflow-cpu', 'tensorflow-intel', 'tensorflow-rocm', 'tf-nightly'):
            try:
                version = metadata.version(name)
                break
            except metadata.PackageNotFoundError:
                pass
    except ImportError:
        pass
    print(list(spec.submodule_search_locations)[0])
    print(version)
";

/// Asks a Python where its TensorFlow is. `None`: it has none.
pub(crate) fn ask(python: &Path) -> Result<Option<Package>, String> {
    let answer = run_with_limit(Command::new(python).args(["-c", QUESTION]), LIMIT)?;
    let mut lines = answer.lines();
    Ok(lines.next().map(|folder| Package {
        folder: folder.into(),
        version: lines.next().filter(|version| !version.is_empty()).map(str::to_owned),
    }))
}

/// The active virtual environment's Python, or the one on PATH.
pub(crate) fn python(environ: &Environ) -> Option<PathBuf> {
    let of_venv = environ.get_nonempty(var::VIRTUAL_ENV).map(|venv| PathBuf::from(venv).join("bin/python3"));
    of_venv.filter(|python| python.exists()).or_else(|| find_on_path("python3", environ.get(var::PATH)))
}

/// Looks where the user says; else in the environment of the Python that `command` starts, in the active
/// environments, in whatever the Python on PATH has, and where a system has its libraries.
pub fn find(given: Option<&Path>, command: &[OsString], environ: &Environ) -> Result<Found, NotFound> {
    let mut search = Search { looked: Vec::new(), asked: Vec::new() };
    if let Some(given) = given {
        let place = format!("the place that was given, {}", given.display());
        return search.folders(&place, given_folders(given)).ok_or(NotFound { looked: search.looked });
    }
    search.everywhere(command, environ).ok_or(NotFound { looked: search.looked })
}

struct Search {
    looked: Vec<(String, String)>,
    asked: Vec<PathBuf>,
}

impl Search {
    fn everywhere(&mut self, command: &[OsString], environ: &Environ) -> Option<Found> {
        let path = environ.get(var::PATH);
        if let Some(python) = interpreter(command, path) {
            let place = format!("{}, which the command starts", python.display());
            let found = match prefix_of(&python) {
                // A Python of the system has its packages in several places, and knows them itself.
                Some(prefix) if prefix.join("pyvenv.cfg").exists() => {
                    self.folders(&place, packages_below(&prefix))
                }
                _ => None,
            };
            if let Some(found) = found.or_else(|| self.ask(&place, &python)) {
                return Some(found);
            }
        }
        for variable in [var::VIRTUAL_ENV, var::CONDA_PREFIX] {
            match environ.get_nonempty(variable) {
                None => self.no(variable, "not set"),
                Some(prefix) => {
                    let place = format!("{variable}={prefix}");
                    if let Some(found) = self.folders(&place, packages_below(Path::new(prefix))) {
                        return Some(found);
                    }
                }
            }
        }
        match ["python3", "python"].into_iter().find_map(|name| find_on_path(name, path)) {
            None => self.no("python3", "not on PATH"),
            Some(python) => {
                let place = format!("{}, from PATH", python.display());
                if let Some(found) = self.ask(&place, &python) {
                    return Some(found);
                }
            }
        }
        self.folders("LD_LIBRARY_PATH and the system's library directories", system_folders(environ))
    }

    fn no(&mut self, place: &str, why: &str) {
        self.looked.push((place.to_owned(), why.to_owned()));
    }

    fn folders(&mut self, place: &str, folders: Vec<PathBuf>) -> Option<Found> {
        let found = folders.iter().find_map(|folder| libraries_in(folder, place));
        if found.is_none() {
            let why = match folders.iter().find(|folder| folder.join("__init__.py").exists()) {
                Some(package) => format!("{} has no {}", package.display(), LIBRARIES[0]),
                None => "no tensorflow there".to_owned(),
            };
            self.no(place, &why);
        }
        found
    }

    /// Each Python is asked once, whatever it is called.
    fn ask(&mut self, place: &str, python: &Path) -> Option<Found> {
        if self.asked.iter().any(|asked| asked == python) {
            self.no(place, "asked already");
            return None;
        }
        self.asked.push(python.to_owned());
        match ask(python) {
            Err(reason) => self.no(place, &reason),
            Ok(None) => self.no(place, "it has no tensorflow"),
            Ok(Some(package)) => return self.folders(place, around(&package.folder)),
        }
        None
    }
}

/// `DIR` may be the package, what contains it, an environment, an interpreter, a folder of libraries or a library.
fn given_folders(given: &Path) -> Vec<PathBuf> {
    let mut folders = around(given);
    if given.is_file() {
        folders.extend(given.parent().map(Path::to_owned));
        folders.extend(prefix_of(given).map(|prefix| packages_below(&prefix)).unwrap_or_default());
    }
    folders.extend(around(&given.join("tensorflow")));
    folders.extend([given.join("lib"), given.join("lib64")]);
    folders.extend(packages_below(given));
    folders
}

/// The package, and where 1.15 and 2.0 have their libraries instead.
fn around(package: &Path) -> Vec<PathBuf> {
    let mut folders = vec![package.to_owned()];
    if package.file_name().is_some_and(|name| name == "tensorflow") {
        folders.push(package.with_file_name("tensorflow_core"));
    }
    folders
}

/// `PREFIX/lib/python3.11/site-packages/tensorflow`, the newest Python first.
fn packages_below(prefix: &Path) -> Vec<PathBuf> {
    let mut pythons: Vec<(u32, PathBuf)> = ["lib", "lib64"]
        .into_iter()
        .filter_map(|lib| std::fs::read_dir(prefix.join(lib)).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| {
            let minor = entry.file_name().to_str()?.strip_prefix("python3.")?.parse().ok()?;
            Some((minor, entry.path()))
        })
        .collect();
    pythons.sort_by(|(a, at), (b, beside)| b.cmp(a).then(at.cmp(beside)));
    let sites = pythons.iter().map(|(_, python)| python.join("site-packages/tensorflow"));
    sites.flat_map(|package| around(&package)).collect()
}

fn system_folders(environ: &Environ) -> Vec<PathBuf> {
    let listed = environ.get_nonempty(var::LD_LIBRARY_PATH).map(std::env::split_paths);
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let standard = ["/usr/local/lib", "/usr/local/lib64", &multiarch, "/usr/lib64", "/usr/lib"];
    listed.into_iter().flatten().chain(standard.into_iter().map(PathBuf::from)).collect()
}

pub(super) fn libraries_in(folder: &Path, how: &str) -> Option<Found> {
    let folder = folder.canonicalize().ok()?;
    let there = |names: &[&str]| names.iter().map(|name| folder.join(name)).find(|file| file.is_file());
    let library = there(&LIBRARIES)?;
    // The module of an older wheel needs Python's symbols, though no Python runs.
    let needs_python = library.file_name().is_some_and(|name| name == "_pywrap_tensorflow_internal.so");
    Some(Found {
        framework: there(&FRAMEWORKS),
        python: if needs_python { python_libraries(&folder) } else { Vec::new() },
        how: how.to_owned(),
        library,
        folder,
    })
}

/// For a package in `PREFIX/lib/python3.8/site-packages`: `libpython3.8.so.1.0` of that prefix, of the one that
/// a virtual environment is made from, or by its name alone, which the system's loader looks up. In any other
/// folder the wheel's own tag tells the version.
fn python_libraries(package: &Path) -> Vec<PathBuf> {
    let Some(site) = package.parent() else { return Vec::new() };
    let lib = site.ancestors().find_map(|folder| {
        let version = folder.file_name()?.to_str()?.strip_prefix("python3.")?;
        Some((version.to_owned(), folder.parent()?.to_owned()))
    });
    let (version, lib) = match lib {
        Some((version, lib)) => (version, Some(lib)),
        None => match metadata_beside(package).and_then(|folder| wheel_python(&folder.join("WHEEL"))) {
            Some(version) => (version, None),
            None => return Vec::new(),
        },
    };
    let names = ["", "m"].map(|flag| format!("libpython3.{version}{flag}.so.1.0"));
    let home = lib.as_deref().and_then(Path::parent).and_then(|prefix| {
        let text = std::fs::read_to_string(prefix.join("pyvenv.cfg")).ok()?;
        Some(PathBuf::from(venv_home(&text)?).parent()?.join("lib"))
    });
    let files = [lib, home].into_iter().flatten().flat_map(|folder| {
        names.iter().map(|name| folder.join(name)).filter(|file| file.is_file()).collect::<Vec<_>>()
    });
    files.chain(names.iter().map(PathBuf::from)).collect()
}

/// `home = /usr/local/bin` of a `pyvenv.cfg`
fn venv_home(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| value.trim())
    })
}

/// The Python in a command line, which may stand behind others: `numactl -N0 venv/bin/python train.py`; or that of
/// the virtual environment that the program is installed in: `venv/bin/train`.
fn interpreter(command: &[OsString], path: Option<&str>) -> Option<PathBuf> {
    let python = command.iter().filter_map(|word| word.to_str()).find_map(|word| {
        let name = word.rsplit('/').next()?.strip_prefix("python")?;
        let is_python = name.chars().all(|c| c.is_ascii_digit() || c == '.');
        match (is_python, word.contains('/')) {
            (false, _) => None,
            (true, true) => Some(PathBuf::from(word)).filter(|file| file.is_file()),
            (true, false) => find_on_path(word, path),
        }
    });
    python.or_else(|| {
        let program = command.first()?.to_str()?;
        let program =
            if program.contains('/') { PathBuf::from(program) } else { find_on_path(program, path)? };
        let prefix = prefix_of(&program).filter(|prefix| prefix.join("pyvenv.cfg").exists())?;
        Some(prefix.join("bin/python")).filter(|python| python.exists())
    })
}

/// `PREFIX/bin/python` is of `PREFIX`.
fn prefix_of(python: &Path) -> Option<PathBuf> {
    let bin = python.parent().filter(|bin| bin.file_name().is_some_and(|name| name == "bin"))?;
    bin.parent().map(Path::to_owned)
}

/// `8` of the line `Tag: cp38-cp38-manylinux2010_x86_64`
fn wheel_python(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let tag = text.lines().find_map(|line| line.strip_prefix("Tag: cp3"))?;
    Some(tag.chars().take_while(char::is_ascii_digit).collect())
}

/// The metadata of what is installed beside a package: `tensorflow_cpu-2.21.0.dist-info`.
fn metadata_beside(package: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(package.parent()?).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|folder| project_version(folder).is_some())
}

fn project_version(metadata: &Path) -> Option<&str> {
    let (project, version) = metadata.file_name()?.to_str()?.strip_suffix(".dist-info")?.rsplit_once('-')?;
    ["tensorflow", "tensorflow_cpu", "tensorflow_rocm", "tf_nightly"].contains(&project).then_some(version)
}

/// The version of what is installed beside a package.
pub(super) fn version_beside(package: &Path) -> Option<String> {
    metadata_beside(package).and_then(|metadata| project_version(&metadata).map(str::to_owned))
}

#[cfg(test)]
mod tests;
