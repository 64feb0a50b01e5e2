//! A follower: runs its own member, tells the leader, does as it says.

use super::agent::{Notice, Run, RunError, Talk, settled};
use super::executor::Happened;
use super::launch::prepare;
use super::signals::{Sensed, Signals, until};
use crate::outcome::{OwnCode, name};
use crate::ports::HeldPort;
use crate::rendezvous::message::{Columns, ToLeader, ToMember};
use crate::rendezvous::{Link, RendezvousError};
use crate::signal;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// A follower: runs its member, tells the leader, does as it says.
pub(super) async fn follow(
    run: Run,
    mut link: Link,
    columns: Columns,
    port: HeldPort,
    signals: &mut Signals,
    talk: Talk<'_>,
) -> Result<u8, RunError> {
    let rank = link.rank;
    let members = columns
        .members(run.plan.world())
        .ok_or_else(|| RendezvousError::Refused { why: "its roster does not fit the world".to_owned() })?;
    let deadline =
        columns.deadline.and_then(|end| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end)));
    let (roster, environ, spec) = settled(run, rank, columns.attempt, deadline, members)?;
    let mut executor = prepare(&roster, HashMap::from([(rank, port)]), &spec, &environ, talk)?;
    talk(Notice::Start(format!("this is {}", name(&roster.plan.members[rank as usize]))));
    let mut own = Own { ended: false, lost: None, interrupted: None, done: None };
    own.report(executor.start(rank).into_iter().collect(), &link).await;
    while own.code().is_none() {
        let wake = executor.wake.clone();
        let next = executor.next_poll();
        tokio::select! {
            sensed = signals.next() => match sensed {
                Sensed::Child => {}
                Sensed::Signal(number) => if !signal::ends_the_job(number) {
                    executor.signal(number);
                } else if own.interrupted.replace(number).is_some() {
                    executor.kill();
                } else {
                    talk(Notice::Line(format!("{} came: stopping", signal::name(number))));
                    link.send(ToLeader::Interrupted { signal: number }).await;
                    executor.stop(spec.grace);
                },
            },
            () = wake.notified() => {}
            message = link.receive(), if own.lost.is_none() && own.done.is_none() => match message {
                Ok(ToMember::Stop { grace_ms }) => executor.stop(Duration::from_millis(grace_ms)),
                Ok(ToMember::Kill) => executor.kill(),
                Ok(ToMember::Signal { number }) if !signal::ends_the_job(number) => executor.signal(number),
                Ok(ToMember::Restart) => {
                    own.ended = false;
                    own.report(executor.start(rank).into_iter().collect(), &link).await;
                }
                Ok(ToMember::Goodbye { code, summary }) => {
                    for line in summary {
                        talk(Notice::Verdict(line));
                    }
                    own.done = Some(code);
                    // Nothing more will come; whatever still runs ends now.
                    if !own.ended {
                        executor.kill();
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    talk(Notice::Failure(format!("the leader is lost ({error}): stopping")));
                    own.lost = Some(error.to_string());
                    executor.stop(spec.grace);
                }
            },
            () = until(next) => {}
        }
        own.report(executor.poll(), &link).await;
    }
    executor.finish_all().await;
    Ok(own.code().unwrap_or_default())
}

/// What a follower knows of its own end.
struct Own {
    ended: bool,
    lost: Option<String>,
    interrupted: Option<i32>,
    /// The job's exit code, from the leader.
    done: Option<u8>,
}

impl Own {
    async fn report(&mut self, happened: Vec<Happened>, link: &Link) {
        for happened in happened {
            match happened {
                Happened::Started { pid, served, .. } => link.send(ToLeader::Started { pid, served }).await,
                Happened::Listening { .. } => link.send(ToLeader::Listening).await,
                Happened::Ended { ended, .. } => {
                    self.ended = true;
                    link.send(ToLeader::Ended(ended)).await;
                }
            }
        }
    }

    /// The exit code, once everything has ended.
    fn code(&self) -> Option<u8> {
        match (self.ended, self.done, &self.lost, self.interrupted) {
            (true, Some(code), ..) => Some(code),
            (true, None, Some(_), Some(_)) => Some(OwnCode::Interrupted.code()),
            (true, None, Some(_), None) => Some(OwnCode::LeaderLost.code()),
            _ => None,
        }
    }
}
