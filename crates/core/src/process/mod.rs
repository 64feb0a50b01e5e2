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
pub(crate) use inherited::{is_readable, is_readable_within};
pub(crate) use limited::run_with_limit;
pub use limits::TooFewDescriptors;
pub(crate) use limits::check_descriptors;
pub use path::{find_on_path, is_executable};
pub(crate) use pipe::Pipe;

/// Starts a thread that hears no signals. They are for the thread of the event loop; one that waits would be woken for each
/// member that ends.
pub fn start_thread<T: Send + 'static>(
    thread: std::thread::Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    // A thread begins with what its parent has blocked.
    calls::with_all_blocked(|| thread.spawn(work))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_beside_hears_no_signals() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("SigBlk")).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        let before = blocked();
        let beside = start_thread(std::thread::Builder::new(), blocked).unwrap().join().unwrap();
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGTSTP] {
            assert_ne!(beside & 1 << (signal - 1), 0, "{signal}");
        }
        assert_eq!(blocked(), before, "whoever starts it does as before");
    }
}
