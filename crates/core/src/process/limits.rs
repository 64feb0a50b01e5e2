//! How many descriptors this agent may have open: members cost some each, and a soft limit of 1,024 is common.

use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::trace::OrLog;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// What an agent needs beside its members: event loop, signals, terminal, files, the lists of processes.
const AGENT: u64 = 40;
/// A port, two streams, two log files, and what starting takes for a moment.
const MEMBER: u64 = 6;

/// What cannot be run here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{members} member(s) need {needed} open files and connections, and {allowed} are allowed here")]
pub struct TooFewDescriptors {
    /// How many members this agent was to run.
    pub members: usize,
    /// The hard limit of open files.
    pub allowed: u64,
    /// How many would be open.
    pub needed: u64,
}

impl Hinted for TooFewDescriptors {
    fn hint(&self) -> Option<Hint> {
        let needed = self.needed;
        Some(hint!(format!(
            "raise the limit with `ulimit -n {needed}`, or run fewer members on this machine"
        )))
    }
}

/// The limit as it was, for the members: a program that uses `select` must not see a higher one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DescriptorLimit {
    given: Rlimit,
}

impl DescriptorLimit {
    /// Raises the limit as far as the system allows, and sees whether that will do.
    ///
    /// `members` run here, and `connections` are agents elsewhere that this one leads.
    pub(crate) fn raise_for(
        members: usize,
        connections: usize,
    ) -> Result<DescriptorLimit, TooFewDescriptors> {
        let given = getrlimit(Resource::Nofile);
        let maximum = given.maximum;
        // What cannot be raised is judged by what there is.
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
            .or_log("the limit of open files stays");
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        suffices(allowed, members, connections)?;
        Ok(DescriptorLimit { given })
    }

    /// The limit as it was. Makes a system call only, for use between fork and exec.
    pub(crate) fn restore(self) {
        _ = setrlimit(Resource::Nofile, self.given);
    }
}

/// Whether an agent could run at all here. To be asked before anything is made that would have to be removed again.
pub(crate) fn check_descriptors() -> Result<(), TooFewDescriptors> {
    suffices(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), 1, 0)
}

fn suffices(allowed: u64, members: usize, connections: usize) -> Result<(), TooFewDescriptors> {
    let needed = AGENT + MEMBER * members as u64 + connections as u64;
    match allowed < needed {
        true => Err(TooFewDescriptors { members, allowed, needed }),
        false => Ok(()),
    }
}
