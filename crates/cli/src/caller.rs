//! Whoever has started this command as a part of itself, as the Python package does.
//!
//! It hands over one end of a socket: `rallypoint run --caller=7 ...`, always the first word behind `run`. What keeps a
//! job from starting is told there too, since stderr may be a terminal that only a person reads. And the socket closes
//! with the caller, however that ends: then the job is asked to end. Not a parent-death signal, which is bound to the
//! thread that has forked: a notebook's may be gone long before its process.

use rallypoint::process::{self, take_inherited_socket};
use rallypoint::supervise::guard;
use rustix::process::{Signal, getppid, kill_process};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

const WORD: &str = "--caller=";
/// How long a caller may take to take what it is told; it has room for some 200 KB.
const PATIENCE: Duration = Duration::from_secs(1);

static CALLER: OnceLock<UnixStream> = OnceLock::new();

/// The words as a person would have typed them, and the number of the caller's socket.
pub(crate) fn split(mut words: Vec<OsString>) -> (Vec<OsString>, Option<i32>) {
    let number = |word: &OsString| word.to_str()?.strip_prefix(WORD)?.parse().ok();
    match (words.get(1).is_some_and(|word| word == "run"), words.get(2).and_then(number)) {
        (true, Some(number)) => {
            words.remove(2);
            (words, Some(number))
        }
        _ => (words, None),
    }
}

/// From now on the caller is told what is said last. Its signals count, whatever it has ignored itself: we are in a
/// session of our own, and nobody else sends them.
pub(crate) fn take(number: i32) -> io::Result<()> {
    let socket = UnixStream::from(take_inherited_socket(number)?);
    socket.set_write_timeout(Some(PATIENCE))?;
    _ = CALLER.set(socket);
    guard::heed_the_caller()
}

/// Tells the caller what a person reads on stderr.
pub(crate) fn tell(text: &str) {
    if let Some(mut caller) = CALLER.get() {
        // One that takes no more has ended, or will see the exit code.
        _ = caller.write_all(text.as_bytes());
    }
}

/// In the agent: asks the job to end when the caller has gone. By the guard, as anybody would, and awake.
pub(crate) fn watch() -> io::Result<()> {
    let Some(caller) = CALLER.get() else { return Ok(()) };
    let (mut caller, guard) = (caller.try_clone()?, getppid());
    let watch = move || {
        let mut nothing = [0; 64];
        while matches!(caller.read(&mut nothing), Ok(1..)) {}
        // A guard that was killed has told the agent by that.
        if let Some(guard) = guard.filter(|_| getppid() == guard) {
            for signal in [Signal::TERM, Signal::CONT] {
                _ = kill_process(guard, signal);
            }
        }
    };
    process::start_thread(std::thread::Builder::new().stack_size(128 << 10), watch).map(drop)
}

#[cfg(test)]
mod tests {
    use super::split;
    use std::ffi::OsString;

    #[test]
    fn only_the_first_word_behind_run_is_the_callers() {
        let split = |typed: &str| {
            let (words, number) = split(typed.split(' ').map(OsString::from).collect());
            let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            (words.join(" "), number)
        };
        assert_eq!(
            split("rallypoint run --caller=7 --ps=1 -- a"),
            ("rallypoint run --ps=1 -- a".to_owned(), Some(7))
        );
        for other in [
            "rallypoint",
            "rallypoint run",
            "rallypoint run --ps=1 --caller=7",
            "rallypoint run --caller=x",
            "rallypoint plan --caller=7",
            "rallypoint run -- a --caller=7",
        ] {
            assert_eq!(split(other), (other.to_owned(), None));
        }
    }
}
