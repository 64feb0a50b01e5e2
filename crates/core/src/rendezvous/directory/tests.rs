//! A meeting directory, and what may stand in it.

use super::super::file_system::own_file_name;
use super::*;
use crate::network::machine_id;
use crate::rendezvous::file_system::Found;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// Of a process of this machine; the pid is made of the id.
fn contact(id: &str) -> Contact {
    Contact {
        version: 1,
        id: id.to_owned(),
        host: "n1".to_owned(),
        machine: machine_id(),
        pid: pid(id),
        pid_namespace: String::new(),
        job: None,
        attempt: 0,
        addresses: Vec::new(),
        port: 1,
        key: Some("secret".to_owned()),
    }
}

fn pid(id: &str) -> u32 {
    id.bytes().fold(1, |pid, byte| pid * 31 % 99_991 + u32::from(byte))
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

/// One that uses the server: at one of its requests others may come between, or it dies.
#[derive(Debug, Clone, Default)]
struct Remote(Arc<Mutex<Server>>, Fate, String);

#[derive(Clone, Default)]
struct Fate(Arc<Mutex<(usize, Option<Meanwhile>)>>);

enum Meanwhile {
    /// This happens before the request.
    Held(Box<dyn FnOnce() + Send>),
    /// No request is made any more.
    Killed,
}

impl std::fmt::Debug for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fate")
    }
}

impl Fate {
    /// At the request of this number, counted from 0.
    fn at(step: usize, what: Meanwhile) -> Fate {
        Fate(Arc::new(Mutex::new((step, Some(what)))))
    }

    /// Before every request.
    fn request(&self) -> io::Result<()> {
        let mut fate = self.0.lock().unwrap();
        if fate.0 > 0 {
            fate.0 -= 1;
            return Ok(());
        }
        match fate.1.take() {
            None => Ok(()),
            Some(Meanwhile::Held(meanwhile)) => {
                drop(fate);
                meanwhile();
                Ok(())
            }
            Some(Meanwhile::Killed) => {
                fate.1 = Some(Meanwhile::Killed);
                Err(io::Error::other("killed"))
            }
        }
    }
}

impl Remote {
    fn server(&self) -> io::Result<MutexGuard<'_, Server>> {
        self.1.request()?;
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
        self.way_of(Fate::default())
    }

    fn way_of(&self, fate: Fate) -> Directory {
        self.way_with(fate, &own_file_name().unwrap())
    }

    /// That of the one that forked who goes this way.
    fn way_of_guard(&self, child: &Directory) -> Directory {
        self.way_with(Fate::default(), child.folder.own_file())
    }

    fn way_with(&self, fate: Fate, own_file: &str) -> Directory {
        let folder = Remote(self.0.clone(), fate, own_file.to_owned());
        Directory::in_folder(Box::new(folder), 0o700, None, 0).unwrap()
    }
}

impl FileSystem for Remote {
    fn name(&self) -> String {
        "a server".to_owned()
    }
    fn path(&self) -> &Path {
        Path::new("/server")
    }
    fn own_file(&self) -> &str {
        &self.2
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
    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.1.request()?;
        let mut server = self.0.lock().unwrap();
        server.files.remove(file).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
    fn age(&mut self, file: &str) -> io::Result<Duration> {
        let server = self.server()?;
        server.files.get(file).map(|(_, then)| server.now - *then).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// More requests than anybody here makes at once. A loop ends where the one that is to be held up has made its last.
const REQUESTS: usize = 20;

/// Looks, and publishes itself where nobody leads that it could join; true if it leads.
fn lead(way: &mut Directory, id: &str, living: &[&str]) -> bool {
    match way.look().unwrap() {
        Some(there) if living.contains(&there.id.as_str()) => false,
        Some(gone) => way.replace(&gone, &contact(id)).unwrap(),
        None => way.claim(&contact(id)).unwrap(),
    }
}

/// A contender that was suspended anywhere must not publish itself, or a third one, over the one that has led since.
#[test]
fn a_slow_contender_does_not_become_a_second_leader() {
    for step in 0..REQUESTS {
        let remote = Remote::default();
        let gone = contact("gone");
        remote.publish(&gone);
        let quick = Arc::new(Mutex::new((remote.way(), false)));
        let meanwhile = {
            let (quick, remote) = (quick.clone(), remote.clone());
            move || {
                remote.0.lock().unwrap().now += CLOSED_LIMIT * 2;
                let mut quick = quick.lock().unwrap();
                // The slow one listens already, and can be joined if it is found.
                quick.1 = lead(&mut quick.0, "quick", &["slow"]);
            }
        };
        let mut slow = remote.way_of(Fate::at(step, Meanwhile::Held(Box::new(meanwhile))));
        let slow_leads = slow.replace(&gone, &contact("slow")).unwrap();
        let Some(quick) = Arc::into_inner(quick) else { break };
        let (mut quick, quick_leads) = quick.into_inner().unwrap();
        let leader = if slow_leads { "slow" } else { "quick" };
        assert_ne!(slow_leads, quick_leads, "step {step}: one of them leads");
        assert_eq!(remote.way().look().unwrap().unwrap().id, leader, "step {step}");
        slow.retract();
        quick.retract();
        assert!(remote.names().is_empty(), "step {step}: {:?} is left", remote.names());
    }
}

/// A guard that cleans up after its dead agent meets a survivor that replaces it, or finds the place free.
#[test]
fn what_a_successor_has_published_is_not_removed() {
    for step in 0..REQUESTS {
        let remote = Remote::default();
        remote.publish(&contact("gone"));
        let survivor = Arc::new(Mutex::new((remote.way(), false)));
        let meanwhile = {
            let survivor = survivor.clone();
            move || {
                let mut survivor = survivor.lock().unwrap();
                survivor.1 = lead(&mut survivor.0, "survivor", &[]);
            }
        };
        let mut guard = remote.way_of(Fate::at(step, Meanwhile::Held(Box::new(meanwhile))));
        guard.clean_up_after(pid("gone"));
        let Some(survivor) = Arc::into_inner(survivor) else { break };
        let (mut survivor, leads) = survivor.into_inner().unwrap();
        if !leads {
            assert!(remote.names().is_empty(), "step {step}: {:?} is left", remote.names());
            assert!(lead(&mut survivor, "survivor", &[]), "step {step}");
        }
        assert_eq!(remote.way().look().unwrap().unwrap().id, "survivor", "step {step}");
        survivor.retract();
        assert!(remote.names().is_empty(), "step {step}: {:?} is left", remote.names());
    }
}

/// The place of the one that it wants to replace is taken back, and another meeting begins in it.
#[test]
fn who_replaces_one_that_is_taken_back_does_not_lead_beside_the_next() {
    for step in 0..REQUESTS {
        let remote = Remote::default();
        let gone = contact("gone");
        remote.publish(&gone);
        let next = Arc::new(Mutex::new((remote.way(), false)));
        let meanwhile = {
            let (next, remote) = (next.clone(), remote.clone());
            move || {
                remote.way().clean_up_after(pid("gone"));
                let mut next = next.lock().unwrap();
                next.1 = lead(&mut next.0, "next", &["slow"]);
            }
        };
        let mut slow = remote.way_of(Fate::at(step, Meanwhile::Held(Box::new(meanwhile))));
        let slow_leads = slow.replace(&gone, &contact("slow")).unwrap();
        let Some(next) = Arc::into_inner(next) else { break };
        let (mut next, next_leads) = next.into_inner().unwrap();
        assert_ne!(slow_leads, next_leads, "step {step}");
        let leader = if slow_leads { "slow" } else { "next" };
        assert_eq!(remote.way().look().unwrap().unwrap().id, leader, "step {step}");
        slow.retract();
        next.retract();
        assert!(remote.names().is_empty(), "step {step}: {:?} is left", remote.names());
    }
}

/// A contender is killed, and its guard cleans up: also behind the leader that it was about to replace.
#[test]
fn a_contender_that_is_killed_leaves_no_publication() {
    for step in 0..REQUESTS {
        let remote = Remote::default();
        let gone = contact("gone");
        remote.publish(&gone);
        let mut killed = remote.way_of(Fate::at(step, Meanwhile::Killed));
        _ = killed.replace(&gone, &contact("killed"));
        remote.way_of_guard(&killed).clean_up_after(pid("killed"));
        std::mem::forget(killed);
        remote.way().clean_up_after(pid("gone"));
        assert!(remote.names().is_empty(), "step {step}: {:?} is left", remote.names());
    }
}

/// A leader is killed while it takes back its publication: its guard goes on where it was. Without a guard the place is free
/// again after a while.
#[test]
fn a_clean_up_that_was_interrupted_is_finished() {
    for step in 0..REQUESTS {
        for guarded in [true, false] {
            let remote = Remote::default();
            let mut killed = remote.way_of(Fate::at(step + 3, Meanwhile::Killed));
            assert!(killed.claim(&contact("killed")).unwrap());
            killed.retract();
            let mut guard = remote.way_of_guard(&killed);
            drop(killed);
            if guarded {
                guard.clean_up_after(pid("killed"));
                let left = remote.names();
                let behind = left.iter().all(|name| name.contains("takeover"));
                assert!(behind, "step {step}: {left:?} is left");
            }
            let mut next = remote.way();
            if !lead(&mut next, "next", &[]) {
                assert!(!guarded, "step {step}");
                remote.0.lock().unwrap().now += CLOSED_LIMIT * 2;
                assert!(lead(&mut next, "next", &[]), "step {step}");
            }
            assert_eq!(remote.way().look().unwrap().unwrap().id, "next", "step {step}");
        }
    }
}

/// Leaders are lost one after the other: the last one is found, and takes everything back.
#[test]
fn the_last_of_many_leads_and_leaves_nothing() {
    let remote = Remote::default();
    let mut ways = Vec::new();
    for id in ["one", "two", "three", "four"] {
        let mut way = remote.way();
        assert!(lead(&mut way, id, &[]));
        assert_eq!(remote.way().look().unwrap().unwrap().id, id);
        ways.push(way);
    }
    let mut last = ways.pop().unwrap();
    ways.iter_mut().for_each(Directory::retract);
    assert_eq!(remote.way().look().unwrap().unwrap().id, "four", "an earlier one removes nothing");
    last.retract();
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
