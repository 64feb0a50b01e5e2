//! A TensorFlow server without Python: `rallypoint serve`.
//!
//! A parameter server holds variables and runs ops that clients send; TF 2's workers do no more. TensorFlow's
//! C API starts such a server from a serialized `ServerDef`, and its wheels have the library. So this process
//! loads it, starts the server and waits to be told to end. There is no other way to end one.
//!
//! | file | subject |
//! |---|---|
//! | `definition` | what is served, from TF_CONFIG or a ServerDef, checked |
//! | `options` | threads, devices and gRPC's settings, as the message and the variables that TensorFlow takes |
//! | `config` | ConfigProto as text |
//! | `find` | where TensorFlow is |
//! | `mapped` | where the TensorFlow is that a running program has loaded |
//! | `native` | the calls that have no safe form |
//! | `members` | which members of a job are served |

mod config;
mod definition;
pub mod find;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod mapped;
pub mod members;
mod native;
mod options;

pub use config::ConfigTextError;
pub use definition::{Definition, DefinitionError};
pub use native::{LoadError, Refused};
pub use options::{Options, OptionsError};

use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::network::{self, Listener};
use crate::ports;
use crate::variables as var;
use find::Found;
use native::TensorFlow;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A started server listens at once; longer than this, it does not.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Why a server does not serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Somebody listens on the port.
    #[error("port {port} is in use: {who} listens on it")]
    PortInUse {
        /// The server's port.
        port: u16,
        /// The process that listens there.
        who: Listener,
        /// The server: `ps 0`.
        member: String,
    },
    /// The port cannot be bound, and nobody is seen to listen there.
    #[error("port {port} cannot be had: {source}, and /proc does not tell whose it is")]
    PortTaken {
        /// The server's port.
        port: u16,
        /// The system's error.
        source: std::io::Error,
        /// The server: `ps 0`.
        member: String,
    },
    /// TensorFlow was found, and cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// TensorFlow was loaded, and says no to the definition.
    #[error("TensorFlow {version} does not start {member}: {refused}")]
    Refused {
        /// TensorFlow's own version.
        version: String,
        /// The server: `ps 0`.
        member: String,
        /// What it said.
        refused: Refused,
        /// What to do about it.
        hint: Hint,
    },
    /// TensorFlow says that the server has started, and after 10 s nothing listens.
    #[error("TensorFlow {version} has started {member}, but nobody listens on port {port}")]
    Silent {
        /// TensorFlow's own version.
        version: String,
        /// The server: `ps 0`.
        member: String,
        /// Where it was to listen.
        port: u16,
    },
}

impl Hinted for ServeError {
    fn hint(&self) -> Option<Hint> {
        match self {
            ServeError::PortInUse { member, .. } => {
                Some(hint!(format!("end that process, or give {member} another port")))
            }
            ServeError::PortTaken { member, .. } => Some(hint!(format!(
                "another user's process may listen on it, or hold it for a server of its own; give {member} another port"
            ))),
            ServeError::Load(error) => error.hint(),
            ServeError::Refused { hint, .. } => Some(hint.clone()),
            ServeError::Silent { .. } => Some(hint!("TF_CPP_MIN_LOG_LEVEL=0 shows what it says")),
        }
    }
}

/// A server that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// TensorFlow's own version.
    pub version: String,
}

/// Lets SIGTERM, SIGINT and SIGHUP end this process with 0, at once and from here on.
pub fn leave_when_told() {
    native::leave_when_told();
}

/// Gives this process the variables that TensorFlow reads when it is loaded. Only while it has a single thread.
pub fn set_variables(variables: &BTreeMap<String, String>) {
    native::set_variables(variables);
}

/// Loads TensorFlow and starts the server; it listens when this returns. `slow` is called again and again with
/// the time that loading has taken, as long as it takes.
pub fn start(
    definition: &Definition,
    found: &Found,
    environ: &Environ,
    slow: impl Fn(Duration) + Send + 'static,
) -> Result<Serving, ServeError> {
    let reuse_port = environ.get(var::TF_GRPC_REUSE_PORT) == Some("1");
    // Seen before the seconds that loading may take; and again where TensorFlow says no more than "Unknown".
    look_at_port(definition, reuse_port)?;
    let (done, waiting) = channel::<()>();
    let started = Instant::now();
    std::thread::spawn(move || {
        while waiting.recv_timeout(Duration::from_secs(5)) == Err(RecvTimeoutError::Timeout) {
            slow(started.elapsed());
        }
    });
    let tensorflow = TensorFlow::load(found)?;
    let version = tensorflow.version();
    if let Err(refused) = tensorflow.start(definition.bytes()) {
        look_at_port(definition, reuse_port)?;
        let hint = match refused.message.contains("Could not parse") {
            true => {
                hint!("the ServerDef or the ", Setting::Config, " in it is not what this version takes")
            }
            false => hint!("TF_CPP_MIN_LOG_LEVEL=0 shows more of what it says"),
        };
        return Err(ServeError::Refused { version, member: definition.member(), refused, hint });
    }
    let until = Instant::now() + LISTENS_WITHIN;
    while network::listening_is_known()
        && !network::listening(Some(definition.port)).contains(&definition.port)
    {
        if Instant::now() > until {
            return Err(ServeError::Silent { version, member: definition.member(), port: definition.port });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(done);
    Ok(Serving { version })
}

/// Ends this process without running TensorFlow's exit handlers, which crash under its threads.
pub fn leave(code: u8) -> ! {
    native::leave_now(code)
}

/// Why a server cannot have this port now, if it cannot.
pub(crate) fn port_in_use(port: u16, reuse_port: bool) -> Option<String> {
    let error = ports::can_be_shared(port, reuse_port).err()?;
    Some(match network::listener(port) {
        Some(who) => format!("port {port} is in use: {who} listens on it"),
        None => format!("port {port} cannot be had: {error}"),
    })
}

fn look_at_port(definition: &Definition, reuse_port: bool) -> Result<(), ServeError> {
    let Err(source) = ports::can_be_shared(definition.port, reuse_port) else { return Ok(()) };
    let (port, member) = (definition.port, definition.member());
    Err(match network::listener(port) {
        Some(who) => ServeError::PortInUse { port, who, member },
        None => ServeError::PortTaken { port, source, member },
    })
}

impl Definition {
    /// `ps 0`
    pub fn member(&self) -> String {
        format!("{} {}", self.role, self.index)
    }
}
