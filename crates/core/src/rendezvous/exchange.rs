//! A meeting and no more: everyone learns everyone's endpoint, then all connections are closed.
//!
//! For programs that start themselves (the Python resolvers). `run` keeps the connections instead.

use super::join::dismissed;
use super::message::Seat;
use super::wire::WireError;
use super::{
    Attended, Gathered, Incoming, JoinRequest, Leader, Met, RendezvousError, Seeker, Wait, WayToMeet, attend,
};
use crate::clock;
use crate::event::RunEvent;
use crate::outcome::OwnCode;
use crate::plan::Plan;
use std::time::Duration;
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
    /// Where each rank is.
    pub members: Vec<Seat>,
}

/// Meets the others. `say` hears what happens; `go_on` is asked many times a second, and its error
/// ends the wait (a Ctrl-C, say).
pub fn exchange(
    way: WayToMeet,
    join_request: JoinRequest,
    plan: &Plan,
    say: &mut dyn FnMut(RunEvent),
    go_on: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Exchanged, RendezvousError> {
    let mut way = Seeker::new(way);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(clock::keep());
        say(RunEvent::Meeting { way: way.name().to_owned() });
        let stopped = async {
            loop {
                tokio::time::sleep(TICK).await;
                if let Err(why) = go_on() {
                    return why;
                }
            }
        };
        tokio::select! {
            exchanged = meet_all(&mut way, join_request, plan, say) => exchanged,
            why = stopped => Err(RendezvousError::Interrupted(why)),
        }
    });
    runtime.shutdown_background();
    result
}

async fn meet_all(
    way: &mut Seeker,
    mut join_request: JoinRequest,
    plan: &Plan,
    say: &mut dyn FnMut(RunEvent),
) -> Result<Exchanged, RendezvousError> {
    let wait = Wait::begin(join_request.timeout);
    match attend(way, &mut join_request, plan, wait, std::future::pending(), say).await? {
        Attended::Leader(leader) => lead(*leader, plan, say).await,
        Attended::Member { link, roster } => {
            let members = roster
                .members(plan.world())
                .ok_or_else(|| WireError::Nonsense("a roster that does not fit the plan".to_owned()))?;
            Ok(Exchanged { rank: link.rank, members })
        }
        Attended::Over { code, farewell } => Err(dismissed(code, farewell)),
    }
}

async fn lead(
    mut leader: Leader,
    plan: &Plan,
    tell: &mut dyn FnMut(RunEvent),
) -> Result<Exchanged, RendezvousError> {
    match leader.gather(plan, tell).await {
        Ok(Gathered { rank, met: Met { members, remotes, roster, .. } }) => {
            roster.hand_out(&remotes);
            let mut connected = remotes.len();
            let hang_up = async {
                while connected > 0 {
                    match leader.receive().await {
                        Some(Incoming::Gone { .. }) => connected -= 1,
                        Some(_) => {}
                        None => break,
                    }
                }
            };
            _ = clock::timeout(HANG_UP, hang_up).await;
            Ok(Exchanged { rank, members })
        }
        Err(error) => {
            leader.dismiss(&error, OwnCode::MeetingFailed.code()).await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let meeting = Meeting { rank, key: None, timeout, job: None, listen: None };
        let rejoin = Duration::from_secs(5);
        let join_request =
            meeting.join_request(&plan, Some("here"), &Addressing::default(), port, rejoin).unwrap();
        let way = WayToMeet::contested(Directory::new(folder, None, 0).unwrap());
        exchange(way, join_request, &plan, &mut |_| {}, go_on)
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
        let ports: Vec<u16> = met[0].members.iter().map(|seat| seat.endpoint.port).collect();
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
