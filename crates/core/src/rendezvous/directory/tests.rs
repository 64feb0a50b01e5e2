//! A meeting directory, and what may stand in it.

use super::*;
use crate::rendezvous::file_system::Found;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

fn contact(id: &str) -> Contact {
    Contact {
        version: 1,
        id: id.to_owned(),
        host: "n1".to_owned(),
        machine: "m".to_owned(),
        pid: 1,
        pid_namespace: String::new(),
        job: None,
        attempt: 0,
        addresses: Vec::new(),
        port: 1,
        key: Some("secret".to_owned()),
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rallypoint-meet-{name}-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn one_claims_and_the_others_find_it() {
    let folder = folder("claim");
    let mut first = Directory::new(&folder, Some("a/b"), 0).unwrap();
    let mut second = Directory::new(&folder, Some("a/b"), 0).unwrap();
    assert_eq!(second.look().unwrap(), None);
    assert!(first.claim(&contact("one")).unwrap());
    assert!(!second.claim(&contact("two")).unwrap());
    assert_eq!(second.look().unwrap().unwrap().id, "one");
    let mut next_attempt = Directory::new(&folder, Some("a/b"), 1).unwrap();
    assert_eq!(next_attempt.look().unwrap(), None, "an earlier attempt is never joined");
    drop(first);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_leader_that_is_gone_is_replaced_by_one_alone() {
    let folder = folder("replace");
    let mut dead = Directory::new(&folder, None, 0).unwrap();
    assert!(dead.claim(&contact("dead")).unwrap());
    std::mem::forget(dead);
    let mut a = Directory::new(&folder, None, 0).unwrap();
    let mut b = Directory::new(&folder, None, 0).unwrap();
    let seen = b.look().unwrap().unwrap();
    assert!(a.replace(&seen, &contact("a")).unwrap());
    assert!(!b.replace(&seen, &contact("b")).unwrap(), "what b saw is not there any more");
    assert_eq!(b.look().unwrap().unwrap().id, "a");
    drop((a, b));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Files of a server with a clock of its own, whose operations can be made to fail.
#[derive(Debug, Default)]
struct Server {
    files: BTreeMap<String, (String, Duration)>,
    now: Duration,
    /// Operations until one fails as on a full disk.
    fails_after: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct Remote(Arc<Mutex<Server>>);

impl Remote {
    fn server(&self) -> io::Result<MutexGuard<'_, Server>> {
        let mut server = self.0.lock().unwrap();
        match &mut server.fails_after {
            Some(0) => {
                server.fails_after = None;
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
            Some(left) => {
                *left -= 1;
                Ok(server)
            }
            None => Ok(server),
        }
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().files.keys().cloned().collect()
    }

    fn publish(&self, contact: &Contact) {
        let text = serde_json::to_string(contact).unwrap();
        self.0.lock().unwrap().files.insert(self.way().file.clone(), (text, Duration::ZERO));
    }

    fn way(&self) -> Directory {
        Directory::in_folder(Box::new(self.clone()), 0o700, None, 0).unwrap()
    }
}

impl FileSystem for Remote {
    fn name(&self) -> String {
        "a server".to_owned()
    }
    fn path(&self) -> &Path {
        Path::new("/server")
    }
    fn own_uid(&self) -> u32 {
        7
    }
    fn read(&mut self, file: &str) -> io::Result<Found> {
        let server = self.server()?;
        let (text, _) = server.files.get(file).ok_or(io::ErrorKind::NotFound)?;
        Ok(Found { is_file: true, uid: 7, mode: 0o600, text: text.clone() })
    }
    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        let mut server = self.server()?;
        let entry = (String::from_utf8_lossy(content).into_owned(), server.now);
        match server.files.contains_key(file) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => {
                server.files.insert(file.to_owned(), entry);
                Ok(())
            }
        }
    }
    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut server = self.server()?;
        let entry = server.files.get(from).ok_or(io::ErrorKind::NotFound)?.clone();
        match server.files.contains_key(to) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => {
                server.files.insert(to.to_owned(), entry);
                Ok(())
            }
        }
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut server = self.server()?;
        let entry = server.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        server.files.insert(to.to_owned(), entry);
        Ok(())
    }
    fn remove(&mut self, file: &str) -> io::Result<()> {
        let mut server = self.0.lock().unwrap();
        server.files.remove(file).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
    fn age(&mut self, file: &str) -> io::Result<Duration> {
        let server = self.server()?;
        server.files.get(file).map(|(_, then)| server.now - *then).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// A contender that was suspended in the middle must not publish itself over the one that has led since.
#[test]
fn a_slow_contender_does_not_become_a_second_leader() {
    let remote = Remote::default();
    let gone = contact("gone");
    remote.publish(&gone);
    let (mut slow, mut quick) = (remote.way(), remote.way());
    let takeover = slow.take_over(&gone, &contact("slow")).unwrap().unwrap();
    assert!(!quick.replace(&gone, &contact("quick")).unwrap(), "another is at it");
    remote.0.lock().unwrap().now += TAKEOVER_LIMIT + Duration::from_secs(1);
    assert!(!quick.replace(&gone, &contact("quick")).unwrap(), "left behind: removed");
    assert!(quick.replace(&gone, &contact("quick")).unwrap());
    slow.rename_takeover(&gone, &contact("slow"), &takeover).unwrap();
    assert_eq!(slow.look().unwrap().unwrap().id, "quick");
    assert!(!slow.replace(&gone, &contact("slow")).unwrap());
    drop(slow);
    assert_eq!(quick.look().unwrap().unwrap().id, "quick");
    drop(quick);
    assert!(remote.names().is_empty(), "{:?} is left", remote.names());
}

/// A guard that cleans up after its dead agent meets a survivor that replaces it.
#[test]
fn what_a_successor_is_about_to_publish_is_not_removed() {
    let remote = Remote::default();
    let gone = contact("gone");
    remote.publish(&gone);
    let (mut guard, mut survivor) = (remote.way(), remote.way());
    let takeover = survivor.take_over(&gone, &contact("survivor")).unwrap().unwrap();
    guard.retract_for(&gone);
    survivor.rename_takeover(&gone, &contact("survivor"), &takeover).unwrap();
    assert_eq!(guard.look().unwrap().unwrap().id, "survivor");
    survivor.retract_for(&contact("survivor"));
    assert!(remote.names().is_empty(), "{:?} is left", remote.names());
}

/// Whichever step fails, only what was published before is left.
#[test]
fn a_full_directory_keeps_no_temporary_files() {
    let gone = contact("gone");
    for step in 0..12 {
        let remote = Remote::default();
        let mut way = remote.way();
        remote.0.lock().unwrap().fails_after = Some(step);
        if let Err(error) = way.claim(&gone) {
            assert!(error.to_string().contains("No space left on device"), "{error}");
            assert!(remote.names().is_empty(), "claim, step {step}: {:?}", remote.names());
        }
        let remote = Remote::default();
        let mut way = remote.way();
        remote.publish(&gone);
        remote.0.lock().unwrap().fails_after = Some(step);
        let won = way.replace(&gone, &contact("next"));
        let left = remote.names();
        let takeover = left.iter().filter(|name| name.contains("takeover")).count();
        assert!(left.contains(&way.file) && left.len() == 1 + takeover, "step {step}: {left:?}, {won:?}");
        // The one read that tells whose takeover file it is may fail as well: it is removed by its age then.
        assert!(takeover == 0 || won.is_ok(), "step {step}: {left:?}, {won:?}");
    }
}

#[test]
fn files_that_others_could_read_or_swap_are_refused() {
    let folder = folder("refuse");
    let mut mine = Directory::new(&folder, None, 0).unwrap();
    mine.claim(&contact("x")).unwrap();
    let path = folder.join(&mine.file);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(mine.look().unwrap_err().to_string().contains("others may read it (mode 644)"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, "nonsense").unwrap();
    assert!(mine.look().unwrap_err().to_string().contains("not a meeting file"));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Directory::new(&folder, None, 0).unwrap_err().to_string().contains("anybody may replace"));
    std::fs::remove_dir_all(&folder).unwrap();
}
