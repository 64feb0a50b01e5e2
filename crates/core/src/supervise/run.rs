//! What a run is: what there is, what was asked for and how, what is told, what can go wrong.

use super::output::OutputStyle;
use super::standin::StandInCommand;
use crate::environ::Environ;
use crate::event::RunEvent;
use crate::framework::{Framework, FrameworkError};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::job::{Rules, Until};
use crate::outcome::OwnCode;
use crate::plan::Plan;
use crate::ports::{HandOver, PortChoice, PortError};
use crate::process::TooFewDescriptors;
use crate::rehearsal::Rehearsal;
use crate::rendezvous::message::Seat;
use crate::rendezvous::{self, RendezvousError, SettleError};
use crate::roster::{Addressing, Roster, RosterError};
use crate::serve::members::Served;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// What is to be run, and how.
#[derive(Debug)]
pub(crate) struct RunSpec {
    pub(crate) command: Vec<OsString>,
    /// Members that are servers without Python instead.
    pub(crate) served: Option<Served>,
    /// A server that stands in for a member that has finished.
    pub(crate) stand_in: Option<StandInCommand>,
    pub(crate) rules: Rules,
    pub(crate) grace: Duration,
    /// Faults on purpose.
    pub(crate) rehearsal: Rehearsal,
    pub(crate) framework: &'static dyn Framework,
    pub(crate) ports: PortChoice,
    pub(crate) hand_over: HandOver,
    pub(crate) style: OutputStyle,
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) events: Option<PathBuf>,
    /// Whether output that cannot be written makes a job fail that has otherwise succeeded.
    pub(crate) log_errors: LogErrors,
    pub(crate) threads: bool,
    pub(crate) addressing: Addressing,
    /// Variables that win over everything else.
    pub(crate) extra: Vec<(String, String)>,
    /// Variables that no member inherits.
    pub(crate) withheld: &'static [&'static str],
    /// For `--requeue-on`.
    pub(crate) requeue: Option<Requeue>,
    /// Asks the scheduler when it will end the job, where no variable tells it.
    pub(crate) ask_deadline: Option<fn(&Environ) -> Option<SystemTime>>,
    /// A folder of this run alone, for the roster and the members' last words.
    pub(crate) private: PathBuf,
}

/// What follows from output that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogErrors {
    /// A job that has otherwise succeeded ends with [`OwnCode::OutputLost`].
    #[default]
    Fail,
    /// It is only told.
    Ignore,
}

/// How the scheduler is asked to run the whole job again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    /// The scheduler's id of the job.
    pub job: String,
    /// `scontrol requeue 17`, word by word.
    pub command: Vec<OsString>,
}

/// A run that is prepared: what there is, what was asked for, and how.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) environ: Environ,
    pub(crate) spec: RunSpec,
}

/// Why an agent could not run its members.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The members did not meet.
    #[error(transparent)]
    Meeting(#[from] RendezvousError),
    /// A member has no port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The framework's variables cannot be written.
    #[error(transparent)]
    Framework(#[from] FrameworkError),
    /// What the members told does not fit the plan.
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// The members have no addresses.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// This machine has no address that was asked for.
    #[error(transparent)]
    Address(#[from] crate::address::AddressError),
    /// No member has a role whose end is waited for.
    #[error("nobody has the role that the end waits for")]
    NobodyDecides,
    /// All members serve or wait.
    #[error("nobody trains, so the job would never end: a ps serves, an evaluator waits for checkpoints")]
    NobodyTrains,
    /// Too few files may be open.
    #[error(transparent)]
    TooFewDescriptors(#[from] TooFewDescriptors),
    /// The directory for the members' output cannot be made.
    #[error("the log directory {}: {source}", folder.display())]
    LogDir {
        /// Which.
        folder: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file for the events cannot be opened.
    #[error("the events' file {}: {source}", file.display())]
    Events {
        /// Which.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system refuses something else.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Hinted for AgentError {
    fn hint(&self) -> Option<Hint> {
        match self {
            AgentError::Meeting(error) => error.hint(),
            AgentError::Port(error) => error.hint(),
            AgentError::Framework(error) => error.hint(),
            AgentError::Settle(error) => error.hint(),
            AgentError::Roster(error) => error.hint(),
            AgentError::Address(error) => error.hint(),
            AgentError::NobodyDecides => Some(hint!(Setting::Until.with("all"), " waits for everyone")),
            AgentError::NobodyTrains => Some(hint!(
                "give ",
                Setting::Workers.with("N"),
                " or ",
                Setting::Chief,
                ", or ",
                Setting::Until.with("all"),
                " if these members end by themselves"
            )),
            AgentError::TooFewDescriptors(error) => error.hint(),
            AgentError::LogDir { .. } => Some(hint!("choose another one with ", Setting::LogDir)),
            AgentError::Events { .. } => Some(hint!("choose another one with ", Setting::Events)),
            AgentError::Io { .. } => None,
        }
    }
}

impl AgentError {
    pub(super) fn code_of(error: &RendezvousError) -> u8 {
        match error {
            RendezvousError::Dismissed { code, .. } | RendezvousError::MemberFailed { code, .. } => {
                return *code;
            }
            RendezvousError::Interrupted(_) => OwnCode::Interrupted,
            RendezvousError::Wire(_) => OwnCode::LeaderLost,
            RendezvousError::StepEnded { .. } => OwnCode::NotStarted,
            _ => OwnCode::MeetingFailed,
        }
        .code()
    }

    /// Nobody could ever decide the end of a job with these rules.
    pub fn nobody(rules: &Rules) -> AgentError {
        match rules.until {
            Until::Auto | Until::First => AgentError::NobodyTrains,
            Until::Chief | Until::Workers | Until::All => AgentError::NobodyDecides,
        }
    }

    /// The exit code that follows.
    pub fn code(&self) -> u8 {
        match self {
            AgentError::Meeting(error) => AgentError::code_of(error),
            AgentError::Port(_)
            | AgentError::TooFewDescriptors(_)
            | AgentError::LogDir { .. }
            | AgentError::Events { .. }
            | AgentError::Io { .. } => OwnCode::NotStarted.code(),
            AgentError::Framework(_)
            | AgentError::Settle(_)
            | AgentError::Roster(_)
            | AgentError::Address(_)
            | AgentError::NobodyDecides
            | AgentError::NobodyTrains => 2,
        }
    }
}

/// Who hears what happens: the one stream of events.
pub(super) type Tell<'a> = &'a mut dyn FnMut(RunEvent);

pub(super) fn io(what: &str) -> impl FnOnce(std::io::Error) -> AgentError {
    let what = what.to_owned();
    move |source| AgentError::Io { what, source }
}

/// Adds what the members told; what is left of the run goes on with it.
pub(super) fn settled(
    run: Prepared,
    rank: Option<u32>,
    attempt: u32,
    deadline: Option<SystemTime>,
    members: Vec<Seat>,
) -> Result<(Roster, Environ, RunSpec), AgentError> {
    let Prepared { plan, environ, spec } = run;
    let plan = plan.in_attempt(attempt).with_deadline(deadline);
    let roster = rendezvous::settle(plan, environ.cpus, rank, members)?;
    Ok((roster, environ, spec))
}
