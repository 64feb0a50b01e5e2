//! What `serve` does that has no safe form: this process's variables and signals, and TensorFlow's C API.
//!
//! TensorFlow is never unloaded and a server never deleted: its threads run in its code, and
//! `TF_DeleteServer` of one that has started aborts. The process ends with `_exit`, as nothing else does.

#![expect(
    unsafe_code,
    reason = "a library chosen at run time, a signal handler and set_var have no safe form"
)]

use super::find::{Found, version_beside};
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::process::is_ignored;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A TensorFlow that cannot be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The system's loader refuses the library, or one that it needs.
    #[error("{} cannot be loaded: {why}", library.display())]
    Open {
        /// The file.
        library: PathBuf,
        /// In the loader's words.
        why: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The library has not all the functions that a server needs.
    #[error(
        "{} has no {}: TensorFlow {version} cannot serve from C", library.display(), missing.join(", ")
    )]
    Symbols {
        /// The file.
        library: PathBuf,
        /// The functions: `TF_NewServer`.
        missing: Vec<&'static str>,
        /// TensorFlow's version, as far as it is known.
        version: String,
    },
}

impl Hinted for LoadError {
    fn hint(&self) -> Option<Hint> {
        match self {
            LoadError::Open { hint, .. } => Some(hint!(*hint)),
            LoadError::Symbols { .. } => Some(hint!("use 1.15 or later, from a wheel or with its C library")),
        }
    }
}

/// What TensorFlow said: its code's name and its message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{code}: {message}")]
pub struct Refused {
    /// `INVALID_ARGUMENT`
    pub code: &'static str,
    /// In TensorFlow's words.
    pub message: String,
}

impl Hinted for Refused {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

/// Sets variables of this process. Only while it has a single thread.
pub(super) fn set_variables(variables: &BTreeMap<String, String>) {
    for (name, value) in variables {
        // SAFETY: the caller has started no thread, so nobody reads the environment at the same time.
        unsafe { std::env::set_var(name, value) };
    }
}

/// From here on SIGTERM, SIGINT and SIGHUP end this process at once with 0, whatever it is doing: loading too.
/// One that was ignored stays ignored (`nohup`). SIGUSR1 and SIGUSR2 are warnings for programs; a server has
/// nothing to save.
pub(super) fn leave_when_told() {
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        let handler = match number {
            libc::SIGUSR1 | libc::SIGUSR2 => libc::SIG_IGN,
            _ => leave as extern "C" fn(c_int) as libc::sighandler_t,
        };
        if !is_ignored(number) {
            // SAFETY: `leave` does nothing but `_exit`, which a handler may call anywhere.
            unsafe { libc::signal(number, handler) };
        }
    }
}

extern "C" fn leave(_: c_int) {
    leave_now(0)
}

/// Ends this process without running anything: exit handlers of a library with running threads crash.
pub(super) fn leave_now(code: u8) -> ! {
    // SAFETY: `_exit` touches no memory of this process.
    unsafe { libc::_exit(c_int::from(code)) }
}

type Status = *mut c_void;
type Server = *mut c_void;

/// TensorFlow's C API, as far as a server needs it.
pub(super) struct TensorFlow {
    version: unsafe extern "C" fn() -> *const c_char,
    new_status: unsafe extern "C" fn() -> Status,
    get_code: unsafe extern "C" fn(Status) -> c_int,
    message: unsafe extern "C" fn(Status) -> *const c_char,
    new_server: unsafe extern "C" fn(*const c_void, usize, Status) -> Server,
    server_start: unsafe extern "C" fn(Server, Status),
}

impl TensorFlow {
    /// Loads what was found: what it needs first, where all can see it.
    pub(super) fn load(found: &Found) -> Result<TensorFlow, LoadError> {
        if !found.python.is_empty() {
            let mut last = None;
            let loaded = found.python.iter().any(|python| match open(python, RTLD_GLOBAL) {
                Ok(_) => true,
                Err(error) => {
                    last = Some(error);
                    false
                }
            });
            if let (false, Some(error)) = (loaded, last) {
                return Err(error);
            }
        }
        if let Some(framework) = &found.framework {
            open(framework, RTLD_GLOBAL)?;
        }
        let library = open(&found.library, RTLD_LOCAL)?;
        let mut missing = Vec::new();
        // SAFETY: the types are those of tensorflow/c/c_api.h, unchanged since 1.15. A symbol that is missing
        // leaves an error and no value.
        let functions = unsafe {
            let symbols = &mut missing;
            let version = symbol(library, c"TF_Version", "TF_Version", symbols);
            let new_status = symbol(library, c"TF_NewStatus", "TF_NewStatus", symbols);
            let get_code = symbol(library, c"TF_GetCode", "TF_GetCode", symbols);
            let message = symbol(library, c"TF_Message", "TF_Message", symbols);
            let new_server = symbol(library, c"TF_NewServer", "TF_NewServer", symbols);
            let server_start = symbol(library, c"TF_ServerStart", "TF_ServerStart", symbols);
            (version, new_status, get_code, message, new_server, server_start)
        };
        match functions {
            (
                Some(version),
                Some(new_status),
                Some(get_code),
                Some(message),
                Some(new_server),
                Some(server_start),
            ) => Ok(TensorFlow { version, new_status, get_code, message, new_server, server_start }),
            (version, ..) => Err(LoadError::Symbols {
                library: found.library.clone(),
                missing,
                // SAFETY: a static text of the library, which stays loaded.
                version: version
                    .map(|version| unsafe { text(version()) })
                    .or_else(|| version_beside(&found.folder))
                    .unwrap_or_else(|| "(of unknown version)".to_owned()),
            }),
        }
    }

    pub(super) fn version(&self) -> String {
        // SAFETY: a static text of the library, which stays loaded.
        unsafe { text((self.version)()) }
    }

    /// Starts a server that runs as long as this process.
    pub(super) fn start(&self, server_def: &[u8]) -> Result<(), Refused> {
        // SAFETY: the bytes live through the call, which copies them; the status is new and ours, and stays so.
        unsafe {
            let status = (self.new_status)();
            let server = (self.new_server)(server_def.as_ptr().cast(), server_def.len(), status);
            self.outcome(status)?;
            (self.server_start)(server, status);
            self.outcome(status)
        }
    }

    /// # Safety
    /// `status` must be one of TensorFlow's that lives.
    unsafe fn outcome(&self, status: Status) -> Result<(), Refused> {
        // SAFETY: as above; the message lives as long as the status does, and is copied.
        let (code, message) = unsafe { ((self.get_code)(status), text((self.message)(status))) };
        if code == 0 { Ok(()) } else { Err(Refused { code: code_name(code), message }) }
    }
}

/// Opens a library for good.
fn open(file: &Path, visible: c_int) -> Result<&'static Library, LoadError> {
    // SAFETY: the library's initialisers run. It is TensorFlow or what it needs, in a place that the user chose,
    // and nothing else runs in this process meanwhile that they could disturb.
    match unsafe { Library::open(Some(file), RTLD_LAZY | visible) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            Err(LoadError::Open { library: file.to_owned(), hint: load_hint(&why), why })
        }
    }
}

/// # Safety
/// `T` must be the type of the function that has this name.
unsafe fn symbol<T: Copy>(
    library: &'static Library,
    name: &CStr,
    shown: &'static str,
    missing: &mut Vec<&'static str>,
) -> Option<T> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    match found {
        Ok(symbol) => Some(*symbol),
        Err(_) => {
            missing.push(shown);
            None
        }
    }
}

/// # Safety
/// `pointer` must be null or point to a text that ends with 0.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's word.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn load_hint(why: &str) -> &'static str {
    if why.contains("libpython")
        || why.contains("undefined symbol: Py")
        || why.contains("undefined symbol: _Py")
    {
        "a wheel before 2.12 needs its Python's shared library; give its directory in LD_LIBRARY_PATH"
    } else if why.contains("GLIBC") {
        "this machine is older than that TensorFlow; run it where the wheel was installed"
    } else if why.contains("cannot open shared object file") {
        "give the directory of what is missing in LD_LIBRARY_PATH"
    } else {
        "is it made for this machine, and whole?"
    }
}

/// `TF_Code`
fn code_name(code: c_int) -> &'static str {
    match code {
        1 => "CANCELLED",
        3 => "INVALID_ARGUMENT",
        4 => "DEADLINE_EXCEEDED",
        5 => "NOT_FOUND",
        6 => "ALREADY_EXISTS",
        7 => "PERMISSION_DENIED",
        8 => "RESOURCE_EXHAUSTED",
        9 => "FAILED_PRECONDITION",
        10 => "ABORTED",
        11 => "OUT_OF_RANGE",
        12 => "UNIMPLEMENTED",
        13 => "INTERNAL",
        14 => "UNAVAILABLE",
        15 => "DATA_LOSS",
        16 => "UNAUTHENTICATED",
        _ => "UNKNOWN",
    }
}
