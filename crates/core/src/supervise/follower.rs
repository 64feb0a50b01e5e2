//! A follower: runs its own member, tells the leader, does as it says.

use super::executor::{Executor, Finished};
use super::following::{Action, Following, Heard};
use super::launch::prepare;
use super::losses::{Hearing, Tally};
use super::patience::Patience;
use super::run::{AgentError, LogErrors, Prepared, RunSpec, Tell, settled};
use super::signals::{Signals, until};
use super::silence::Reports;
use super::standin::is_not_found;
use crate::clock;
use crate::event::RunEvent;
use crate::hint;
use crate::names::Name;
use crate::outcome::{LostOutput, Outcome, OwnCode};
use crate::plan::Member;
use crate::ports::HeldPort;
use crate::process::limits::DescriptorLimit;
use crate::rendezvous::message::Columns;
use crate::rendezvous::{Link, RendezvousError};
use crate::roster::Roster;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// A follower: runs its member, tells the leader, does as it says.
pub(super) async fn follow(
    run: Prepared,
    mut link: Link,
    columns: Columns,
    port: HeldPort,
    descriptors: DescriptorLimit,
    signals: &mut Signals,
    tell: Tell<'_>,
) -> Result<Outcome, AgentError> {
    let rank = link.rank;
    let (roster, executor, spec) = match ready(run, rank, &columns, port, descriptors, tell) {
        Ok(ready) => ready,
        Err(error) => {
            link.fail(error.code(), hint::in_full(&error)).await;
            return Err(error);
        }
    };
    let member = &roster.plan().members()[rank as usize];
    tell(RunEvent::Joined { member: Name::of(member) });
    let mut follower = Follower { following: Following::new(spec.grace), link, executor, member, tell };
    follower.perform(Action::Suspend(signals.suspended));
    follower.perform(Action::Start);
    let code = follower.run(signals).await;
    // The leader has its last word when the connection ends: it stays until this agent does.
    let Follower { following, executor, tell, link: _link, .. } = follower;
    let limit = executor.stop_limit().filter(|_| code == OwnCode::Interrupted.code());
    let (patience, deadline) = Patience::new(limit, spec.grace);
    let Finished { drained, mut heard, .. } = patience.heed(signals, executor.finish_all(&deadline)).await;
    if !drained.shown {
        tell(RunEvent::NotShown);
    }
    // Too late for the leader to hear.
    let mut lost = Tally::default();
    for loss in std::iter::from_fn(|| heard.try_recv().ok()).chain(drained.lost) {
        lost.add(loss, clock::now());
    }
    for LostOutput { path, bytes, why } in lost.all() {
        tell(RunEvent::OutputLost { path, bytes, why, again: true });
    }
    let has_failed = code == 0 && !lost.is_empty() && spec.log_errors == LogErrors::Fail;
    let code = if has_failed { OwnCode::OutputLost.code() } else { code };
    Ok(Outcome::Part { code, farewell: following.farewell })
}

/// Does what [`Following`] decides.
struct Follower<'a> {
    following: Following,
    link: Link,
    executor: Executor,
    member: &'a Member,
    tell: Tell<'a>,
}

impl Follower<'_> {
    /// Until everything has ended; the exit code.
    async fn run(&mut self, signals: &mut Signals) -> u8 {
        let mut reports = Reports::new(clock::now());
        loop {
            if let Some(code) = self.following.code() {
                return code;
            }
            let wake = self.executor.wake.clone();
            let next = self.executor.next_poll().into_iter().chain([reports.next()]).min();
            let heard = tokio::select! {
                sensed = signals.next() => Some(Heard::Sensed(sensed)),
                () = wake.notified() => None,
                message = self.link.receive(), if self.following.is_led() => Some(match message {
                    Ok(message) => Heard::Leader(message),
                    Err(error) => Heard::LeaderLost(error.to_string()),
                }),
                () = until(next) => None,
            };
            heard.into_iter().for_each(|heard| self.hear(heard));
            for happened in self.executor.poll() {
                self.hear(Heard::Member(happened));
            }
            // Only a launcher has children that are no members.
            self.executor.strays.clear();
            let last = self.executor.last_output.get(&self.member.rank).and_then(|last| last.get());
            if reports.is_due(last, clock::now()) {
                self.hear(Heard::Wrote);
            }
        }
    }

    fn hear(&mut self, heard: Heard) {
        for action in self.following.next(heard, clock::now()) {
            tracing::debug!("the follower does {action:?}");
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        let rank = self.member.rank;
        match action {
            Action::Say(event) => (self.tell)(event),
            Action::NoStandIn(why) => {
                let (member, not_found) = (Name::of(self.member), is_not_found(&why));
                (self.tell)(RunEvent::NoStandIn { member, why, not_found });
            }
            Action::SayRehearsed { fault, pid } => {
                (self.tell)(RunEvent::of_fault(Name::of(self.member), &fault, pid));
            }
            Action::Tell(message) => self.link.send(message),
            Action::Start => {
                if let Some(happened) = self.executor.start(rank) {
                    self.hear(Heard::Member(happened));
                }
            }
            Action::StandIn => self.executor.stand_in(rank),
            Action::Signal(number) => self.executor.signal(number),
            Action::Suspend(on) => self.executor.suspend(on),
            Action::HangUp => self.link.hang_up(),
            Action::Stop(grace) => self.executor.stop(grace),
            Action::Kill => self.executor.kill(),
        }
    }
}

/// Everything that its member needs to start.
fn ready(
    run: Prepared,
    rank: u32,
    columns: &Columns,
    port: HeldPort,
    descriptors: DescriptorLimit,
    tell: Tell<'_>,
) -> Result<(Roster, Executor, RunSpec), AgentError> {
    let members = columns
        .members(run.plan.world())
        .ok_or_else(|| RendezvousError::Refused { why: "its roster does not fit the world".to_owned() })?;
    let deadline =
        columns.deadline.and_then(|end| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end)));
    let (roster, environ, spec) = settled(run, Some(rank), columns.attempt, deadline, members)?;
    let held = BTreeMap::from([(rank, port)]);
    let (executor, notes) = prepare(&roster, held, descriptors, &spec, &environ, Hearing::new())?;
    notes.into_iter().for_each(|text| tell(RunEvent::Note { text }));
    Ok((roster, executor, spec))
}
