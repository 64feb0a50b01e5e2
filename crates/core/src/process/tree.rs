//! Whole process trees, found through `/proc`, and who in them was asked to end.

use super::calls;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// A process that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    parent: u32,
    group: u32,
}

/// All processes below this one, adopted orphans included.
pub(crate) fn descendants() -> Vec<Process> {
    #[cfg(feature = "simulation")]
    if let Some(found) = simulated() {
        return found;
    }
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    for process in all_processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut next = vec![calls::own_pid()];
    while let Some(parent) = next.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            found.push(child);
            next.push(child.pid);
        }
    }
    found
}

/// All processes below these, which come first.
pub(crate) fn below(programs: &[u32]) -> Vec<u32> {
    let mut found = programs.to_vec();
    let mut looked = 0;
    while let Some(&pid) = found.get(looked) {
        found.extend(children_of(pid));
        looked += 1;
    }
    found
}

/// Those that this process has started or adopted.
pub(crate) fn children() -> impl Iterator<Item = Process> {
    let me = calls::own_pid();
    all_processes().filter(move |process| process.parent == me)
}

/// Everyone below this process, where it is a simulated one.
#[cfg(feature = "simulation")]
fn simulated() -> Option<Vec<Process>> {
    let found = crate::simulated::processes::descendants()?.into_iter();
    Some(found.map(|(pid, parent, group)| Process { pid, parent, group }).collect())
}

/// Ends those below this process that stand in a group whose first process is long gone. Not the group by its
/// number, which may be another's by now.
pub(crate) fn kill_group(group: u32) {
    for process in descendants().into_iter().filter(|process| process.group == group) {
        calls::kill(process.pid, libc::SIGKILL, false);
    }
}

/// How many threads this process has.
pub(crate) fn thread_count() -> std::io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

fn all_processes() -> Box<dyn Iterator<Item = Process>> {
    #[cfg(feature = "simulation")]
    if let Some(found) = simulated() {
        return Box::new(found.into_iter());
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    Box::new(entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        parse_stat(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }))
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
pub(crate) struct Asked {
    groups: HashSet<u32>,
    others: HashSet<u32>,
}

impl Asked {
    /// A new group, which may have the number of one that is long gone.
    pub(crate) fn not_yet(&mut self, group: u32) {
        self.groups.remove(&group);
    }

    /// Asks a whole process group. Who is suspended hears it too.
    pub(crate) fn group(&mut self, group: u32) {
        if self.groups.insert(group) {
            calls::kill(group, libc::SIGTERM, true);
            calls::kill(group, libc::SIGCONT, true);
        }
    }

    /// Asks a process that stands in none of those groups.
    pub(crate) fn process(&mut self, process: Process) {
        if !self.groups.contains(&process.group) && self.others.insert(process.pid) {
            calls::kill(process.pid, libc::SIGTERM, false);
            calls::kill(process.pid, libc::SIGCONT, false);
        }
    }
}

/// Those who are on their way out already are not counted as left behind.
const LEAVING: Duration = Duration::from_millis(30);
/// A process that is still there so long after SIGKILL waits for a device, or a debugger holds it: nobody can end it.
pub(crate) const STUCK: Duration = Duration::from_secs(3);
/// The same, where whoever is stuck was given up before: it need not be waited for a second time.
pub(crate) const STUCK_STILL: Duration = Duration::from_millis(300);
/// The longest that anybody is hunted.
const HUNT: Duration = Duration::from_secs(30);

/// Ends everything below this process, which must be a subreaper: SIGTERM for those who were not asked before,
/// a short while, then SIGKILL until nobody is left. Returns how many there were.
///
/// Whether anybody is left is asked of the kernel, by waiting for children: whoever loses its parent becomes ours. A
/// look through `/proc` alone would miss a program that forks and lets the parent exit while we look.
///
/// Those who are still there after `stuck` are given up.
pub(crate) fn end_all(patience: Duration, stuck: Duration, asked: &mut Asked) -> usize {
    #[cfg(feature = "simulation")]
    if let Some(left) = crate::simulated::processes::end_all() {
        return left;
    }
    while calls::reap().is_some() {}
    if !calls::has_children() {
        return 0;
    }
    let mut first = descendants();
    let started = Instant::now();
    while !first.is_empty() && patience > Duration::ZERO && started.elapsed() < LEAVING {
        std::thread::sleep(Duration::from_millis(1));
        while calls::reap().is_some() {}
        first = descendants();
    }
    first.iter().for_each(|&process| asked.process(process));
    let started = Instant::now();
    while started.elapsed() < patience {
        while calls::reap().is_some() {}
        if !calls::has_children() {
            return first.len();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    hunt(stuck);
    first.len()
}

/// SIGKILL to everyone below this process, until there is nobody but those who are `stuck`.
fn hunt(stuck: Duration) {
    let started = Instant::now();
    let mut before = HashSet::new();
    let mut changed = Instant::now();
    loop {
        // Those below a child that is killed become our children, and have their turn the next time.
        let mut left: HashSet<u32> = children_of(calls::own_pid()).into_iter().collect();
        left.iter().for_each(|&pid| _ = calls::kill(pid, libc::SIGKILL, false));
        while calls::reap().is_some() {}
        if !calls::has_children() {
            return;
        }
        if left == before {
            // Nobody new: whoever was killed needs a moment to go. Those far below are ended meanwhile.
            for process in descendants() {
                calls::kill(process.pid, libc::SIGKILL, false);
            }
            std::thread::sleep(Duration::from_millis(1));
        } else {
            changed = Instant::now();
            before = std::mem::take(&mut left);
        }
        if changed.elapsed() > stuck || started.elapsed() > HUNT {
            return;
        }
    }
}

/// The pids of a process's children, from the kernel's own list: no look at anybody else's.
fn children_of(pid: u32) -> Vec<u32> {
    // Children belong to the thread that made them; those that were adopted to the first.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists: Vec<String> =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()).collect();
    if lists.is_empty() {
        // A kernel without such lists.
        return all_processes().filter(|process| process.parent == pid).map(|process| process.pid).collect();
    }
    lists.join(" ").split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// How often, and for how long, those are looked for that fork while all are suspended.
const QUIET_LOOKS: u32 = 3;
const SUSPENDING: Duration = Duration::from_millis(500);

/// Stops everyone below this process, by SIGSTOP. A program that forks and lets the parent exit is missed by a look
/// through `/proc`, which takes time. But whoever loses its parent becomes our child, and that list is short: so it is
/// looked there until nobody new is found, and then everywhere, some times in a row.
pub(crate) fn suspend_all() {
    #[cfg(feature = "simulation")]
    if let Some(found) = simulated() {
        return found.iter().for_each(|process| _ = calls::kill(process.pid, libc::SIGSTOP, false));
    }
    let started = Instant::now();
    let mut seen = HashSet::new();
    let mut quiet = 0;
    let mut is_new = |pid: u32| seen.insert(pid) && calls::kill(pid, libc::SIGSTOP, false);
    while quiet < QUIET_LOOKS && started.elapsed() < SUSPENDING {
        // All of them are stopped, each time.
        let adopted = children_of(calls::own_pid()).into_iter().filter(|&pid| is_new(pid)).count();
        if adopted > 0 {
            quiet = 0;
            continue;
        }
        let found = descendants().iter().filter(|process| is_new(process.pid)).count();
        quiet = if found == 0 { quiet + 1 } else { 0 };
    }
}

/// Continues everyone below this process.
pub(crate) fn continue_all() {
    for process in descendants() {
        calls::kill(process.pid, libc::SIGCONT, false);
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
