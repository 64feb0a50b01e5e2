//! Meeting through the job's ad: HTCondor's parallel universe, where all nodes share one.
//!
//! Node 0 leads, since its exit code is the job's. It publishes itself in an attribute, such as
//!
//! ```text
//! RallypointLeader0 = "1;9f0c2a61d07be3a5;ex1.lab;4711;40123;10.98.0.11,127.0.0.1;0c6e...-4f2d net:[4026532]"
//! ```
//!
//! and the others read it by chirp. The number is the attempt, since attributes survive a restart. Anyone
//! who may ask the schedd can read them, so the key is not there: it stands in a file of mode 0600 in the
//! submit directory, for the time of the run, unless all members were given one.

use super::chirp::Chirp;
use super::submit_directory::{CHIRP_PAUSE, SubmitDirectory};
use crate::hint;
use crate::hint::Setting;
use crate::rendezvous::file_system::FileSystem;
use crate::rendezvous::{Contact, KnownLeader, RendezvousError};
use crate::trace::OrLog;
use std::io;
use std::path::Path;

/// A request has some thousand bytes at most.
const MOST_ADDRESSES: usize = 8;

#[derive(Debug)]
pub(super) struct JobAd {
    chirp: Chirp,
    node: u32,
    job: Option<String>,
    attempt: u32,
    /// Where the key is told; `None` if all members have one already.
    keys: Option<SubmitDirectory>,
    published: bool,
}

impl JobAd {
    /// `folder` is the submit directory; it is used only if there is no key that all members know.
    pub(super) fn new(
        chirp: Chirp,
        folder: &Path,
        node: u32,
        job: Option<&str>,
        attempt: u32,
        all_have_a_key: bool,
    ) -> Result<JobAd, RendezvousError> {
        let bad = |error: io::Error| RendezvousError::Directory {
            path: folder.to_owned(),
            reason: format!("through chirp, {error}"),
            hint: Some(hint!(
                "the key needs a private place: write `+WantIOProxy = true` into the submit description, or give ",
                Setting::Meet.with("DIR"),
                " where one is shared"
            )),
        };
        let keys = match all_have_a_key {
            true => None,
            false => Some(SubmitDirectory::new(chirp.clone(), folder).map_err(bad)?.0),
        };
        Ok(JobAd { chirp, node, job: job.map(str::to_owned), attempt, keys, published: false })
    }

    fn attribute(&self) -> String {
        format!("RallypointLeader{}", self.attempt)
    }

    fn key_file(&self, attempt: u32) -> String {
        let job: String =
            self.job.iter().flat_map(|job| job.chars()).filter(|c| c.is_alphanumeric()).collect();
        format!("rallypoint-{job}-{attempt}.key")
    }

    fn put(&mut self, contact: &Contact) -> io::Result<()> {
        let current = self.key_file(self.attempt);
        let earlier = self.attempt.checked_sub(1).map(|earlier| self.key_file(earlier));
        if let (Some(folder), Some(key)) = (&mut self.keys, &contact.key) {
            // What an attempt that was killed has left.
            for leftover in earlier.into_iter().chain([current.clone()]) {
                folder.remove(&leftover).or_log("no key of an earlier attempt");
            }
            folder.create(&current, key.as_bytes())?;
        }
        let expression = format!("\"{}\"", to_text(contact));
        self.chirp.connect()?.set_attribute(&self.attribute(), &expression)
    }

    fn read_key(&mut self) -> io::Result<Option<String>> {
        let file = self.key_file(self.attempt);
        let Some(folder) = &mut self.keys else { return Ok(None) };
        let found = folder.read(&file)?;
        if !found.is_file || found.uid != folder.own_uid() || found.mode & 0o077 != 0 {
            return Err(io::Error::other(format!("{file} is not a private file of this user")));
        }
        Ok(Some(found.text))
    }
}

impl KnownLeader for JobAd {
    fn name(&self) -> String {
        "the job's ad, by chirp".to_owned()
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        let unsteady = |error: io::Error| RendezvousError::unsteady("chirp", &error);
        let attribute = self.attribute();
        let Some(text) =
            self.chirp.connect().and_then(|mut session| session.attribute(&attribute)).map_err(unsteady)?
        else {
            return Ok(None);
        };
        let Some(mut contact) = from_text(text.trim_matches('"')) else {
            return Err(RendezvousError::Unreachable {
                reason: format!("{attribute} = {text} is no leader"),
            });
        };
        contact.job.clone_from(&self.job);
        contact.attempt = self.attempt;
        contact.key = self.read_key().map_err(unsteady)?;
        Ok(Some(contact))
    }

    fn publish(&mut self, contact: &Contact) -> Result<(), RendezvousError> {
        // Also what is published half has to be taken back.
        self.published = true;
        self.put(contact).map_err(|error| RendezvousError::unsteady("chirp", &error))
    }

    fn retract(&mut self) {
        if std::mem::take(&mut self.published) {
            let (attribute, file) = (self.attribute(), self.key_file(self.attempt));
            let retracted =
                self.chirp.connect().and_then(|mut session| session.set_attribute(&attribute, "UNDEFINED"));
            retracted.or_log("the leader stays in the job's ad");
            if let Some(folder) = &mut self.keys {
                folder.remove(&file).or_log("the key file stays");
            }
        }
    }

    fn clean_up_after(&mut self, pid: u32) {
        match self.look() {
            Ok(Some(contact)) => {
                self.published = contact.is_of(pid);
                self.retract();
            }
            // Its key is told before the leader is.
            Ok(None) if self.leads() => {
                let file = self.key_file(self.attempt);
                if let Some(folder) = &mut self.keys {
                    folder.remove(&file).or_log("there is no key file, or it stays");
                }
            }
            _ => {}
        }
    }

    fn leads(&self) -> bool {
        self.node == 0
    }

    fn longest_pause(&self) -> std::time::Duration {
        CHIRP_PAUSE
    }

    fn awaited(&self) -> String {
        "node 0, which leads".to_owned()
    }
}

impl Drop for JobAd {
    fn drop(&mut self) {
        self.retract();
    }
}

/// What the ad says of a leader; no key.
pub(super) fn to_text(contact: &Contact) -> String {
    let plain = |text: &str| text.replace(['"', '\\', ';'], "_");
    let addresses: Vec<String> =
        contact.addresses.iter().take(MOST_ADDRESSES).map(ToString::to_string).collect();
    format!(
        "{};{};{};{};{};{};{}",
        contact.version,
        plain(&contact.id),
        plain(&contact.host),
        contact.pid,
        contact.port,
        addresses.join(","),
        plain(&contact.machine)
    )
}

pub(super) fn from_text(text: &str) -> Option<Contact> {
    let [version, id, host, pid, port, addresses, machine] =
        <[&str; 7]>::try_from(text.splitn(7, ';').collect::<Vec<_>>()).ok()?;
    Some(Contact {
        version: version.parse().ok()?,
        id: id.to_owned(),
        host: host.to_owned(),
        machine: machine.to_owned(),
        pid: pid.parse().ok()?,
        pid_namespace: String::new(),
        job: None,
        attempt: 0,
        addresses: addresses
            .split(',')
            .filter(|address| !address.is_empty())
            .map(|address| address.parse().ok())
            .collect::<Option<_>>()?,
        port: port.parse().ok()?,
        key: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ad_tells_everything_but_the_key() {
        let contact = Contact {
            version: 1,
            id: "9f0c".to_owned(),
            host: "ex1.lab".to_owned(),
            machine: "0c6e net:[1]".to_owned(),
            pid: 4711,
            pid_namespace: String::new(),
            job: None,
            attempt: 0,
            addresses: vec!["10.98.0.11".parse().unwrap(), "fe80::1".parse().unwrap()],
            port: 40123,
            key: Some("secret".to_owned()),
        };
        let text = to_text(&contact);
        assert_eq!(text, "1;9f0c;ex1.lab;4711;40123;10.98.0.11,fe80::1;0c6e net:[1]");
        assert_eq!(from_text(&text).unwrap(), Contact { key: None, ..contact });
        for bad in ["", "1;2;3", "x;a;b;1;2;;m", "1;a;b;1;99999;;m", "1;a;b;1;2;nohost;m"] {
            assert_eq!(from_text(bad), None, "{bad}");
        }
    }
}
