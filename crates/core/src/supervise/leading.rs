//! The conductor as the leader: what other agents say, and what they are told.

use super::conductor::Conductor;
use super::others::refuse;
use crate::clock;
use crate::event::RunEvent;
use crate::job::Event;
use crate::lane::Loss;
use crate::outcome::{End, Ended};
use crate::rehearsal::Planned;
use crate::rendezvous::message::{Offer, ToLeader, ToMember};
use crate::rendezvous::{Incoming, Remote};
use crate::signal;
use std::time::Duration;

impl Conductor<'_> {
    pub(super) fn say(&self, rank: u32, message: ToMember) {
        if let Some(remote) = self.others.as_ref().and_then(|others| others.remotes.get(rank)) {
            remote.send(message);
        }
    }

    pub(super) fn say_all(&self, message: &ToMember) {
        for remote in self.others.iter().flat_map(|others| others.remotes.values()) {
            remote.send(message.clone());
        }
    }

    pub(super) fn incoming(&mut self, incoming: Option<Incoming>) {
        let Some(incoming) = incoming else { return };
        match incoming {
            Incoming::Offer { offer, remote } => self.latecomer(&offer, remote),
            Incoming::Strangers(event) => self.stream.emit(event),
            Incoming::Gone { connection, why } => {
                let Some(others) = &mut self.others else { return };
                others.latecomers.remove(&connection);
                if let Some(rank) = others.remotes.hang_up(connection) {
                    let on_purpose = if self.rehearsed.is_lost(rank) { ", as rehearsed" } else { "" };
                    self.apply(Event::Lost { rank, why: format!("its agent is gone{on_purpose}: {why}") });
                }
            }
            Incoming::Message { connection, message } => {
                let rank = self.others.as_ref().and_then(|others| others.remotes.rank_of(connection));
                let Some(rank) = rank else { return };
                match message {
                    ToLeader::Started { pid, served } => self.started(rank, pid, served),
                    ToLeader::Listening => self.listening(rank),
                    ToLeader::Wrote => self.silence.heard(rank, clock::now()),
                    ToLeader::Ended(ended) => self.apply(Event::Ended { rank, ended }),
                    ToLeader::OutputLost { path, bytes, why } => {
                        let host = self.host(rank);
                        self.output_lost(Loss { path: format!("{path} on {host}"), bytes, why });
                    }
                    ToLeader::Rehearsed { deed, after_ms, pid } => {
                        let after = Duration::from_millis(after_ms);
                        self.rehearsed(Planned { rank, deed, after }, pid);
                    }
                    ToLeader::Interrupted { signal } => {
                        let member = self.name(rank);
                        self.stream.emit(RunEvent::SignalElsewhere { member, signal });
                        self.apply(Event::SignalElsewhere(signal));
                    }
                    ToLeader::Failed { code, why } => {
                        let ended = Ended::without_process(End::AgentFailed { code, why });
                        self.apply(Event::Ended { rank, ended });
                    }
                    ToLeader::Alive | ToLeader::Offer(_) => {}
                }
            }
        }
    }

    /// Somebody comes when all have come already. One that the scheduler has started again means that its
    /// earlier run is over, even if we have not noticed; it belongs to the next attempt.
    fn latecomer(&mut self, offer: &Offer, remote: Remote) {
        let Some(others) = &mut self.others else { return };
        if let Some(rank) = others.leader.rank_of(offer) {
            return self.without_roster(rank, remote);
        }
        let known = offer.rank.filter(|_| others.leader.is_for_this_job(offer));
        let Some(rank) = known else { return refuse(&remote) };
        match others.runs.get_mut(rank as usize) {
            Some(runs) if offer.runs > *runs => *runs = offer.runs,
            _ => return refuse(&remote),
        }
        let host = offer.host.clone();
        let why = format!("it was started again on {host} while its job runs");
        remote.send(ToMember::Later);
        others.latecomers.insert(remote.connection, remote);
        if let Some(earlier) = others.remotes.remove(rank) {
            earlier.send(ToMember::Stop { grace_ms: self.grace.as_millis() as u64 });
        }
        let member = self.name(rank);
        self.stream.emit(RunEvent::StartedElsewhere { member, host });
        if self.own.contains(&rank) {
            self.apply(Event::SignalElsewhere(signal::TERMINATE));
        } else {
            self.apply(Event::Lost { rank, why });
        }
    }

    /// A member of this job comes back: its connection was lost before it had heard the roster, and it has started nothing.
    /// It stays on the line to hear the end.
    fn without_roster(&mut self, rank: u32, remote: Remote) {
        let Some(others) = &mut self.others else { return };
        remote.send(ToMember::Later);
        others.latecomers.insert(remote.connection, remote);
        if others.remotes.remove(rank).is_some() {
            let why = "its connection was lost before it had heard that all have come".to_owned();
            self.apply(Event::Lost { rank, why });
        }
    }

    pub(super) fn give_up_on_the_silent(&mut self) {
        let Some(others) = &mut self.others else { return };
        if others.give_up.is_none_or(|at| clock::now() < at) {
            return;
        }
        others.give_up = None;
        let silent: Vec<u32> = others.remotes.ranks().collect();
        for rank in silent {
            if self.job.members()[rank as usize].ended.is_none() {
                // It is told how it went, but its answer is not waited for: it has had its time.
                self.unheard(rank);
                let why = "its agent did not report its end in time".to_owned();
                self.apply(Event::Lost { rank, why });
            }
        }
    }

    /// Gives up on an agent that does not answer.
    fn unheard(&mut self, rank: u32) {
        if let Some(others) = &mut self.others
            && let Some(remote) = others.remotes.remove(rank)
        {
            remote.send(ToMember::Kill);
            others.silent.push(remote);
        }
    }
}
