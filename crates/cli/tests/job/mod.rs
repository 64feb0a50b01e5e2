//! Starting real jobs, and looking at what they leave.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nothing in these tests should take longer.
const LIMIT: Duration = Duration::from_secs(60);

/// The program with bad habits.
pub(crate) fn habit() -> String {
    let target = Path::new(env!("CARGO_BIN_EXE_rallypoint")).parent().unwrap();
    target.join("examples/habit").to_str().unwrap().to_owned()
}

/// What a job did.
#[derive(Debug)]
pub(crate) struct Ran<T = String> {
    pub(crate) code: i32,
    pub(crate) stdout: T,
    pub(crate) stderr: String,
    pub(crate) seconds: f64,
    /// The most memory rallypoint or one of its members had.
    pub(crate) peak_mib: u64,
}

/// A `rallypoint run` that is about to start.
pub(crate) struct Job {
    command: Command,
    stdout: Option<Stdio>,
}

impl Job {
    pub(crate) fn here(args: &[&str]) -> Job {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
        command.arg("run").args(args).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        Job { command, stdout: None }
    }

    pub(crate) fn arg(mut self, arg: &str) -> Job {
        self.command.arg(arg);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Job {
        self.command.env(name, value);
        self
    }

    pub(crate) fn script(mut self, script: &str) -> Job {
        self.command.args(["--", "sh", "-c", script]);
        self
    }

    pub(crate) fn habit(mut self, args: &[&str]) -> Job {
        self.command.arg("--").arg(habit()).args(args);
        self
    }

    pub(crate) fn program(mut self, program: &str) -> Job {
        self.command.args(["--", program]);
        self
    }

    pub(crate) fn run(self) -> Ran {
        self.start().wait()
    }

    pub(crate) fn run_bytes(self) -> Ran<Vec<u8>> {
        self.start().wait_bytes()
    }

    /// Under `nohup`, so to speak.
    pub(crate) fn start_ignoring(self, signal: &str) -> Running {
        self.after(&format!("trap '' {signal}")).start()
    }

    /// In a process group of its own, as a shell with job control does it: there Ctrl-Z stops a process, and in the
    /// group of the tests, whose parents are elsewhere, it need not.
    pub(crate) fn start_as_a_shell_does(mut self) -> Running {
        self.command.process_group(0);
        self.start()
    }

    /// With standard output and error that nobody reads: both full, from the start.
    pub(crate) fn start_unread(mut self) -> Unread {
        let (unread, full) = std::io::pipe().unwrap();
        let mut fill = full.try_clone().unwrap();
        // What a pipe holds, to the byte: one more would wait for ever.
        std::io::Write::write_all(&mut fill, &[b'.'; 65536]).unwrap();
        let child = self.command.stdin(Stdio::null()).stdout(fill).stderr(full).spawn().unwrap();
        // The command holds its own ends until it is dropped.
        drop(self.command);
        Unread { child, _unread: unread }
    }

    /// With other streams.
    pub(crate) fn stdout(mut self, to: impl Into<Stdio>) -> Job {
        self.stdout = Some(to.into());
        self
    }

    /// In a shell that does something before.
    pub(crate) fn after(self, shell: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\"")]);
        command.arg(self.command.get_program()).args(self.command.get_args());
        command
            .env_clear()
            .envs(self.command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
        Job { command, stdout: None }
    }

    pub(crate) fn start(mut self) -> Running {
        let stdout = self.stdout.take();
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(stdout.unwrap_or_else(Stdio::piped))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = match child.stdout.take() {
            Some(stdout) => collect(stdout),
            None => collect(std::io::empty()),
        };
        let stderr = collect(child.stderr.take().unwrap());
        Running { child, stdout, stderr, started: Instant::now() }
    }
}

type Collected = (Arc<Mutex<Vec<u8>>>, std::thread::JoinHandle<()>);

fn collect(mut stream: impl Read + Send + 'static) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let into = bytes.clone();
    let thread = std::thread::spawn(move || {
        let mut chunk = [0; 65536];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            into.lock().unwrap().extend_from_slice(&chunk[..count]);
        }
    });
    (bytes, thread)
}

/// A job that is running.
pub(crate) struct Running {
    child: Child,
    stdout: Collected,
    stderr: Collected,
    started: Instant,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that does the work, below the one that was started.
    pub(crate) fn agent(&self) -> u32 {
        wait_for("the agent", || children(self.pid()).first().copied())
    }

    pub(crate) fn member_pids(&self, count: usize) -> Vec<u32> {
        let agent = self.agent();
        let mut pids = wait_for("the members", || Some(children(agent)).filter(|pids| pids.len() == count));
        pids.sort_unstable();
        pids
    }

    /// The port of the member with the lowest pid.
    pub(crate) fn member_port(&self) -> u16 {
        let agent = self.agent();
        wait_for("a member's address", || {
            let member = *children(agent).first()?;
            let environ = std::fs::read(format!("/proc/{member}/environ")).ok()?;
            let text = String::from_utf8_lossy(&environ).into_owned();
            let address = text.split('\0').find_map(|entry| entry.strip_prefix("RALLYPOINT_ADDRESS="))?;
            address.rsplit_once(':')?.1.parse().ok()
        })
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(self.pid(), signal);
    }

    pub(crate) fn stderr_so_far(&self) -> String {
        String::from_utf8_lossy(&self.stderr.0.lock().unwrap()).into_owned()
    }

    pub(crate) fn wait_for_output(&self, words: &str) {
        wait_until(words, || {
            self.stderr_so_far().contains(words)
                || String::from_utf8_lossy(&self.stdout.0.lock().unwrap()).contains(words)
        });
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait(self) -> Ran {
        let ran = self.wait_bytes();
        Ran {
            code: ran.code,
            stdout: String::from_utf8(ran.stdout).unwrap(),
            stderr: ran.stderr,
            seconds: ran.seconds,
            peak_mib: ran.peak_mib,
        }
    }

    pub(crate) fn wait_bytes(mut self) -> Ran<Vec<u8>> {
        let mut peak_kib = 0;
        let until = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            let agent = children(self.pid());
            for pid in agent.iter().chain([&self.pid()]) {
                peak_kib = peak_kib.max(resident_kib(*pid));
            }
            if Instant::now() > until {
                let said = self.stderr_so_far();
                kill(self.pid(), "KILL");
                panic!("the job did not end within {} s; it said: {said}", LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let seconds = self.started.elapsed().as_secs_f64();
        // After a SIGKILL of the guard, the agent may still be writing.
        self.stdout.1.join().unwrap();
        self.stderr.1.join().unwrap();
        let stdout = self.stdout.0.lock().unwrap().clone();
        let stderr = String::from_utf8_lossy(&self.stderr.0.lock().unwrap()).into_owned();
        Ran { code: status.code().unwrap_or(-1), stdout, stderr, seconds, peak_mib: peak_kib / 1024 }
    }
}

/// A job whose output nobody reads.
pub(crate) struct Unread {
    child: Child,
    _unread: std::io::PipeReader,
}

impl Unread {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn agent(&self) -> u32 {
        wait_for("the agent", || children(self.pid()).first().copied())
    }

    /// Its exit code, within the limit of all tests.
    pub(crate) fn wait(mut self) -> i32 {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            if Instant::now() > until {
                let agents = children(self.pid());
                agents.iter().chain([&self.pid()]).for_each(|pid| kill(*pid, "KILL"));
                panic!("the job did not end within {} s", LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Any other command of rallypoint.
pub(crate) fn rallypoint(args: &[&str]) -> Ran {
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_rallypoint"))
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        seconds: started.elapsed().as_secs_f64(),
        peak_mib: 0,
    }
}

pub(crate) fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{signal} {pid}");
}

/// The letter that the kernel has for what a process does: `S`, `R`, `T` for stopped.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Processes with a word on their command line, whatever they are called.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let has_mark = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark) && exists(*pid)
    };
    pids().into_iter().filter(|pid| *pid != std::process::id()).filter(has_mark).collect()
}

pub(crate) fn exists(pid: u32) -> bool {
    stat(pid).is_some()
}

/// State and parent of a process that has not ended.
fn stat(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    let mut found: Vec<u32> = pids().into_iter().filter(|&pid| stat(pid) == Some(parent)).collect();
    found.sort_unstable();
    found
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Shells whose command line has `mark`.
pub(crate) fn leftovers(mark: &str) -> Vec<u32> {
    // The tests' own processes name the mark too, but not as a shell.
    let is_shell = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh")
    };
    processes_with(mark).into_iter().filter(is_shell).collect()
}

pub(crate) fn port_is_free(port: u16) -> bool {
    std::net::TcpListener::bind(("::", port)).is_ok()
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited 20 s for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that goes away with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("rallypoint-test-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A word that no other process has on its command line.
    pub(crate) fn mark(&self) -> String {
        self.0.file_name().unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
