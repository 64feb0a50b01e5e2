//! Running members: the only room that starts processes and sends signals.
//!
//! | file | subject |
//! |---|---|
//! | `guard` | why nothing survives, even SIGKILL of the agent |
//! | `agent` | what a run is; all members here, or one of many |
//! | `conductor` | the event loop that decides, for all members here or as the leader |
//! | `follower` | the event loop of one member that follows the leader |
//! | `step` | launcher mode: starts the step and leads it |
//! | `launch` | from a roster to launches |
//! | `executor` | this agent's own members: start, stop, reap |
//! | `output` | what they write |
//! | `signals` | what comes in, as events |
//! | `tree`, `sys` | process trees; the system calls that have no safe form |

mod agent;
mod conductor;
mod executor;
mod follower;
pub mod guard;
mod launch;
mod output;
mod signals;
mod step;
mod sys;
mod tree;

pub use agent::{ClosingRow, Notice, Requeue, Run, RunError, RunSpec, run_here, run_member};
pub use output::OutputStyle;
pub use step::run_step;
pub(crate) use sys::{dies_with_us, is_ignored};
