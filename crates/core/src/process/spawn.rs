//! Starting a program, without first making a copy of this process.
//!
//! `fork` copies the tables of all memory, which takes longest where there are threads, and every page that either side writes to
//! next is copied too. So the child shares the memory instead, and this thread waits until the child has become the
//! program, as `posix_spawn` does it; that one cannot be asked for a death signal. What the child does
//! before exec is a plain system call each: no allocation, no lock, no panic.

#![expect(unsafe_code, reason = "clone, and what a child does before exec, have no safe form")]

use super::calls::{has_handler, heed, set_blocked, with_all_blocked};
use super::limits::DescriptorLimit;
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};

/// What the child needs of a stack: the system's search for the program takes a path and a copy of the arguments on it.
const STACK: usize = 128 << 10;
/// The last of the kernel's signals.
const LAST_SIGNAL: c_int = 64;

/// Where a program reads from and writes to. Each is the standard one of its kind, or none of the three.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams<'a> {
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
}

/// What is started. Not a `Command` of the standard library, which tells nobody of a zero in a word, and starts by copies.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    words: &'a [OsString],
    /// What it has of variables, in the order of their names.
    variables: BTreeMap<OsString, OsString>,
}

impl<'a> Program<'a> {
    /// A name, which is looked for as a shell does, and its arguments. It has the variables of this process.
    pub(crate) fn new(words: &'a [OsString]) -> Program<'a> {
        Program { words, variables: std::env::vars_os().collect() }
    }

    pub(crate) fn variables<N: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Program<'a> {
        self.variables.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Without these variables.
    pub(crate) fn without(mut self, names: &[&str]) -> Program<'a> {
        self.variables.retain(|name, _| !names.iter().any(|withheld| name == withheld));
        self
    }
}

/// All that the child reads. It has this process's memory, so it allocates nothing.
struct Start<'a> {
    program: &'a CString,
    arguments: &'a [*const c_char],
    variables: &'a [*const c_char],
    streams: [RawFd; 3],
    /// Signals that this process handles: a handler must not run in the child.
    handled: &'a [c_int],
    descriptors: DescriptorLimit,
    parent: Pid,
    /// Why it has not become the program, if it has not.
    error: AtomicI32,
}

/// Starts a program in a session of its own, with no signal blocked, that dies with this thread.
pub(crate) fn spawn(
    program: &Program<'_>,
    streams: Streams<'_>,
    descriptors: DescriptorLimit,
) -> io::Result<u32> {
    let arguments = program.words.iter().map(|word| Ok(CString::new(word.as_bytes())?));
    let arguments = arguments.collect::<io::Result<Vec<CString>>>()?;
    let variables = lines(&program.variables)?;
    let handled: Vec<c_int> = (1..=LAST_SIGNAL).filter(|&signal| has_handler(signal)).collect();
    let start = Start {
        program: arguments.first().ok_or(io::ErrorKind::InvalidInput)?,
        arguments: &pointers(&arguments),
        variables: &pointers(&variables),
        streams: [streams.stdin, streams.stdout, streams.stderr].map(|stream| stream.as_raw_fd()),
        handled: &handled,
        descriptors,
        parent: rustix::process::getpid(),
        error: AtomicI32::new(0),
    };
    // No handler of this process may run in the child, which is in its memory.
    let pid = with_all_blocked(|| clone(&start))??;
    match start.error.load(Ordering::Relaxed) {
        0 => Ok(pid),
        error => {
            let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
            _ = rustix::process::waitpid(child, rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Returns when the child has become the program, or has ended.
fn clone(start: &Start<'_>) -> io::Result<u32> {
    let mut stack: Vec<u128> = Vec::with_capacity((STACK + size_of_val(start.arguments)) / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack grows down from its end, which is aligned, and it and `start` outlive the child's use of them, since
    // this thread is held until the child has its own memory or is gone.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        libc::clone(child, top.cast(), flags, std::ptr::from_ref(start).cast_mut().cast())
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as u32),
    }
}

extern "C" fn child(start: *mut c_void) -> c_int {
    // SAFETY: it is the `Start` that `clone` was given, which nobody changes meanwhile.
    let start = unsafe { &*start.cast::<Start<'_>>() };
    let error = become_program(start).err().and_then(|error| error.raw_os_error());
    start.error.store(error.unwrap_or(libc::EINVAL), Ordering::Relaxed);
    // SAFETY: it does not return, and runs no code of anybody's.
    unsafe { libc::_exit(127) }
}

/// Returns only if it could not. Each error is one of the system's, which takes no memory.
fn become_program(start: &Start<'_>) -> io::Result<()> {
    for (number, &stream) in (0..).zip(&start.streams) {
        // SAFETY: both are open, and the first three of the child are its own.
        if unsafe { libc::dup2(stream, number) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    rustix::process::setsid()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the line above, no signal will come.
    if rustix::process::getppid() != Some(start.parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    for &signal in start.handled {
        heed(signal)?;
    }
    // The first is ignored by every program of Rust's, the others by agents.
    for signal in [libc::SIGPIPE, libc::SIGTTOU, libc::SIGXFSZ] {
        heed(signal)?;
    }
    start.descriptors.restore();
    set_blocked(libc::SIG_SETMASK, &[])?;
    // SAFETY: both lists end with a null pointer, and their strings with a zero.
    unsafe {
        libc::execvpe(start.program.as_ptr(), start.arguments.as_ptr(), start.variables.as_ptr());
    }
    Err(io::Error::last_os_error())
}

/// Variables as a program is given them.
fn lines(variables: &BTreeMap<OsString, OsString>) -> io::Result<Vec<CString>> {
    let line = |(name, value): (&OsString, &OsString)| {
        let line = [name.as_bytes(), b"=", value.as_bytes()].concat();
        Ok(CString::new(line)?)
    };
    variables.iter().map(line).collect()
}

/// With the null pointer that ends such a list.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::calls;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn words<const N: usize>(words: [&str; N]) -> [OsString; N] {
        words.map(OsString::from)
    }

    /// What a program writes, and its number.
    fn output(program: &Program<'_>) -> io::Result<(String, u32)> {
        let (mut reader, writer) = io::pipe()?;
        let nothing = std::fs::File::open("/dev/null")?;
        let streams = Streams { stdin: nothing.as_fd(), stdout: writer.as_fd(), stderr: writer.as_fd() };
        let limit = DescriptorLimit::raise_for(1, 0).unwrap();
        let pid = spawn(program, streams, limit)?;
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        let child = Pid::from_raw(pid as i32);
        rustix::process::waitpid(child, rustix::process::WaitOptions::empty())?;
        Ok((text, pid))
    }

    #[test]
    fn words_and_variables_arrive_as_they_are() {
        let words = words(["sh", "-c", "echo \"$1|$A|$CARGO_PKG_NAME|$$\"", "sh", "a b\nc"]);
        let program = Program::new(&words).without(&["CARGO_PKG_NAME"]).variables([("A", "1=2")]);
        let (text, pid) = output(&program).unwrap();
        assert_eq!(text, format!("a b\nc|1=2||{pid}\n"));
    }

    #[test]
    fn it_has_a_session_of_its_own_and_signals_as_a_shell_gives_them() {
        // As the event loop does; and one that is ignored stays so, as under nohup. No shell is asked: it blocks signals for moments.
        calls::ignore(libc::SIGTTIN).unwrap();
        let blocked = || {
            set_blocked(libc::SIG_BLOCK, &[libc::SIGUSR1]).unwrap();
            output(&Program::new(&words(["sh", "-c", "exec cat /proc/self/status /proc/self/stat"]))).unwrap()
        };
        let (text, pid) = std::thread::spawn(blocked).join().unwrap();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        // Of those that programs know; the C library keeps some of the higher ones for itself.
        let ignored = field("SigIgn") & ((1 << 31) - 1);
        assert_eq!((field("SigBlk"), ignored), (0, 1 << (libc::SIGTTIN - 1)), "{text}");
        let stat = text.lines().last().unwrap().rsplit(')').next().unwrap();
        let numbers: Vec<&str> = stat.split_whitespace().collect();
        assert_eq!((numbers[2], numbers[3]), (&*pid.to_string(), &*pid.to_string()), "group and session");
    }

    #[test]
    fn what_cannot_be_run_is_told_and_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("rallypoint-spawn-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join("no-interpreter");
        let error = |word: &str| output(&Program::new(&words([word]))).unwrap_err();
        assert_eq!(error("no-such-program-anywhere").raw_os_error(), Some(libc::ENOENT));
        assert_eq!(error(folder.to_str().unwrap()).raw_os_error(), Some(libc::EACCES));
        assert_eq!(error("a\0b").kind(), io::ErrorKind::InvalidInput);
        assert_eq!(output(&Program::new(&[])).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let zero = Program::new(&[]).variables([("A", "b\0c")]);
        assert_eq!(output(&zero).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // A script without a first line for it is the shell's, as everywhere.
        std::fs::write(&script, "echo $0 $1\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
        let (text, _) = output(&Program::new(&[script.clone().into(), "x".into()])).unwrap();
        assert_eq!(text, format!("{} x\n", script.display()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
