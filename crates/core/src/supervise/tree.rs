//! Whole process trees, found through `/proc`, and who in them was asked to end.

use super::sys;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// A process that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    parent: u32,
    group: u32,
}

/// All processes below this one, adopted orphans included.
pub(super) fn descendants() -> Vec<Process> {
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    for process in all_processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut next = vec![own_pid()];
    while let Some(parent) = next.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            found.push(child);
            next.push(child.pid);
        }
    }
    found
}

/// Those that this process has started or adopted.
pub(super) fn children() -> impl Iterator<Item = Process> {
    let me = own_pid();
    all_processes().filter(move |process| process.parent == me)
}

/// Ends those below this process that stand in a group whose first process is long gone. Not the group by its
/// number, which may be another's by now.
pub(super) fn kill_group(group: u32) {
    for process in descendants().into_iter().filter(|process| process.group == group) {
        sys::kill(process.pid, libc::SIGKILL, false);
    }
}

fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

fn all_processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        parse_stat(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    })
}

/// `4711 (name) S 42 4711 ...`: the name may contain anything, brackets too. Zombies have ended already.
fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => Some(Process { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? }),
    }
}

/// Who was asked to end. A program may be writing its checkpoint by then: nobody is asked twice.
#[derive(Debug, Default)]
pub(super) struct Asked {
    groups: HashSet<u32>,
    others: HashSet<u32>,
}

impl Asked {
    /// A new group, which may have the number of one that is long gone.
    pub(super) fn not_yet(&mut self, group: u32) {
        self.groups.remove(&group);
    }

    /// Asks a whole process group. Who is suspended hears it too.
    pub(super) fn group(&mut self, group: u32) {
        if self.groups.insert(group) {
            sys::kill(group, libc::SIGTERM, true);
            sys::kill(group, libc::SIGCONT, true);
        }
    }

    /// Asks a process that stands in none of those groups.
    pub(super) fn process(&mut self, process: Process) {
        if !self.groups.contains(&process.group) && self.others.insert(process.pid) {
            sys::kill(process.pid, libc::SIGTERM, false);
            sys::kill(process.pid, libc::SIGCONT, false);
        }
    }
}

/// Those who are on their way out already are not counted as left behind.
const LEAVING: Duration = Duration::from_millis(30);

/// Ends everything below this process, which must be a subreaper: SIGTERM for those who were not asked before,
/// a short while, then SIGKILL until nobody is left. Returns how many there were.
pub(super) fn end_all(patience: Duration, asked: &mut Asked) -> usize {
    // Every descendant is a child or below one, so without children there is nobody: no look through /proc.
    while sys::reap().is_some() {}
    if !sys::has_children() {
        return 0;
    }
    let mut first = descendants();
    let started = Instant::now();
    while !first.is_empty() && patience > Duration::ZERO && started.elapsed() < LEAVING {
        std::thread::sleep(Duration::from_millis(1));
        while sys::reap().is_some() {}
        first = descendants();
    }
    first.iter().for_each(|&process| asked.process(process));
    let started = Instant::now();
    loop {
        while sys::reap().is_some() {}
        let left = descendants();
        if left.is_empty() {
            return first.len();
        }
        if started.elapsed() >= patience {
            for process in left {
                sys::kill(process.pid, libc::SIGKILL, false);
            }
        }
        // A process in an uninterruptible wait cannot be ended by anybody.
        if started.elapsed() > patience + Duration::from_secs(3) {
            return first.len();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::{Process, parse_stat};

    #[test]
    fn parent_and_group_stand_behind_any_name() {
        let found = |parent, group| Some(Process { pid: 12, parent, group });
        assert_eq!(parse_stat(12, "12 (sh) S 7 12 12 0"), found(7, 12));
        assert_eq!(parse_stat(12, "12 (a) b (c) R 99 1"), found(99, 1));
        assert_eq!(parse_stat(12, "12 (gone) Z 7 1"), None);
        assert_eq!(parse_stat(12, "rubbish"), None);
    }
}
