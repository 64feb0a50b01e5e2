//! Answers of HTCondor's starter, and what it writes, for the fuzzers.

use super::chirp::{Chirp, Session};
use super::classad::ClassAd;
use super::job_ad::{from_text, to_text};
use super::submit_directory::between;
use super::user_log::UserLog;
use crate::fuzzing::text;
use std::io::{self, Read, Write};

/// A starter whose answers are known beforehand.
#[derive(Debug)]
struct Starter<'a> {
    answers: &'a [u8],
    asked: Vec<u8>,
}

impl Read for Starter<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.answers.read(buffer)
    }
}

impl Write for Starter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.asked.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever a starter answers is a value or an error: never more than was asked for, and no endless talk.
pub fn chirp(data: &[u8]) {
    let Some((request, answers)) = data.split_first() else { return };
    if let Some(chirp) = Chirp::parse(&text(answers)) {
        assert!(!format!("{chirp:?}").contains('\n'));
    }
    let mut session = Session::over(Starter { answers, asked: Vec::new() });
    match request % 6 {
        0 => {
            if let Ok((content, _)) = session.read("rallypoint 1.meet", 64) {
                assert!(content.len() <= 64, "{} bytes of 64", content.len());
            }
        }
        1 => _ = session.create("a b", &[b'x'; 64]),
        2 => {
            if let Ok(Some(value)) = session.attribute("RallypointLeader0") {
                assert!(value.len() <= 3 * answers.len());
                _ = from_text(value.trim_matches('"'));
            }
        }
        3 => _ = session.set_attribute("RallypointLeader0", &text(answers)),
        4 => {
            if let (Ok(then), Ok(now)) = (session.status("x"), session.status("y")) {
                _ = between(then, now);
            }
        }
        _ => _ = session.link(&text(answers), "x").and(session.remove("x")),
    }
    let asked = &session.into_inner().asked;
    assert!(asked.len() <= 8192 + 16 * answers.len(), "{} bytes were asked", asked.len());
}

/// What the ad says of a leader is a leader or nothing, and the same when it is written again.
pub fn leader_ad(data: &[u8]) {
    let Some(contact) = from_text(&text(data)) else { return };
    let written = to_text(&contact);
    assert!(!written.contains(['"', '\\']));
    let again = from_text(&written).expect("what was written");
    assert_eq!(to_text(&again), written);
    assert_eq!((again.version, again.pid, again.port), (contact.version, contact.pid, contact.port));
    assert!(contact.addresses.starts_with(&again.addresses) && contact.key.is_none());
}

/// An ad's attributes as they are written. Each is found by its name in any case, and a text comes back from its quotes.
pub(crate) fn class_ad(ad: &str) -> Vec<(String, String)> {
    let ad = ClassAd::parse(ad);
    let attributes: Vec<(String, String)> =
        ad.attributes().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    for (name, value) in &attributes {
        assert_eq!(ad.raw(&name.to_ascii_uppercase()), Some(value.as_str()));
        _ = ad.number(name);
        let Some(text) = ad.string(name) else { continue };
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        let again = ClassAd::parse(&format!("a = \"{quoted}\""));
        assert_eq!(again.string("a").as_deref(), Some(text.as_str()));
    }
    attributes
}

/// A user log tells the same in one piece and in several, and of no more members than it has events.
pub fn user_log(data: &[u8]) {
    let Some((how, log)) = data.split_first() else { return };
    let (members, parallel) = (u32::from(how % 4), how & 4 != 0);
    let text = text(log);
    let mut whole = UserLog::new(members, parallel);
    let changes = whole.read(&text);
    let mut pieces = UserLog::new(members, parallel);
    let mut told = Vec::new();
    let size = 1 + usize::from(how >> 3);
    for piece in text.chars().collect::<Vec<_>>().chunks(size) {
        told.extend(pieces.read(&piece.iter().collect::<String>()));
    }
    assert_eq!(told, changes);
    assert_eq!(pieces.states, whole.states);
    assert_eq!((pieces.is_over(), pieces.code()), (whole.is_over(), whole.code()));
    let events = text.matches("\n...\n").count();
    assert!(whole.states.len() <= members as usize + events);
    assert!(changes.len() <= (members as usize + events) * (events + 1));
}
