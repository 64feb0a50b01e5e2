//! Running members: the only room that starts processes and sends signals.
//!
//! | file | subject |
//! |---|---|
//! | `guard` | why nothing survives, even SIGKILL of the agent |
//! | `agent` | the event loop: all members here, or one of many |
//! | `executor` | this agent's own members: start, stop, reap |
//! | `output` | what they write |
//! | `signals` | what comes in, as events |
//! | `tree`, `sys` | process trees; the system calls that have no safe form |

mod agent;
mod executor;
pub mod guard;
mod output;
mod signals;
mod sys;
mod tree;

pub use agent::{ClosingRow, Meeting, Notice, Run, RunError, RunSpec, run_here, run_member};
pub use output::OutputStyle;
