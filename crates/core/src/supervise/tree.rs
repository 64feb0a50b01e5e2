//! Whole process trees, found through `/proc`.

use super::sys;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// All processes below `root`, adopted orphans included.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all_pids() {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

fn all_pids() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    parse_parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `4711 (name) S 42 ...`: the name may contain anything, brackets too. Zombies have ended already.
fn parse_parent(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

/// Those who are on their way out already are not counted as left behind.
const LEAVING: Duration = Duration::from_millis(30);

/// Ends everything below this process, which must be a subreaper: SIGTERM, a short while, then SIGKILL until
/// nobody is left. Returns how many there were.
pub(super) fn end_all(patience: Duration) -> usize {
    // Every descendant is a child or below one, so without children there is nobody: no look through /proc.
    while sys::reap().is_some() {}
    if !sys::has_children() {
        return 0;
    }
    let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let mut first = descendants(me);
    let started = Instant::now();
    while !first.is_empty() && patience > Duration::ZERO && started.elapsed() < LEAVING {
        std::thread::sleep(Duration::from_millis(1));
        while sys::reap().is_some() {}
        first = descendants(me);
    }
    for &pid in &first {
        sys::kill(pid, libc::SIGTERM, false);
        sys::kill(pid, libc::SIGCONT, false);
    }
    let started = Instant::now();
    loop {
        while sys::reap().is_some() {}
        let left = descendants(me);
        if left.is_empty() {
            return first.len();
        }
        if started.elapsed() >= patience {
            for pid in left {
                sys::kill(pid, libc::SIGKILL, false);
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
    use super::parse_parent;

    #[test]
    fn the_parent_stands_behind_any_name() {
        assert_eq!(parse_parent("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parse_parent("12 (a) b (c) R 99 1"), Some(99));
        assert_eq!(parse_parent("12 (gone) Z 7 1"), None);
        assert_eq!(parse_parent("rubbish"), None);
    }
}
