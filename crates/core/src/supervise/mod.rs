//! Running members: the only room that decides to start processes and to send signals; [`crate::process`] does it.
//!
//! | file | subject |
//! |---|---|
//! | `guard` | why nothing survives, even SIGKILL of the agent |
//! | `run` | what a run is, what is told of it, and what can go wrong |
//! | `agent`, `event_loop` | all members here, or one of many |
//! | `conductor` | the event loop that decides, for all members here or as the leader |
//! | `others`, `leading` | the members that other agents run, and what is said to them |
//! | `closing` | the end of a job: everyone is told, and what it came to is said |
//! | `follower` | the event loop of one member that follows the leader |
//! | `following` | what it does with what it hears |
//! | `step`, `launcher` | launcher mode: starts the step and leads it |
//! | `launch` | from a roster to launches |
//! | `executor`, `member`, `starting` | this agent's own members: start, stop, reap |
//! | `stop` | how they are stopped: asked, given a grace, killed |
//! | `restarts` | who is started again, and when |
//! | `rehearsing` | which faults on purpose are due |
//! | `stream` | the one stream of events: to the file, and to whoever listens |
//! | `output`, `log_file`, `losses` | what they write, and what of it could not be written |
//! | `patience` | how long the last of it is waited for |
//! | `standin` | servers that stand in for members that have finished |
//! | `silence` | what it may be when nobody writes anything |
//! | `rollcall` | who has finished and who still runs, every minute |
//! | `signals` | what comes in, as events |

mod agent;
mod closing;
mod conductor;
mod event_loop;
mod executor;
mod follower;
mod following;
pub mod guard;
mod launch;
mod launcher;
mod leading;
mod log_file;
mod losses;
mod member;
mod others;
mod output;
mod patience;
mod rehearsing;
mod restarts;
mod rollcall;
mod run;
mod signals;
mod silence;
mod standin;
mod starting;
mod step;
mod stop;
mod stream;

#[cfg(feature = "simulation")]
pub(crate) use agent::simulate_member;
pub(crate) use agent::{run_here, run_member};
pub use launcher::Launcher;
pub use output::OutputStyle;
pub use run::{AgentError, LogErrors, Requeue};
pub(crate) use run::{Prepared, RunSpec};
pub(crate) use standin::StandInCommand;
pub(crate) use step::run_step;
