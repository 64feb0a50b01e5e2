//! A folder of one run alone, and those that earlier runs could not remove themselves.
//!
//! A scheduler that kills a whole job at once leaves nobody to clean up. Each folder therefore has a file
//! that is locked as long as its run lives; the next run on the machine removes what nobody holds.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const LOCK: &str = "lock";
/// Its name until the folder is known to take files.
const LOCK_TO_BE: &str = "lock-to-be";
/// Younger folders are left alone.
const YOUNG: Duration = Duration::from_secs(60);

/// What must fit: a roster of hundreds of members does. An empty file can be made where nothing can be written.
const ROOM: usize = 64 << 10;

/// Exists as long as this value in the process that made it. A process that was forked from that one leaves it
/// alone, unless the other one has died.
pub(super) struct PrivateFolder {
    pub(super) path: PathBuf,
    /// The process that removes it; none if that is another's business.
    owner: Option<u32>,
    _lock: File,
}

impl PrivateFolder {
    /// Makes one inside `parent`, after removing those of dead runs. What cannot be finished is not left.
    pub(super) fn new(parent: &Path, now: SystemTime) -> io::Result<PrivateFolder> {
        let clock = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let path = parent.join(format!("rallypoint-{}-{clock:x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let made = locked(&path).and_then(|lock| Ok((lock, path.metadata()?.uid())));
        let (lock, uid) = made.inspect_err(|_| _ = std::fs::remove_dir_all(&path))?;
        sweep(parent, uid, clock);
        Ok(PrivateFolder { path, owner: Some(std::process::id()), _lock: lock })
    }

    /// A process that was forked from this one has it from now on.
    pub(super) fn leave_to_child(mut self) {
        self.owner = None;
    }

    /// The same, as that process sees it.
    pub(super) fn take_over(&mut self) {
        self.owner = Some(std::process::id());
    }

    /// True in the process that made it, and in its child once that process is gone.
    fn is_mine(&self) -> bool {
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_pid().unsigned_abs());
        self.owner.is_some_and(|owner| owner == std::process::id() || parent != Some(owner))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if self.is_mine() {
            _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The lock of a new folder, which has shown that it can take files.
fn locked(folder: &Path) -> io::Result<File> {
    // Under its own name only when it is locked, so that nobody finds it unlocked meanwhile. Locked before anything is
    // written: whoever dies of that leaves a folder that can be told from one of the living.
    let unnamed = folder.join(LOCK_TO_BE);
    let mut lock = File::create_new(&unnamed)?;
    lock.lock()?;
    lock.write_all(&[0; ROOM])?;
    lock.set_len(0)?;
    std::fs::rename(&unnamed, folder.join(LOCK))?;
    Ok(lock)
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
        let lock = File::open(path.join(LOCK)).or_else(|_| File::open(path.join(LOCK_TO_BE)));
        if mine && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
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
        let died_at_once = named("rallypoint-13-ab");
        std::fs::write(died_at_once.join(LOCK_TO_BE), "").unwrap();
        let just_made = named("rallypoint-12-ab");
        let somebody_elses = named("rallypoint-notes");
        std::fs::write(somebody_elses.join(LOCK), "").unwrap();
        let began = SystemTime::now();
        let later = |seconds| began + Duration::from_secs(seconds);
        let living = PrivateFolder::new(&parent, began).unwrap();
        assert!(!dead.exists() && !died_at_once.exists());
        let next = PrivateFolder::new(&parent, later(61)).unwrap();
        assert!(living.path.join(LOCK).exists() && just_made.exists() && somebody_elses.exists());
        // Its process has died: the lock is gone, the folder is not.
        let died = living.path.clone();
        std::mem::forget(living);
        std::fs::write(died.join("lock-to-be"), "").unwrap();
        std::fs::rename(died.join("lock-to-be"), died.join(LOCK)).unwrap();
        drop(PrivateFolder::new(&parent, later(59)).unwrap());
        assert!(died.exists(), "too young");
        drop(PrivateFolder::new(&parent, later(62)).unwrap());
        assert!(!died.exists() && next.path.exists());
        drop(next);
        assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 2, "{just_made:?} and {somebody_elses:?}");
        std::fs::remove_dir_all(&parent).unwrap();
    }
    #[test]
    fn a_forked_process_leaves_the_folder_to_its_owner() {
        let parent = std::env::temp_dir().join(format!("private-owner-{}", std::process::id()));
        std::fs::create_dir_all(&parent).unwrap();
        let folder = PrivateFolder::new(&parent, SystemTime::now()).unwrap();
        let path = folder.path.clone();
        let ours = std::os::unix::process::parent_id();
        // As seen by the agent, whose parent is the guard, and by one whose guard was killed.
        let agent =
            PrivateFolder { owner: Some(ours), path: path.clone(), _lock: folder._lock.try_clone().unwrap() };
        drop(agent);
        assert!(path.exists());
        let killed = PrivateFolder {
            owner: Some(u32::MAX),
            path: path.clone(),
            _lock: folder._lock.try_clone().unwrap(),
        };
        drop(killed);
        assert!(!path.exists());
        drop(folder);
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
