//! Why a job was not run, or not to its end.

use super::program::NoProgram;
use crate::check::ConfigFile;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::outcome::OwnCode;
use crate::plan::PlanError;
use crate::rehearsal::RehearsalError;
use crate::rendezvous::RendezvousError;
use crate::roles::{Role, RoleError};
use crate::scheduler::{AllocationError, PlaceError, RequeueError, SchedulerError};
use crate::serve::OptionsError;
use crate::serve::find::NotFound;
use crate::serve::members::ServedError;
use crate::supervise::AgentError;
use std::path::PathBuf;
use thiserror::Error;

/// Why a job was not run, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// Roles that cannot be.
    #[error(transparent)]
    Roles(#[from] RoleError),
    /// The scheduler's variables do not make an allocation.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// What is asked for does not fit the allocation.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No way to meet the others.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Nobody has told this agent who leads.
    #[error(transparent)]
    Launched(#[from] RendezvousError),
    /// In the words of the scheduler's own room.
    #[error("{0}")]
    Scheduler(SchedulerError),
    /// The program cannot be run.
    #[error(transparent)]
    Program(#[from] NoProgram),
    /// There is no program.
    #[error("no program is given")]
    Nothing,
    /// Roles that cannot be served.
    #[error(transparent)]
    Served(#[from] ServedError),
    /// The servers' TensorFlow is not there.
    #[error(transparent)]
    TensorFlow(#[from] NotFound),
    /// The servers' options are wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The scheduler has no queue to go back to.
    #[error(transparent)]
    Requeue(#[from] RequeueError),
    /// Faults that cannot be rehearsed.
    #[error(transparent)]
    Rehearsal(#[from] RehearsalError),
    /// A rule is for a role that nobody has.
    #[error("no member of this job has the role {role}, there are {there}")]
    NoSuchRole {
        /// What the rule is given by.
        setting: Setting,
        /// The role.
        role: Role,
        /// Those that members have.
        there: String,
    },
    /// A TF_CONFIG leaves out the member that it is for.
    #[error("{file} names no address for {role} {index}", role = .config.role, index = .config.index, file = .config.name)]
    NoAddress {
        /// The file.
        config: Box<ConfigFile>,
    },
    /// A file that was named cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no room for the run's own files.
    #[error("no private directory can be made in {}: {source}", folder.display())]
    NoPrivateFolder {
        /// Where it was to be.
        folder: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Served members are started by the command, and nobody has told where that is.
    #[error("it is not known where the rallypoint command is, which serves members")]
    NoCommand,
    /// A process with several threads cannot be forked safely.
    #[error(
        "this process has {threads} threads, and a job can only be started from one with a single thread"
    )]
    Threads {
        /// How many.
        threads: usize,
    },
    /// The agent could not run its members.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The same, of an agent in a process of its own.
    #[error("{}", hint::problem_of(why))]
    Elsewhere {
        /// The exit code that follows.
        code: u8,
        /// What it said, with its hint.
        why: String,
    },
    /// The agent was killed; its guard has ended what was left.
    #[error("the agent was killed before the job was over; its members were ended")]
    AgentLost,
    /// The system refuses something.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl RunError {
    /// The exit code that follows.
    pub fn code(&self) -> u8 {
        match self {
            RunError::Agent(error) => error.code(),
            RunError::Elsewhere { code, .. } => *code,
            RunError::AgentLost => OwnCode::AgentLost.code(),
            RunError::TensorFlow(_) => OwnCode::NotStarted.code(),
            _ => 2,
        }
    }
}

impl Hinted for RunError {
    fn hint(&self) -> Option<Hint> {
        match self {
            RunError::Roles(error) => error.hint(),
            RunError::Allocation(error) => error.hint(),
            RunError::Plan(error) => error.hint(),
            RunError::Place(error) => error.hint(),
            RunError::Launched(error) => error.hint(),
            RunError::Scheduler(error) => error.hint(),
            RunError::Program(error) => error.hint(),
            RunError::Served(error) => error.hint(),
            RunError::TensorFlow(error) => error.hint(),
            RunError::Options(error) => error.hint(),
            RunError::Requeue(error) => error.hint(),
            RunError::Rehearsal(error) => error.hint(),
            RunError::Agent(error) => error.hint(),
            RunError::Elsewhere { why, .. } => hint::hint_of(why),
            RunError::NoSuchRole { setting, .. } => Some(hint!("name one of those for ", *setting)),
            RunError::NoPrivateFolder { source, .. } => Some(match source.kind() {
                std::io::ErrorKind::FileTooLarge => hint!("files may not be that large here, see ulimit -f"),
                _ => hint!("set TMPDIR"),
            }),
            RunError::Nothing => Some(hint!("name it and its arguments")),
            RunError::NoCommand => Some(hint!("`Run::rallypoint` tells it")),
            RunError::Threads { .. } => {
                Some(hint!("start it before there are threads, or start the rallypoint command"))
            }
            RunError::NoAddress { .. }
            | RunError::Unreadable { .. }
            | RunError::AgentLost
            | RunError::Io(_) => None,
        }
    }
}
