//! Meeting through PMI: a key-value space that Slurm itself carries and authenticates.
//!
//! `srun --mpi=pmi2` gives every task a descriptor on which the simple text protocol answers:
//!
//! ```text
//! cmd=init pmi_version=1 pmi_subversion=1   ->  cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1
//! cmd=get_maxes                             ->  cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024
//! cmd=get_my_kvsname                        ->  cmd=my_kvsname rc=0 kvsname=6.0
//! cmd=put kvsname=6.0 key=k value=v         ->  cmd=put_result rc=0
//! cmd=barrier_in                            ->  cmd=barrier_out rc=0
//! cmd=get kvsname=6.0 key=k                 ->  cmd=get_result rc=0 value=v
//! ```
//!
//! Rank 0 leads. What it puts is seen by the others after the fence (`barrier_in`, answered when every
//! task has asked). The fence is never waited for in a blocking call: [`KnownLeader::look`] sees whether
//! the answer has come, so signals, progress and the time limit go on.

use crate::hint;
use crate::hint::Setting;
use crate::process;
use crate::rendezvous::{Contact, KnownLeader, RendezvousError};
use crate::variables as var;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The local daemon answers at once; only a fence takes longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Longer than any line of the protocol.
const MAX_LINE: usize = 8192;
/// A contact has a few hundred bytes; more parts than this are not ours.
const MAX_PARTS: usize = 64;
/// What a member's program must not inherit: the descriptor is ours, and its conversation is used up.
const VARIABLES: [&str; 4] = [var::PMI_FD, var::PMI_RANK, var::PMI_SIZE, var::PMI_JOBID];

#[derive(Debug)]
pub(super) struct Pmi {
    stream: UnixStream,
    received: Vec<u8>,
    rank: u32,
    size: u32,
    space: String,
    longest_value: usize,
    fence: Fence,
}

#[derive(Debug, Clone, PartialEq)]
enum Fence {
    Before,
    Entered,
    Through,
}

impl Pmi {
    /// Takes over the descriptor that `PMI_FD` names.
    pub(super) fn new(descriptor: i32, rank: u32, size: u32) -> Result<Pmi, RendezvousError> {
        let owned = process::take_inherited_socket(descriptor)
            .map_err(|error| bad(format!("PMI_FD={descriptor} cannot be used: {error}")))?;
        Pmi::over(UnixStream::from(owned), rank, size)
    }

    pub(super) fn over(stream: UnixStream, rank: u32, size: u32) -> Result<Pmi, RendezvousError> {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut pmi = Pmi {
            stream,
            received: Vec::new(),
            rank,
            size,
            space: String::new(),
            longest_value: 0,
            fence: Fence::Before,
        };
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = pmi.ask("cmd=get_maxes", "maxes")?;
        let longest = field(&maxes, "vallen_max").and_then(|value| value.parse::<usize>().ok());
        // One byte is the end of a C string.
        pmi.longest_value = longest
            .map(|longest| longest.min(4096).saturating_sub(1))
            .filter(|&longest| longest >= 64)
            .ok_or_else(|| bad(format!("{maxes:?} does not tell how long a value may be")))?;
        let name = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?;
        pmi.space = field(&name, "kvsname")
            .ok_or_else(|| bad(format!("{name:?} does not name the key-value space")))?
            .to_owned();
        Ok(pmi)
    }

    /// Asks and waits for the answer.
    fn ask(&mut self, question: &str, answer: &str) -> Result<String, RendezvousError> {
        self.say(question)?;
        loop {
            if let Some(line) = self.line()? {
                return expect(line, answer);
            }
            self.receive()?;
        }
    }

    fn say(&mut self, line: &str) -> Result<(), RendezvousError> {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|error| bad(format!("Slurm's daemon does not listen: {error}")))
    }

    /// Takes one complete line out of what has been received.
    fn line(&mut self) -> Result<Option<String>, RendezvousError> {
        let Some(end) = self.received.iter().position(|&byte| byte == b'\n') else {
            return match self.received.len() > MAX_LINE {
                true => Err(bad(format!("more than {MAX_LINE} bytes came without an end of line"))),
                false => Ok(None),
            };
        };
        let line: Vec<u8> = self.received.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()))
    }

    /// Reads what there is, waiting for it as long as the socket is set to.
    fn receive(&mut self) -> Result<(), RendezvousError> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(bad("Slurm's daemon has closed the line".to_owned())),
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(bad(format!("Slurm's daemon has not answered for {} s", ANSWER_LIMIT.as_secs())))
            }
            Err(error) => Err(bad(format!("Slurm's daemon cannot be heard: {error}"))),
        }
    }

    fn enter_fence(&mut self) -> Result<(), RendezvousError> {
        self.fence = Fence::Entered;
        self.say("cmd=barrier_in")
    }

    /// True if every task has come to the fence. Never waits.
    fn is_through(&mut self) -> Result<bool, RendezvousError> {
        if self.fence == Fence::Through {
            return Ok(true);
        }
        if !process::is_readable(&self.stream)? {
            return Ok(false);
        }
        self.receive()?;
        if let Some(line) = self.line()? {
            expect(line, "barrier_out")?;
            self.fence = Fence::Through;
        }
        Ok(self.fence == Fence::Through)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), RendezvousError> {
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        self.ask(&line, "put_result").map(drop)
    }

    fn get(&mut self, key: &str) -> Result<String, RendezvousError> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask(&line, "get_result")?;
        let value = answer.split_once("value=").map(|(_, value)| value.trim().to_owned());
        value.ok_or_else(|| bad(format!("{answer:?} has no value for {key}")))
    }

    fn put_contact(&mut self, contact: &Contact) -> Result<(), RendezvousError> {
        let text = serde_json::to_string(contact).map_err(std::io::Error::from)?;
        let parts = split(&encode(&text), self.longest_value);
        if parts.len() > MAX_PARTS {
            return Err(bad(format!("a contact of {} bytes is too long for PMI", text.len())));
        }
        self.put("rallypoint", &parts.len().to_string())?;
        for (number, part) in parts.iter().enumerate() {
            self.put(&format!("rallypoint-{number}"), part)?;
        }
        Ok(())
    }

    fn published(&mut self) -> Result<Contact, RendezvousError> {
        let count = self.get("rallypoint")?;
        let count: usize = count
            .parse()
            .ok()
            .filter(|&count| count <= MAX_PARTS)
            .ok_or_else(|| bad(format!("{count:?} is not a number of parts")))?;
        let mut encoded = String::new();
        for number in 0..count {
            encoded.push_str(&self.get(&format!("rallypoint-{number}"))?);
        }
        let text = decode(&encoded).ok_or_else(|| bad("what rank 0 has put cannot be read".to_owned()))?;
        serde_json::from_str(&text)
            .map_err(|error| bad(format!("what rank 0 has put is no contact: {error}")))
    }
}

impl KnownLeader for Pmi {
    fn name(&self) -> String {
        format!("PMI of step {}", self.space)
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        if self.fence == Fence::Before {
            self.enter_fence()?;
        }
        if self.is_through()? { self.published().map(Some) } else { Ok(None) }
    }

    fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Looking is one read that does not block, and all tasks of a step come within a moment.
    fn longest_pause(&self) -> Duration {
        Duration::from_millis(15)
    }

    fn awaited(&self) -> String {
        format!(
            "all {} tasks of the step to come to PMI's fence, which does not tell who is missing",
            self.size
        )
    }

    /// Puts the contact and enters the fence, whose end the leader need not wait for: it hears from the
    /// others when they come.
    fn publish(&mut self, contact: &Contact) -> Result<(), RendezvousError> {
        self.put_contact(contact)?;
        self.enter_fence()
    }

    fn taken_variables(&self) -> &'static [&'static str] {
        &VARIABLES
    }
}

fn bad(reason: String) -> RendezvousError {
    let directory = Setting::Meet.with("DIR");
    let hint = hint!("without `srun --mpi=pmi2` members can meet in a directory, ", directory);
    RendezvousError::Way { way: "PMI", reason, hint }
}

/// The answer, if it is to this question and says `rc=0`.
fn expect(line: String, answer: &str) -> Result<String, RendezvousError> {
    match (field(&line, "cmd"), field(&line, "rc")) {
        (Some(cmd), None | Some("0")) if cmd == answer => Ok(line),
        _ => Err(bad(format!("expected cmd={answer} rc=0, found {line:?}"))),
    }
}

/// `kvsname_max` in `cmd=maxes rc=0 kvsname_max=256`
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Letters, digits and a few marks as they are, all else as `%` and two digits: the protocol splits at
/// spaces and equals signs.
pub(super) fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"{}[]\":,.-_/".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
        out
    })
}

pub(super) fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Pieces of at most `longest` bytes; the text is ASCII.
pub(super) fn split(encoded: &str, longest: usize) -> Vec<String> {
    encoded.as_bytes().chunks(longest).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader};
    use std::sync::{Arc, Barrier, Mutex};

    type Space = Arc<Mutex<HashMap<String, String>>>;

    /// What slurmstepd does, for one task.
    fn daemon(stream: UnixStream, space: Space, fence: Arc<Barrier>) {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                let key = field(&line, "key").unwrap_or_default().to_owned();
                let answer = match field(&line, "cmd").unwrap() {
                    "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned(),
                    "get_maxes" => "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=128".to_owned(),
                    "get_my_kvsname" => "cmd=my_kvsname rc=0 kvsname=6.0".to_owned(),
                    "put" => {
                        space.lock().unwrap().insert(key, field(&line, "value").unwrap().to_owned());
                        "cmd=put_result rc=0".to_owned()
                    }
                    "barrier_in" => {
                        fence.wait();
                        "cmd=barrier_out rc=0".to_owned()
                    }
                    "get" => match space.lock().unwrap().get(&key) {
                        Some(value) => format!("cmd=get_result rc=0 value={value}"),
                        None => "cmd=get_result rc=1".to_owned(),
                    },
                    other => panic!("{other}"),
                };
                (&stream).write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        });
    }

    fn tasks(count: u32) -> Vec<Pmi> {
        let (space, fence) = (Space::default(), Arc::new(Barrier::new(count as usize)));
        (0..count)
            .map(|rank| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                daemon(theirs, space.clone(), fence.clone());
                Pmi::over(ours, rank, count).unwrap()
            })
            .collect()
    }

    fn contact() -> Contact {
        Contact {
            version: 1,
            id: "ab12".to_owned(),
            host: "n01".to_owned(),
            machine: "a boot net:[4026531840] = 100%".to_owned(),
            pid: 7,
            pid_namespace: String::new(),
            job: Some("6.0".to_owned()),
            attempt: 0,
            addresses: (1..30).map(|last| [10, 0, 0, last].into()).collect(),
            port: 40000,
            key: Some("ff".repeat(32)),
        }
    }

    #[test]
    fn others_see_what_rank_0_has_put_after_the_fence() {
        let mut tasks = tasks(3);
        assert_eq!(tasks[1].look().unwrap(), None);
        assert!(!tasks[1].leads() && tasks[0].leads());
        tasks[0].publish(&contact()).unwrap();
        // The third has not come yet: nobody is through, and nobody is kept waiting either.
        assert_eq!(tasks[1].look().unwrap(), None);
        for task in [2, 1] {
            let started = std::time::Instant::now();
            let found = loop {
                assert!(started.elapsed() < Duration::from_secs(20));
                if let Some(found) = tasks[task].look().unwrap() {
                    break found;
                }
                std::thread::yield_now();
            };
            assert_eq!(found, contact());
        }
    }

    #[test]
    fn a_daemon_that_talks_nonsense_is_an_error() {
        for nonsense in ["cmd=maxes rc=0\n", "cmd=response_to_init rc=1\n", "\n", "hello\n", "\u{fffd}=\n"] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(nonsense.as_bytes()).unwrap();
            let error = Pmi::over(ours, 0, 1).unwrap_err().to_string();
            assert!(error.contains("expected cmd=response_to_init rc=0"), "{nonsense:?}: {error}");
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(Pmi::over(ours, 0, 1).is_err());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[b'x'; 2 * MAX_LINE]).unwrap();
        assert!(Pmi::over(ours, 0, 1).unwrap_err().to_string().contains("without an end of line"));
    }

    #[test]
    fn values_have_no_blank_and_come_back() {
        for text in ["", "a b=c%d\n", "{\"key\": \"\u{e4}\"}", "%41"] {
            let encoded = encode(text);
            assert!(!encoded.contains([' ', '=', '\n']), "{encoded}");
            assert_eq!(decode(&split(&encoded, 3).concat()).as_deref(), Some(text));
        }
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
