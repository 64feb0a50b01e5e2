//! Answers of Slurm's daemon, for the fuzzers.

use super::pmi::{Pmi, decode, encode, split};
use crate::fuzzing::{said, text};
use crate::rendezvous::{Contact, KnownLeader};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Longer inputs would wait for somebody to read them.
const MOST_BYTES: usize = 32 << 10;

/// Whatever a daemon answers to one that joins or leads is a contact or an error, and what is asked stays small.
pub fn pmi(data: &[u8]) {
    let Some((rank, answers)) = data.split_first() else { return };
    let answers = &answers[..answers.len().min(MOST_BYTES)];
    let (ours, mut daemon) = UnixStream::pair().expect("a socket");
    daemon.write_all(answers).expect("room for a few bytes");
    daemon.shutdown(Shutdown::Write).expect("an open line");
    converse(ours, u32::from(rank % 2));
    let mut asked = String::new();
    daemon.read_to_string(&mut asked).expect("questions are text");
    assert!(asked.len() <= 64 << 10 && asked.lines().all(|line| line.starts_with("cmd=")), "{asked}");
    let text = text(answers);
    let encoded = encode(&text);
    assert!(!encoded.contains([' ', '=', '\n']));
    assert_eq!(decode(&split(&encoded, 64).concat()), Some(text));
}

fn converse(line: UnixStream, rank: u32) {
    let mut pmi = match Pmi::over(line, rank, 2) {
        Ok(pmi) => pmi,
        Err(error) => return said(&error),
    };
    _ = (pmi.name(), pmi.awaited());
    if pmi.leads() {
        if let Err(error) = pmi.publish(&contact()) {
            said(&error);
        }
        return;
    }
    for _ in 0..3 {
        match pmi.look() {
            Ok(None) => {}
            Ok(Some(contact)) => return assert!(contact.line().is_ok()),
            Err(error) => return said(&error),
        }
    }
}

fn contact() -> Contact {
    let text = r#"{"version": 1, "id": "ab12", "host": "n01", "machine": "boot net:[1] = 100%", "pid": 7, "job": "6.0",
        "attempt": 0, "addresses": ["10.0.0.1", "10.0.0.2", "fe80::1"], "port": 40000}"#;
    serde_json::from_str(text).expect("a contact")
}
