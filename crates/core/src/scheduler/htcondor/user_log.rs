//! HTCondor's user log: what has happened to each proc or node of a cluster.
//!
//! Events stand one after the other, each ended by a line of three dots:
//!
//! ```text
//! 001 (012.002.000) 2026-11-15 22:46:24 Job executing on host: <10.98.0.13:9618?addrs=...&alias=ex3.lab&...>
//!     SlotName: slot1_2@ex3.lab
//! ...
//! 005 (012.002.000) 2026-11-15 22:46:33 Job terminated.
//!     (1) Normal termination (return value 0)
//! ...
//! ```
//!
//! In the parallel universe 014 and 015 tell of a node, whose number is the third one.

use std::collections::BTreeMap;

/// Where a member of the job is, as HTCondor sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// On this host.
    Running(String),
    /// Why.
    Held(String),
    /// Its host does not answer.
    Disconnected,
    /// The exit code; 128 and more for a signal.
    Ended(u8),
    Removed,
}

/// The members of a cluster, by what the log has told so far.
#[derive(Debug, Clone)]
pub(super) struct UserLog {
    /// Number of the proc, or of the node.
    pub(super) states: BTreeMap<u32, State>,
    /// The job's own end, in the parallel universe.
    job: Option<State>,
    parallel: bool,
    /// What is not a whole event yet.
    rest: String,
}

/// Something that happened to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) member: u32,
    pub(super) state: State,
    /// It was running, and HTCondor took it away.
    pub(super) evicted: bool,
}

impl UserLog {
    pub(super) fn new(members: u32, parallel: bool) -> UserLog {
        UserLog {
            states: (0..members).map(|n| (n, State::Idle)).collect(),
            job: None,
            parallel,
            rest: String::new(),
        }
    }

    /// Takes what was written to the log since the last time.
    pub(super) fn read(&mut self, text: &str) -> Vec<Change> {
        self.rest.push_str(text);
        let mut changes = Vec::new();
        let rest = std::mem::take(&mut self.rest);
        let mut from = 0;
        while let Some(end) = rest[from..].find("\n...\n") {
            let event = &rest[from..from + end + 5];
            changes.extend(self.take(event.trim_start_matches('\n')));
            from += event.len();
        }
        self.rest = rest[from..].to_owned();
        changes
    }

    /// True if nothing more will happen.
    pub(super) fn is_over(&self) -> bool {
        let over = |state: &State| matches!(state, State::Ended(_) | State::Removed);
        match self.parallel {
            true => self.job.as_ref().is_some_and(over),
            false => self.states.values().all(over),
        }
    }

    /// 0 if all ended so; the first other code otherwise, and 1 for what was removed.
    pub(super) fn code(&self) -> u8 {
        let code = |state: &State| match state {
            State::Ended(code) => *code,
            _ => 1,
        };
        match (self.parallel, &self.job) {
            (true, Some(job)) => code(job),
            (true, None) => 1,
            (false, _) => self.states.values().map(code).find(|&code| code != 0).unwrap_or(0),
        }
    }

    fn take(&mut self, event: &str) -> Vec<Change> {
        let Some((number, proc, node)) = header(event) else { return Vec::new() };
        let state = match number {
            1 | 14 => State::Running(host(event)),
            // Evicted, or the shadow failed: it will be started again.
            4 | 7 | 24 => State::Idle,
            5 | 15 => State::Ended(exit_code(event)),
            9 => State::Removed,
            12 => State::Held(second_line(event)),
            13 => State::Idle,
            22 => State::Disconnected,
            23 => State::Running(host(event)),
            _ => return Vec::new(),
        };
        match (self.parallel, number) {
            (false, 14 | 15) => Vec::new(),
            (false, _) => self.change(proc, state, number),
            (true, 14 | 15) => self.change(node, state, number),
            (true, 1 | 22 | 23) => Vec::new(),
            // The job itself: what happens to it happens to all nodes.
            (true, _) => {
                if matches!(state, State::Ended(_) | State::Removed) {
                    self.job = Some(state.clone());
                }
                let nodes: Vec<u32> = self.states.keys().copied().collect();
                let goes = |old: &State| !matches!(old, State::Ended(_)) || state == State::Idle;
                let nodes = nodes
                    .into_iter()
                    .filter(|node| self.states.get(node).is_some_and(goes))
                    .collect::<Vec<_>>();
                nodes.into_iter().flat_map(|node| self.change(node, state.clone(), number)).collect()
            }
        }
    }

    fn change(&mut self, member: u32, state: State, number: u32) -> Vec<Change> {
        let old = self.states.insert(member, state.clone());
        if old.as_ref() == Some(&state) {
            return Vec::new();
        }
        vec![Change { member, state, evicted: matches!(number, 4 | 7 | 24) }]
    }
}

/// `001 (012.002.000) ...`: event, proc, node.
fn header(event: &str) -> Option<(u32, u32, u32)> {
    let (number, rest) = event.split_once(" (")?;
    let (id, _) = rest.split_once(')')?;
    let mut parts = id.split('.').map(|part| part.parse::<u32>().ok());
    let (_cluster, proc, node) = (parts.next()??, parts.next()??, parts.next()??);
    Some((number.parse().ok()?, proc, node))
}

fn host(event: &str) -> String {
    let slot = event.lines().find_map(|line| line.trim().strip_prefix("SlotName:"));
    let named = slot.and_then(|slot| Some(slot.trim().rsplit_once('@')?.1.to_owned()));
    let alias = || Some(event.split_once("alias=")?.1.split(['&', '>']).next()?.to_owned());
    named.or_else(alias).unwrap_or_else(|| "a host".to_owned())
}

fn second_line(event: &str) -> String {
    event.lines().nth(1).unwrap_or_default().trim().to_owned()
}

/// `(1) Normal termination (return value 3)` or `(0) Abnormal termination (signal 9)`
fn exit_code(event: &str) -> u8 {
    let number = |before: &str| {
        let rest = event.split_once(before)?.1;
        rest.split(')').next()?.trim().parse::<u32>().ok()
    };
    match (number("(return value "), number("(signal ")) {
        (Some(code), _) => code.min(255) as u8,
        (None, Some(signal)) => 128 + signal.min(127) as u8,
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(member: u32, state: State) -> Change {
        Change { member, state, evicted: false }
    }

    #[test]
    fn procs_come_and_go() {
        let mut log = UserLog::new(2, false);
        let executing = "001 (012.001.000) 2026-11-15 22:46:24 Job executing on host: <10.0.0.3:9618?alias=ex3.lab&noUDP>\n\tSlotName: slot1_2@ex3.lab\n...\n";
        assert_eq!(log.read("000 (012.000.000) 2026-11-15 22:46:21 Job submitted from host: <x>\n...\n"), []);
        assert_eq!(log.read(&executing[..50]), [], "half an event");
        assert_eq!(log.read(&executing[50..]), [change(1, State::Running("ex3.lab".to_owned()))]);
        let evicted =
            log.read("004 (012.001.000) 2026-11-15 22:47:00 Job was evicted.\n\t(0) CPU times\n...\n");
        assert_eq!(evicted, [Change { evicted: true, ..change(1, State::Idle) }]);
        let held = log.read("012 (012.000.000) 2026-11-15 22:48:00 Job was held.\n\tvia condor_hold (by user me)\n\tCode 1 Subcode 0\n...\n");
        assert_eq!(held, [change(0, State::Held("via condor_hold (by user me)".to_owned()))]);
        log.read("005 (012.001.000) 2026-11-15 22:49:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n");
        assert!(!log.is_over());
        log.read("005 (012.000.000) 2026-11-15 22:49:00 Job terminated.\n\t(0) Abnormal termination (signal 9)\n\t(0) No core file\n...\n");
        assert!(log.is_over());
        assert_eq!(log.code(), 137);
    }

    #[test]
    fn nodes_have_their_own_events_and_the_job_its_end() {
        let mut log = UserLog::new(2, true);
        let landed = log.read("014 (002.000.001) 2026-11-15 22:29:27 Node 1 executing on host: <10.0.0.2?alias=ex2.lab&x>\n...\n001 (002.000.000) 2026-11-15 22:29:27 Job executing on host: MPI_job\n...\n");
        assert_eq!(landed, [change(1, State::Running("ex2.lab".to_owned()))]);
        log.read("015 (002.000.001) 2026-11-15 22:29:29 Node 1 terminated.\n\t(1) Normal termination (return value 3)\n...\n");
        assert!(!log.is_over());
        log.read("005 (002.000.000) 2026-11-15 22:29:29 Job terminated.\n\t(1) Normal termination (return value 4)\n...\n");
        assert!(log.is_over());
        assert_eq!((log.code(), &log.states[&1]), (4, &State::Ended(3)));
    }

    /// Taking each event from the front moved all the others, which took a minute here.
    #[test]
    fn a_long_log_is_read_in_one_go() {
        let event = "001 (012.000.000) 2026-11-15 22:46:24 Job executing on host: <x?alias=ex3.lab&y>\n...\n";
        let mut log = UserLog::new(1, false);
        let started = std::time::Instant::now();
        assert_eq!(log.read(&event.repeat(200_000)).len(), 1);
        assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
    }

    #[test]
    fn rubbish_is_passed_over() {
        let mut log = UserLog::new(1, false);
        assert_eq!(log.read("x\n...\n001 (a.b.c) y\n...\n005\n...\n\n...\n999 (1.0.0) z\n...\n"), []);
        assert!(!log.is_over());
        assert_eq!(log.read("009 (1.0.0) Job was aborted.\n...\n"), [change(0, State::Removed)]);
        assert_eq!((log.is_over(), log.code()), (true, 1));
    }
}
