//! A folder of one run alone, and those that earlier runs could not remove themselves.
//!
//! A scheduler that kills a whole job at once leaves nobody to clean up. Each folder therefore has a file
//! that is locked as long as its run lives; the next run on the machine removes what nobody holds.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const LOCK: &str = "lock";
/// Younger folders are left alone.
const YOUNG: Duration = Duration::from_secs(60);

/// Exists as long as this value, in this process or in one that was forked from it.
pub(crate) struct PrivateFolder {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl PrivateFolder {
    /// Makes one inside `parent`, after removing those of dead runs.
    pub(crate) fn new(parent: &Path, now: SystemTime) -> io::Result<PrivateFolder> {
        let clock = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let path = parent.join(format!("rallypoint-{}-{clock:x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Under its own name only when it is locked, so that nobody finds it unlocked meanwhile.
        let unnamed = path.join("lock-to-be");
        let lock = File::create_new(&unnamed)?;
        lock.lock()?;
        std::fs::rename(&unnamed, path.join(LOCK))?;
        sweep(parent, path.metadata()?.uid(), clock);
        Ok(PrivateFolder { path, _lock: lock })
    }

    pub(crate) fn remove(self) {
        _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes this user's folders whose runs are dead. What cannot be removed is left to the next run.
fn sweep(parent: &Path, owner: u32, now: u128) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        // Those that have just begun are not even looked at: the tasks of a whole node may begin together.
        let is_old = |since: u128| now.saturating_sub(since) > YOUNG.as_nanos();
        if !began(&entry.file_name().to_string_lossy()).is_some_and(is_old) {
            continue;
        }
        let path = entry.path();
        let mine = path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == owner);
        if mine && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// The clock of `rallypoint-PID-CLOCK`.
fn began(name: &str) -> Option<u128> {
    let (pid, clock) = name.strip_prefix("rallypoint-")?.split_once('-')?;
    pid.parse::<u32>().ok()?;
    u128::from_str_radix(clock, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_go_and_those_of_the_living_stay() {
        let parent = std::env::temp_dir().join(format!("private-folders-{}", std::process::id()));
        std::fs::create_dir_all(&parent).unwrap();
        let named = |name: &str| {
            std::fs::create_dir(parent.join(name)).unwrap();
            parent.join(name)
        };
        let dead = named("rallypoint-11-ab");
        std::fs::write(dead.join(LOCK), "").unwrap();
        std::fs::write(dead.join("roster.json"), "{}").unwrap();
        let just_made = named("rallypoint-12-ab");
        let somebody_elses = named("rallypoint-notes");
        std::fs::write(somebody_elses.join(LOCK), "").unwrap();
        let began = SystemTime::now();
        let later = |seconds| began + Duration::from_secs(seconds);
        let living = PrivateFolder::new(&parent, began).unwrap();
        assert!(!dead.exists());
        let next = PrivateFolder::new(&parent, later(61)).unwrap();
        assert!(living.path.join(LOCK).exists() && just_made.exists() && somebody_elses.exists());
        // Its process has died: the lock is gone, the folder is not.
        let PrivateFolder { path: died, _lock } = living;
        drop(_lock);
        PrivateFolder::new(&parent, later(59)).unwrap().remove();
        assert!(died.exists(), "too young");
        PrivateFolder::new(&parent, later(62)).unwrap().remove();
        assert!(!died.exists() && next.path.exists());
        next.remove();
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
