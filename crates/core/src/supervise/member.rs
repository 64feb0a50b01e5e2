//! One member of this agent: what it is started with, and what happens to it.

use crate::lane::Loss;
use crate::outcome::Ended;
use crate::ports::HeldPort;
use crate::rehearsal::Planned;
use std::ffi::OsString;
use std::path::PathBuf;

/// Everything needed to start one member.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) rank: u32,
    pub(super) role: String,
    pub(super) index: u32,
    pub(super) host: String,
    pub(super) command: Vec<OsString>,
    /// The command is a server without Python.
    pub(super) served: bool,
    /// On top of what this process has.
    pub(super) variables: Vec<(String, String)>,
    /// Of what this process has, what the member must not have.
    pub(super) withheld: &'static [&'static str],
    pub(super) error_file: PathBuf,
    pub(super) log_folder: Option<PathBuf>,
    pub(super) port: Option<HeldPort>,
}

/// Something that happened to a member.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Happened {
    Started {
        rank: u32,
        pid: u32,
        served: bool,
    },
    Listening {
        rank: u32,
    },
    Ended {
        rank: u32,
        ended: Ended,
    },
    OutputLost(Loss),
    /// A fault on purpose was done to the process of a member, or to its agent; to nobody if the member does not run.
    Rehearsed {
        fault: Planned,
        pid: Option<u32>,
    },
    /// No server can stand in for a member that has finished.
    NoStandIn {
        rank: u32,
        why: String,
    },
}
