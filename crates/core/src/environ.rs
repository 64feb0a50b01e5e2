//! The edge: a snapshot of everything outside that the pure stages look at.
//!
//! Taken once from this process (`Environ::here`) or from a captured file (`Environ::from_file`).
//! Files that variables name (HTCondor's ads, Slurm's host file) are read here, so that no later
//! stage opens anything; which variables these are, the schedulers know.

use crate::devices::{DeviceList, MASKS, MaskError, parse_mask};
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::machine::{self, Cpus, GpuProbe};
use crate::variables as var;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;

/// Files larger than this are not what a scheduler writes.
const MAX_FILE: u64 = 64 << 20;

/// Variables, host name, the files they name, what the machine has, and the time.
#[derive(Debug, Clone)]
pub struct Environ {
    variables: BTreeMap<String, String>,
    files: BTreeMap<&'static str, NamedFile>,
    /// This host's name; unknown for a captured environment.
    pub hostname: Option<String>,
    /// CPUs of this machine; unknown for a captured environment.
    pub cpus: Option<Cpus>,
    /// GPUs found on this machine where no mask names them.
    pub gpus: GpuProbe,
    /// When it was taken; 1970 for given variables.
    pub now: SystemTime,
    /// Where the variables came from, for messages.
    pub origin: String,
}

/// A file that a variable names: its text, or why it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, or why nobody can read it.
    pub text: Result<String, String>,
}

/// Where the file of a variable lies now, other than at the captured path.
pub type MovedFiles = BTreeMap<&'static str, PathBuf>;

/// A captured environment that cannot be loaded.
#[derive(Debug, Error)]
pub enum EnvironError {
    /// A file cannot be read: the captured one, or one that the user named.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is not `KEY=VALUE`.
    #[error(
        "{}:{line}: expected KEY=VALUE, found {found:?}", path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What the line says.
        found: String,
    },
}

impl Hinted for EnvironError {
    fn hint(&self) -> Option<Hint> {
        match self {
            EnvironError::Read { .. } => None,
            EnvironError::Line { .. } => Some(hint!("capture it with `env > job.env`")),
        }
    }
}

impl Environ {
    /// This process's own environment. Looks for GPUs only where no mask names them.
    pub(crate) fn here() -> Environ {
        Environ::here_with(own_variables())
    }

    /// This machine with the given variables, for a caller that knows its environment better.
    pub fn here_with<K: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Environ {
        let mut environ = Environ {
            hostname: Some(machine::hostname()),
            cpus: Some(Cpus::here()),
            now: SystemTime::now(),
            origin: "this process".to_owned(),
            ..Environ::from_variables(variables)
        };
        if !MASKS.iter().any(|mask| environ.get(mask).is_some()) {
            environ.gpus = machine::probe_gpus(environ.get(var::PATH));
        }
        environ
    }

    /// This process's variables alone: nobody is asked about the machine.
    pub fn variables_here() -> Environ {
        Environ::from_variables(own_variables())
    }

    /// A captured environment: `KEY=VALUE` lines, `#` comments and blank lines apart. `named` are the variables whose
    /// files belong to it; they are looked for beside it too.
    pub(crate) fn from_file(
        path: &Path,
        named: &[&'static str],
        moved: &MovedFiles,
    ) -> Result<Environ, EnvironError> {
        let text = read_text(path).map_err(|source| EnvironError::Read { path: path.to_owned(), source })?;
        let mut environ = Environ::from_variables(parse_variables(path, &text)?);
        environ.origin = path.display().to_string();
        environ.read_named_files(named, moved, path.parent());
        // What the user named must be there; what the capture names may be long gone.
        for variable in moved.keys() {
            if let Some(NamedFile { path, text: Err(reason) }) = environ.files.get(variable) {
                let source = io::Error::other(reason.clone());
                return Err(EnvironError::Read { path: path.clone(), source });
            }
        }
        Ok(environ)
    }

    /// The same with the files that these variables name.
    pub fn with_named_files(mut self, named: &[&'static str]) -> Environ {
        self.read_named_files(named, &MovedFiles::new(), None);
        self
    }

    /// An environment of just these variables: no machine behind it.
    pub fn from_variables<K: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Environ {
        Environ {
            variables: variables.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            files: BTreeMap::new(),
            hostname: None,
            cpus: None,
            gpus: GpuProbe::NotDone,
            now: SystemTime::UNIX_EPOCH,
            origin: "given variables".to_owned(),
        }
    }

    /// The same with the text of a file that `variable` names.
    pub fn with_file(mut self, variable: &'static str, text: &str) -> Environ {
        let path = self.get(variable).unwrap_or_default().into();
        self.files.insert(variable, NamedFile { path, text: Ok(text.to_owned()) });
        self
    }

    /// A variable's value; empty ones count as set.
    pub fn get(&self, variable: &str) -> Option<&str> {
        self.variables.get(variable).map(String::as_str)
    }

    /// A variable's value, unless it is unset or blank.
    pub fn get_nonempty(&self, variable: &str) -> Option<&str> {
        self.get(variable).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The GPU mask in force: the first of [`MASKS`] that is set. `Ok(None)` where none is.
    pub(crate) fn gpu_mask(&self) -> Result<Option<DeviceList>, MaskError> {
        let set = MASKS.into_iter().find_map(|variable| Some((variable, self.get(variable)?)));
        set.map(|(variable, value)| parse_mask(variable, value)).transpose()
    }

    /// The file that `variable` names, if the variable is set or the user gave one for it.
    pub(crate) fn file(&self, variable: &str) -> Option<&NamedFile> {
        self.files.get(variable)
    }

    /// All variables, sorted by name.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn read_named_files(&mut self, named: &[&'static str], moved: &MovedFiles, beside: Option<&Path>) {
        for &variable in named {
            let captured = || self.get_nonempty(variable).map(PathBuf::from);
            if let Some(path) = moved.get(variable).cloned().or_else(captured) {
                self.files.insert(variable, find_and_read(path, beside));
            }
        }
    }
}

fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// Reads `path`, or the file of that name beside the capture (`.job.ad` also as `job.ad`).
fn find_and_read(path: PathBuf, beside: Option<&Path>) -> NamedFile {
    let mut candidates = vec![path.clone()];
    if let (Some(folder), Some(name)) = (beside, path.file_name().and_then(|name| name.to_str())) {
        candidates.push(folder.join(&path));
        candidates.push(folder.join(name));
        candidates.push(folder.join(name.trim_start_matches('.')));
    }
    let mut first_error = None;
    for candidate in candidates {
        match read_text(&candidate) {
            Ok(text) => return NamedFile { path: candidate, text: Ok(text) },
            Err(error) => first_error = first_error.or(Some(error.to_string())),
        }
    }
    NamedFile { path, text: Err(first_error.unwrap_or_default()) }
}

fn read_text(path: &Path) -> io::Result<String> {
    let size = path.metadata()?.len();
    if size > MAX_FILE {
        return Err(io::Error::other(format!("{size} bytes are too many")));
    }
    let bytes = std::fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `KEY=VALUE` lines, as `env` prints them.
pub(crate) fn parse_variables(path: &Path, text: &str) -> Result<BTreeMap<String, String>, EnvironError> {
    let mut variables = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some((name, value)) if is_variable_name(name) => {
                variables.insert(name.to_owned(), value.to_owned());
            }
            // `env` prints exported shell functions and values with line ends over several lines;
            // what follows the first line of one cannot be told from rubbish, except at the start.
            _ if !variables.is_empty() => {}
            _ => {
                return Err(EnvironError::Line {
                    path: path.to_owned(),
                    line: number + 1,
                    found: line.chars().take(60).collect(),
                });
            }
        }
    }
    Ok(variables)
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| !c.is_whitespace() && !c.is_control())
}
