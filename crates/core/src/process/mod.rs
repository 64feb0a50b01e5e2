//! Processes of this machine: the one room that makes the system calls for them.
//!
//! | file | subject |
//! |---|---|
//! | `calls` | the system calls that have no safe form: fork, wait, signals |
//! | `spawn` | members and other long-lived programs, started |
//! | `tree` | whole process trees, and their end |
//! | `limits` | how many files may be open |
//! | `limited` | small programs that are asked something, within a limit |
//! | `inherited` | descriptors that whoever started this process left open for it |
//! | `pipe`, `arrivals` | pipes and signals, in the event loop |
//! | `path` | programs by their names |

mod arrivals;
pub(crate) mod calls;
mod inherited;
mod limited;
pub(crate) mod limits;
mod path;
mod pipe;
pub(crate) mod spawn;
pub(crate) mod tree;

pub(crate) use arrivals::Arrivals;
pub(crate) use calls::{dies_with_us, exists, is_ignored, own_pid};
pub use inherited::{close_for_children, take_inherited_socket};
pub(crate) use inherited::{is_hung_up, is_readable, is_readable_within};
pub(crate) use limited::run_with_limit;
pub use limits::TooFewDescriptors;
pub(crate) use limits::check_descriptors;
pub use path::{find_on_path, is_executable};
pub(crate) use pipe::Pipe;
