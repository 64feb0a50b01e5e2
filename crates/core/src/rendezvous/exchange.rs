//! A meeting and no more: everyone learns everyone's endpoint, then all lines are closed.
//!
//! For programs that start themselves (the Python resolvers). `run` keeps the lines instead.

use super::{
    Gathered, Incoming, Introduction, Leader, Link, Met, Part, Progress, RendezvousError, WayToMeet, meet,
};
use crate::outcome::OwnCode;
use crate::plan::Plan;
use crate::roster::Endpoint;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// How often the caller is asked whether to go on.
const TICK: Duration = Duration::from_millis(50);
/// A member that has its roster hangs up at once; one that does not is lost.
const HANG_UP: Duration = Duration::from_secs(10);

/// What a meeting gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchanged {
    /// This process's own rank.
    pub rank: u32,
    /// Host and endpoint a rank.
    pub members: Vec<(String, Endpoint)>,
}

/// Meets the others. `say` hears who is missing; `go_on` is asked many times a second, and its error
/// ends the wait (a Ctrl-C, say).
pub fn exchange(
    way: &mut dyn WayToMeet,
    introduction: Introduction,
    plan: &Plan,
    say: &mut dyn FnMut(String),
    go_on: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Exchanged, RendezvousError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, async {
        say(format!("meeting: {}", way.name()));
        let stopped = async {
            loop {
                tokio::time::sleep(TICK).await;
                if let Err(why) = go_on() {
                    return why;
                }
            }
        };
        tokio::select! {
            exchanged = meet_all(way, introduction, plan, say) => exchanged,
            why = stopped => Err(RendezvousError::Interrupted(why)),
        }
    });
    runtime.shutdown_background();
    way.retract();
    result
}

async fn meet_all(
    way: &mut dyn WayToMeet,
    mut introduction: Introduction,
    plan: &Plan,
    say: &mut dyn FnMut(String),
) -> Result<Exchanged, RendezvousError> {
    let until = Instant::now() + introduction.timeout;
    loop {
        let mut link = match meet(way, &introduction, say).await? {
            Part::Leader(leader) => return lead(*leader, plan, say).await,
            Part::Member(link) => link,
            Part::Over { summary, .. } => {
                return Err(RendezvousError::Refused { why: summary.join("; ") });
            }
        };
        match follow(&mut link, until, plan, say).await {
            Ok(members) => return Ok(Exchanged { rank: link.rank, members }),
            // Nothing has started yet: the rest can meet again, under another leader.
            Err(RendezvousError::Wire(error)) => {
                say(format!("the leader was lost before all had come: {error}"));
                introduction.lost_leader = link.leader;
                introduction.timeout = until.saturating_duration_since(Instant::now());
            }
            Err(error) => return Err(error),
        }
    }
}

async fn follow(
    link: &mut Link,
    until: Instant,
    plan: &Plan,
    say: &mut dyn FnMut(String),
) -> Result<Vec<(String, Endpoint)>, RendezvousError> {
    let (started, world) = (Instant::now(), plan.world());
    let mut last = (0, "not told yet".to_owned());
    // The leader ends the wait and tells all; its limit may be a little later than ours.
    let limit = until.max(started) + HANG_UP;
    let roster = link.roster(|come, world, missing| {
        say(format!("{come} of {world} members have come; missing: {missing}"));
        last = (come, missing.to_owned());
    });
    let columns = match tokio::time::timeout_at(limit.into(), roster).await {
        Ok(columns) => columns?,
        Err(_) => {
            let ((come, missing), waited) = (last, started.elapsed().as_secs());
            return Err(RendezvousError::Missing { waited, come, world, missing });
        }
    };
    columns.members(world).ok_or_else(|| {
        super::wire::WireError::Nonsense("a roster that does not fit the plan".to_owned()).into()
    })
}

async fn lead(
    mut leader: Leader,
    plan: &Plan,
    say: &mut dyn FnMut(String),
) -> Result<Exchanged, RendezvousError> {
    let gathered = leader.gather(plan, |progress| {
        if let Some(line) = progress.line(plan) {
            say(line);
        }
    });
    match gathered.await {
        Ok(Gathered { rank, met: Met { members, remotes, .. } }) => {
            let mut on_the_line = remotes.len();
            let until = Instant::now() + HANG_UP;
            while on_the_line > 0 {
                match tokio::time::timeout_at(until.into(), leader.receive()).await {
                    Ok(Some(Incoming::Gone { .. })) => on_the_line -= 1,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
            Ok(Exchanged { rank, members })
        }
        Err(error) => {
            leader.dismiss(&error, OwnCode::MeetingFailed.code()).await;
            Err(error)
        }
    }
}

impl Progress {
    /// What to tell a person, if anything.
    pub fn line(&self, plan: &Plan) -> Option<String> {
        Some(match self {
            Progress::Came { .. } => return None,
            Progress::Waiting { come, world, missing, waited, limit } => format!(
                "{come} of {world} members have come ({} s of {} s); missing: {missing}",
                waited.as_secs(),
                limit.as_secs()
            ),
            Progress::Lost { rank, why } => format!(
                "{} was lost while waiting: {why}",
                crate::outcome::name(&plan.members[*rank as usize])
            ),
            Progress::Refused { peer, why } => format!("the member at {peer} was refused: {why}"),
            Progress::Stranger { peer, why } => format!("a stranger at {peer} was turned away: {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Scheduler;
    use crate::environ::Environ;
    use crate::plan::JobSpec;
    use crate::rendezvous::{Meeting, directory::Directory};
    use crate::roles::{PsPlace, RoleRequest, Workers};
    use crate::roster::Addressing;
    use std::path::{Path, PathBuf};

    fn plan(workers: u32) -> Plan {
        let roles = RoleRequest::Counts {
            chief: false,
            evaluator: false,
            ps: 1,
            workers: Workers::Count(workers),
            place: PsPlace::Pack,
        };
        let environ = Environ::from_variables::<String, String>([]);
        let allocation = crate::scheduler::local::allocation(&environ, &roles).unwrap();
        assert_eq!(allocation.scheduler, Scheduler::Local);
        Plan::new(allocation, &JobSpec { roles, ..JobSpec::default() }).unwrap()
    }

    fn take_part(
        folder: &Path,
        rank: Option<u32>,
        port: u16,
        timeout: Duration,
        go_on: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Exchanged, RendezvousError> {
        let plan = plan(2);
        let meeting = Meeting { rank, key: None, timeout, job: None };
        let rejoin = Duration::from_secs(5);
        let introduction =
            meeting.introduce(&plan, Some("here"), &Addressing::default(), port, rejoin).unwrap();
        let mut way = Directory::new(folder, None, 0).unwrap();
        exchange(&mut way, introduction, &plan, &mut |_| {}, go_on)
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rallypoint-exchange-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn all_learn_the_same_and_leave_nothing() {
        let folder = folder("all");
        let long = Duration::from_secs(30);
        // All have a rank: one without takes the lowest that is free, which may be another's who comes later.
        let members: Vec<_> = [Some(2), Some(1), Some(0)]
            .into_iter()
            .zip(7001u16..)
            .map(|(rank, port)| {
                let folder = folder.clone();
                std::thread::spawn(move || take_part(&folder, rank, port, long, &mut || Ok(())))
            })
            .collect();
        let met: Vec<Exchanged> = members.into_iter().map(|member| member.join().unwrap().unwrap()).collect();
        assert_eq!(met.iter().map(|met| met.rank).collect::<Vec<_>>(), [2, 1, 0]);
        let ports: Vec<u16> = met[0].members.iter().map(|(_, endpoint)| endpoint.port).collect();
        assert_eq!(ports, [7003, 7002, 7001]);
        assert!(met.iter().all(|other| other.members == met[0].members));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_wait_ends_by_its_limit_or_by_the_caller() {
        let folder = folder("limit");
        let short = Duration::from_millis(300);
        let error = take_part(&folder, Some(1), 7001, short, &mut || Ok(())).unwrap_err().to_string();
        assert!(
            error.contains("1 of 3 members have come; missing: ps 0 (rank 0), worker 1 (rank 2)"),
            "{error}"
        );
        let mut asked = 0;
        let mut interrupt = || {
            asked += 1;
            if asked < 3 { Ok(()) } else { Err("SIGINT".to_owned()) }
        };
        let long = Duration::from_secs(30);
        let error = take_part(&folder, None, 7001, long, &mut interrupt).unwrap_err().to_string();
        assert_eq!(error, "a signal came while waiting for the others: SIGINT");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
