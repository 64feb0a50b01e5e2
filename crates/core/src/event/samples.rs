//! One of each event, for the reference page and for tests of what is shown.

use super::{Figures, LastWriter, Obstacle, RosterEntry, RunEvent, Silent, Suspicion, Waited};
use crate::names::{Name, NameAndHost, Names};
use crate::outcome::{End, Ended, Failure, Farewell, LostOutput, MemberOutcome, Verdict, Whole};
use crate::rehearsal::Deed;
use crate::roles::Role;
use std::time::Duration;

fn text(text: &str) -> String {
    text.to_owned()
}

fn worker(index: u32) -> Name {
    Name { rank: index + 1, role: Role::Worker, index }
}

fn names(indices: &[u32]) -> Names {
    let named = |index: &u32| NameAndHost { name: worker(*index), host: Some(format!("n{}", index + 1)) };
    Names { named: indices.iter().map(named).collect(), more: 0 }
}

fn waited(seconds: u64) -> Waited {
    Waited { waited: Duration::from_secs(seconds), limit: Duration::from_secs(600) }
}

/// A job of one parameter server and two workers, of which one has failed.
fn whole() -> Whole {
    let ended =
        |end: End, seconds, peak_kib| Ended { end, seconds, peak_kib, tail: Vec::new(), reason: None };
    let failed = Ended {
        tail: vec![
            text("Traceback (most recent call last):"),
            text("ValueError: There must be at least one ps."),
        ],
        reason: Some(text("no parameter server")),
        ..ended(End::Exited(3), 12.5, 310_000)
    };
    let member = |name: Name, pid, ended: &Ended, stopped| MemberOutcome {
        host: Some(format!("n{}", name.rank)),
        member: name,
        pid: Some(pid),
        ended: Some(ended.clone()),
        stopped,
        served: false,
        restarts: 0,
    };
    let ps = MemberOutcome {
        served: true,
        ..member(Name { rank: 0, role: Role::Ps, index: 0 }, 4710, &ended(End::Exited(0), 13.0, 20_000), true)
    };
    let restarted = MemberOutcome { restarts: 2, ..member(worker(0), 4711, &failed, false) };
    let stopped = member(worker(1), 4712, &ended(End::Killed(15), 12.8, 300_000), true);
    Whole {
        attempt: 0,
        members: vec![ps, restarted, stopped],
        verdict: Verdict::Failed(Failure { rank: 1, pid: Some(4711), ended: failed }),
        lost: Vec::new(),
        left_behind: 0,
    }
}

/// The same job, with another verdict.
fn with(verdict: Verdict) -> RunEvent {
    let lost = match &verdict {
        Verdict::OutputLost => {
            vec![LostOutput {
                path: text("logs/attempt-0/worker-0.out"),
                bytes: 4096,
                why: text("No space left on device"),
            }]
        }
        _ => Vec::new(),
    };
    RunEvent::Over(Box::new(Whole { verdict, lost, ..whole() }))
}

fn obstacles() -> [Obstacle; 9] {
    let leader = || text("the leader in directory /scratch/meet (pid 4711 on n1)");
    [
        Obstacle::Nobody,
        Obstacle::PlaceSilent { place: text("directory /scratch/meet") },
        Obstacle::PlaceUnsteady { place: text("chirp"), why: text("connection refused") },
        Obstacle::Awaited { awaited: text("rank 0 to lead") },
        Obstacle::LeaderUnanswered { leader: leader() },
        Obstacle::LeaderMute { leader: leader(), why: text("the connection was closed") },
        Obstacle::SomebodyElse { leader: leader(), why: text("it has another key") },
        Obstacle::LeaderUnreachable { leader: leader(), why: text("connection refused") },
        Obstacle::EarlierAttempt,
    ]
}

fn silent() -> RunEvent {
    use Suspicion::{
        Buffered, NoChief, NoParameterServers, WaitsForEnded, WaitsForEndedServer, WaitsForListeners,
    };
    RunEvent::Silent(Box::new(Silent {
        silent: Duration::from_secs(300),
        world: 3,
        not_started: Names::default(),
        ended: names(&[0]),
        never_wrote: names(&[1]),
        listening: Some(names(&[])),
        not_listening: Some(names(&[1])),
        last: Some(LastWriter { member: names(&[0]), ago: Duration::from_secs(310) }),
        suspicions: vec![
            WaitsForEndedServer,
            WaitsForEnded,
            WaitsForListeners,
            NoChief,
            NoParameterServers,
            Buffered,
        ],
    }))
}

/// At least one of each, in the order in which they are declared: a list, however long.
pub fn all() -> Vec<RunEvent> {
    let figures = Figures { seconds: 12.5, peak_kib: 310_000 };
    let farewell = || whole().farewell();
    let seconds = Duration::from_secs;
    let (host, job, peer) = (|| text("n2"), || text("4711"), || text("10.0.0.7:40000"));
    let mut events =
        vec![RunEvent::Meeting { way: text("directory /scratch/meet") }, RunEvent::RanBefore { runs: 1 }];
    events.extend(obstacles().map(|obstacle| RunEvent::Searching { obstacle, waited: waited(5) }));
    events.extend([
        RunEvent::LeaderGone {
            leader: text("the leader in directory /scratch/meet (pid 4711 on n1)"),
            why: text("connection refused"),
        },
        RunEvent::Waiting { come: 1, world: 3, missing: Some(names(&[0, 1])), waited: waited(10) },
        RunEvent::Waiting { come: 0, world: 3, missing: None, waited: waited(10) },
        RunEvent::Came { member: worker(0) },
        RunEvent::LostWhileWaiting { member: worker(0), why: text("the connection was closed") },
        RunEvent::Stranger { peer: peer(), why: text("it has another key") },
        RunEvent::Strangers {
            count: 200,
            reasons: vec![(Some(text("it said nothing for 5 s")), 151), (None, 49)],
            last_peer: peer(),
        },
        RunEvent::Refused { peer: peer(), why: text("rank 1 has come already, from n1") },
        RunEvent::LeaderSilent {
            leader: text("pid 4711 on n1"),
            silent: Duration::from_secs(6),
            waited: waited(20),
        },
        RunEvent::LeaderLost { why: text("the connection was closed") },
        RunEvent::AttemptOver { code: 3, farewell: farewell(), meets_again: true },
        RunEvent::AttemptOver { code: 0, farewell: Farewell::Error(text("it is over")), meets_again: false },
        RunEvent::StepStarting { command: ["srun", "--ntasks=3"].map(text).into() },
        RunEvent::Gathered { world: 3, seconds: Duration::from_millis(250) },
        RunEvent::Roster {
            members: vec![RosterEntry { member: worker(0), host: host(), address: text("10.0.0.2:40123") }],
        },
        RunEvent::Note { text: text("http_proxy is set; the members' own hosts were added to no_proxy") },
        RunEvent::Begun { world: 3, hosts: 2, left: Some(Duration::from_secs(7500)) },
        RunEvent::Joined { member: worker(0) },
        RunEvent::Started { member: worker(0), host: host(), pid: 4711, served: false },
        RunEvent::Listening { member: worker(0) },
        RunEvent::Finished { member: worker(0), ended: figures },
        RunEvent::Failed { member: worker(0), end: End::Exited(3), code: 3, ended: figures },
        RunEvent::Stopped { member: worker(0), end: End::Killed(15), ended: figures },
        RunEvent::Restarted { member: worker(0) },
        RunEvent::Rehearsed { member: worker(0), deed: Deed::Kill, after: seconds(30), pid: 4711 },
        RunEvent::Rehearsed {
            member: worker(0),
            deed: Deed::Stop,
            after: Duration::from_millis(1500),
            pid: 4711,
        },
        RunEvent::Rehearsed { member: worker(0), deed: Deed::Continue, after: seconds(300), pid: 4711 },
        RunEvent::Rehearsed { member: worker(0), deed: Deed::Lose, after: seconds(90), pid: 4710 },
        RunEvent::NotRehearsed {
            members: worker(0).into(),
            deed: Deed::Term,
            after: seconds(30),
            over: false,
        },
        RunEvent::NotRehearsed { members: names(&[0, 1]), deed: Deed::Stop, after: seconds(600), over: true },
        RunEvent::StartedElsewhere { member: worker(0), host: host() },
        RunEvent::Signal { signal: 15, again: false },
        RunEvent::Signal { signal: 2, again: true },
        RunEvent::SignalElsewhere { member: worker(0), signal: 15 },
        RunEvent::StepEnded { launcher: text("srun"), end: End::Exited(1) },
        RunEvent::LeaderLostWhileRunning { why: text("the connection was closed") },
        RunEvent::RollCall { finished: names(&[0]), running: names(&[1]) },
        silent(),
        RunEvent::Lingering { members: names(&[1]), kill_in: Duration::from_secs(8), interrupted: false },
        RunEvent::Lingering { members: names(&[1]), kill_in: Duration::from_secs(8), interrupted: true },
        RunEvent::OutputLost {
            path: text("logs/attempt-0/worker-0.out"),
            bytes: 4096,
            why: text("No space left on device"),
            again: false,
        },
        RunEvent::OutputLost {
            path: text("standard output"),
            bytes: 1,
            why: text("Broken pipe"),
            again: true,
        },
        RunEvent::NotShown,
        RunEvent::NoStandIn { member: worker(0), why: text("no TensorFlow was found"), not_found: true },
        RunEvent::NoStandIn { member: worker(0), why: text("its port is in use"), not_found: false },
        RunEvent::LeftBehind { count: 1 },
        RunEvent::LeftBehind { count: 2 },
        RunEvent::Requeued { member: worker(0), job: job() },
        RunEvent::NotRequeued { job: job(), why: text("Access/permission denied") },
        RunEvent::Over(Box::new(whole())),
        with(Verdict::Success),
        with(Verdict::Interrupted(2)),
        with(Verdict::OutputLost),
        RunEvent::Told { code: 3, farewell: farewell() },
    ]);
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The compiler asks for a line here when there is a new event; the test then for a sample.
    fn number(event: &RunEvent) -> u32 {
        match event {
            RunEvent::Meeting { .. } => 0,
            RunEvent::RanBefore { .. } => 1,
            RunEvent::Searching { .. } => 2,
            RunEvent::LeaderGone { .. } => 3,
            RunEvent::Waiting { .. } => 4,
            RunEvent::Came { .. } => 5,
            RunEvent::LostWhileWaiting { .. } => 6,
            RunEvent::Stranger { .. } => 7,
            RunEvent::Strangers { .. } => 8,
            RunEvent::Refused { .. } => 9,
            RunEvent::LeaderSilent { .. } => 10,
            RunEvent::LeaderLost { .. } => 11,
            RunEvent::AttemptOver { .. } => 12,
            RunEvent::StepStarting { .. } => 13,
            RunEvent::Gathered { .. } => 14,
            RunEvent::Roster { .. } => 15,
            RunEvent::Note { .. } => 16,
            RunEvent::Begun { .. } => 17,
            RunEvent::Joined { .. } => 18,
            RunEvent::Started { .. } => 19,
            RunEvent::Listening { .. } => 20,
            RunEvent::Finished { .. } => 21,
            RunEvent::Failed { .. } => 22,
            RunEvent::Stopped { .. } => 23,
            RunEvent::Restarted { .. } => 24,
            RunEvent::Rehearsed { .. } => 25,
            RunEvent::NotRehearsed { .. } => 26,
            RunEvent::StartedElsewhere { .. } => 27,
            RunEvent::Signal { .. } => 28,
            RunEvent::SignalElsewhere { .. } => 29,
            RunEvent::StepEnded { .. } => 30,
            RunEvent::LeaderLostWhileRunning { .. } => 31,
            RunEvent::RollCall { .. } => 32,
            RunEvent::Silent(_) => 33,
            RunEvent::Lingering { .. } => 34,
            RunEvent::OutputLost { .. } => 35,
            RunEvent::NotShown => 36,
            RunEvent::NoStandIn { .. } => 37,
            RunEvent::LeftBehind { .. } => 38,
            RunEvent::Requeued { .. } => 39,
            RunEvent::NotRequeued { .. } => 40,
            RunEvent::Over(_) => 41,
            RunEvent::Told { .. } => 42,
        }
    }

    #[test]
    fn there_is_one_of_each() {
        let found: BTreeSet<u32> = all().iter().map(number).collect();
        assert_eq!(found, (0..=42).collect());
    }

    /// What one process writes another one reads.
    #[test]
    fn each_is_an_object_with_its_name_and_can_be_read_again() {
        for event in all() {
            let json = serde_json::to_value(&event).unwrap();
            assert!(json["event"].is_string(), "{event:?}: {json}");
            assert_eq!(serde_json::from_value::<RunEvent>(json).unwrap(), event);
        }
    }
}
