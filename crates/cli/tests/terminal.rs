//! What a person sees on a real terminal, however wide it is.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Scratch, kill, wait_for, wait_until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A terminal of so many columns, and everything that was written to it.
struct Terminal {
    master: OwnedFd,
    slave: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn new(columns: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut from, into) = (File::from(master.try_clone().unwrap()), written.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                into.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        let terminal = Terminal { master, slave, written };
        terminal.resize(columns);
        terminal
    }

    fn resize(&self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    fn stdio(&self) -> Stdio {
        self.slave.try_clone().unwrap().into()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The progress bar each time it was drawn, without the last, which may not be whole yet.
    fn bars(&self) -> Vec<String> {
        let text = self.text();
        let mut drawn: Vec<&str> = text.split("\r\x1b[K").skip(1).collect();
        drawn.pop();
        drawn.into_iter().map(str::to_owned).collect()
    }
}

fn rallypoint(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

const COMMANDS: [&[&str]; 15] = [
    &[],
    &["run"],
    &["submit"],
    &["submit", "slurm"],
    &["submit", "htcondor"],
    &["serve"],
    &["plan"],
    &["env"],
    &["check"],
    &["doctor"],
    &["hostlist"],
    &["hostlist", "expand"],
    &["hostlist", "fold"],
    &["hostlist", "count"],
    &["completions"],
];

#[test]
fn short_help_fits_into_80_columns() {
    for command in COMMANDS {
        let args: Vec<&str> = command.iter().copied().chain(["-h"]).collect();
        let terminal = Terminal::new(80);
        let status = rallypoint(&args).stdout(terminal.stdio()).status().unwrap();
        assert!(status.success());
        // What was written before the end is in the terminal, but perhaps not read yet.
        wait_until("the help", || terminal.text().contains("Print help") && terminal.text().ends_with('\n'));
        let piped = rallypoint(&args).env("COLUMNS", "80").output().unwrap();
        let piped = String::from_utf8(piped.stdout).unwrap();
        wait_until("all of the help", || terminal.text().lines().count() == piped.lines().count());
        for line in terminal.text().lines().chain(piped.lines()) {
            assert!(line.chars().count() <= 80, "{args:?}: {line:?}");
        }
    }
}

/// One member of forty that never come: the bar is drawn again and again.
struct Waiting {
    child: std::process::Child,
    _folder: Scratch,
}

impl Waiting {
    fn start(terminal: &Terminal, name: &str) -> Waiting {
        let folder = Scratch::new(name);
        let meet = folder.path("meet");
        let args = ["run", "--workers", "40", "--meet", &meet, "--meet-timeout", "90s", "--", "true"];
        let child = rallypoint(&args).stdout(Stdio::null()).stderr(terminal.stdio()).spawn().unwrap();
        Waiting { child, _folder: folder }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        kill(self.child.id(), "TERM");
        self.child.wait().unwrap();
    }
}

#[test]
fn the_waiting_bar_stays_on_one_line() {
    let all = [60, 80, 100, 200].map(|columns| {
        let terminal = Terminal::new(columns);
        let waiting = Waiting::start(&terminal, &format!("bar-{columns}"));
        (columns, terminal, waiting)
    });
    for (columns, terminal, waiting) in all {
        let bars = wait_for("two bars", || Some(terminal.bars()).filter(|bars| bars.len() >= 2));
        drop(waiting);
        for bar in bars {
            let width = bar.chars().count();
            assert!(width < columns.into(), "{width} of {columns} columns: {bar:?}");
            assert!(!bar.contains('\n'), "{bar:?}");
            // Who is missing matters more than a bar.
            let begins = if columns < 80 { "rallypoint: 1/40 " } else { "rallypoint: [" };
            assert!(bar.starts_with(begins) && bar.contains(" 1/40 "), "{bar:?}");
            // A name is there as a whole or not at all.
            let names = bar.split_once(" missing: ").map_or("", |(_, names)| names);
            let is_whole = |name: &str| name.ends_with(')') || name == "..." || name.ends_with(" more");
            assert!(names.split(", ").all(is_whole), "{bar:?}");
        }
    }
}

#[test]
fn the_waiting_bar_follows_a_resize() {
    let terminal = Terminal::new(200);
    let waiting = Waiting::start(&terminal, "resize");
    let wide = |bar: &String| bar.chars().count() >= 60;
    wait_until("a wide bar", || terminal.bars().iter().any(wide));
    terminal.resize(60);
    wait_until("a narrow bar", || terminal.bars().last().is_some_and(|bar| !wide(bar)));
    terminal.resize(200);
    wait_until("a wide bar again", || terminal.bars().last().is_some_and(wide));
    drop(waiting);
    let bars = terminal.bars();
    let turns = bars.windows(2).filter(|pair| wide(&pair[0]) != wide(&pair[1])).count();
    assert_eq!(turns, 2, "{bars:?}");
}
