//! The gathering, over real connections.

use super::*;
use crate::network::TcpStream;
use crate::plan::JobSpec;
use crate::rendezvous::wire;
use crate::roles::RoleRequest;
use crate::scheduler::hypothetical::{Hypothesis, allocation};

fn plan(world: u32) -> Plan {
    let roles = RoleRequest::List(format!("worker*{world}").parse().unwrap());
    let nodes = "n1".to_owned();
    let hypothesis = Hypothesis { nodes, tasks_per_node: None, gpus_per_node: 0, cpus_per_task: None };
    Plan::new(allocation(&hypothesis, &roles).unwrap(), &JobSpec { roles, ..JobSpec::default() }).unwrap()
}

fn join_request(world: u32) -> JoinRequest {
    JoinRequest {
        offer: Offer { addresses: Vec::new(), ..Offer::for_tests(0) },
        world,
        key: None,
        timeout: Duration::from_secs(60),
        rejoin: Duration::from_secs(10),
        lost_leader: None,
        apart: false,
        listen: None,
    }
}

/// A leader, one member that offers itself, and how the meeting ended for both.
fn meet_one_of(world: u32, member_says: Option<ToLeader>) -> (RendezvousError, ToMember) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (contact, mut leader) = Leader::of_step(&join_request(world)).await.unwrap();
        let key = Key::from_hex(contact.key.as_deref().unwrap()).unwrap();
        let member = async {
            let stream = TcpStream::connect(("127.0.0.1", contact.port)).await.unwrap();
            let offer = ToLeader::Offer(Offer::for_tests(1));
            let (mut reader, mut writer) = wire::join(stream, &key, &offer).await.unwrap();
            if let Some(said) = member_says {
                writer.write(&said).await.unwrap();
            }
            loop {
                match reader.read::<ToMember>().await.unwrap() {
                    ToMember::Welcome { .. } | ToMember::Waiting { .. } | ToMember::Alive => {}
                    last => return last,
                }
            }
        };
        let lead = async {
            let error = leader.gather(&plan(world), |_| {}).await.map(|_| ()).unwrap_err();
            leader.dismiss(&error, 197).await;
            error
        };
        tokio::join!(lead, member)
    })
}

/// Its network is gone for a moment, and it notices before its leader does: it keeps its rank, and what becomes of the
/// first connection changes nothing.
#[test]
fn a_member_is_known_when_it_comes_back_before_its_loss_was_noticed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let unranked =
            |process| Offer { rank: None, process: Some(process), ..Offer::for_tests(process as u32) };
        let ours = JoinRequest { offer: Offer::for_tests(0), ..join_request(3) };
        let (contact, mut leader) = Leader::of_step(&ours).await.unwrap();
        let key = Key::from_hex(contact.key.as_deref().unwrap()).unwrap();
        let come = async |process| {
            let stream = TcpStream::connect(("127.0.0.1", contact.port)).await.unwrap();
            let offer = ToLeader::Offer(unranked(process));
            let (mut reader, writer) = wire::join(stream, &key, &offer).await.unwrap();
            let rank = loop {
                match reader.read::<ToMember>().await.unwrap() {
                    ToMember::Welcome { rank, .. } => break rank,
                    ToMember::Waiting { .. } | ToMember::Alive => {}
                    other => panic!("{other:?}"),
                }
            };
            (rank, reader, writer)
        };
        let members = async {
            let (rank, mut lost, half_open) = come(1).await;
            assert_eq!(rank, 1);
            let (rank, reader, writer) = come(1).await;
            assert_eq!(rank, 1, "its own");
            // Nobody talks to it any more, and its end is nobody's loss.
            while lost.read::<ToMember>().await.is_ok() {}
            drop((lost, half_open));
            let (rank, ..) = come(2).await;
            assert_eq!(rank, 2);
            drop((reader, writer));
        };
        let mut said = Vec::new();
        let world = plan(3);
        let (gathered, ()) = tokio::join!(leader.gather(&world, |event| said.push(event)), members);
        let met = gathered.unwrap().met;
        let hosts: Vec<&str> = met.members.iter().map(|seat| seat.host.as_str()).collect();
        assert_eq!((hosts, met.remotes.len()), (vec!["n0", "n1", "n2"], 2));
        let losses = said.iter().filter(|event| matches!(event, RunEvent::LostWhileWaiting { .. }));
        assert_eq!(losses.count(), 1, "{said:?}");
        assert_eq!(leader.rank_of(&unranked(2)), Some(2), "it may come back without having heard the roster");
    });
}

/// Two procs: the second is evicted and comes back; the first is lost before the second has heard the roster, and comes
/// back as well. The second has started nothing, so its count is what it was.
#[test]
fn every_attempt_has_a_number_of_its_own() {
    let rosters = [[0, 0], [0, 1], [1, 1], [2, 1], [2, 2]];
    let attempts = rosters.map(|runs| attempt(0, &runs));
    assert_eq!(attempts, [0, 1, 2, 3, 4]);
    assert_eq!(attempt(3, &[0, 0]), 3, "the scheduler counts for all");
    assert_eq!(attempt(0, &[u32::MAX, 1]), u32::MAX, "nonsense does no harm");
}

#[test]
fn a_member_that_fails_before_the_roster_ends_the_meeting_with_its_reason() {
    let said = ToLeader::Failed { code: 197, why: "no room".to_owned() };
    let (error, heard) = meet_one_of(3, Some(said));
    assert_eq!(error.to_string(), "worker 1 has failed before all had come: no room");
    assert_eq!(heard, ToMember::Goodbye { code: 197, farewell: Farewell::Error(hint::in_full(&error)) });
}

/// The leader has no address that its member could use: it cannot write the roster, and says so.
#[test]
fn a_roster_that_cannot_be_written_is_told_to_all() {
    let (error, heard) = meet_one_of(2, None);
    assert!(matches!(error, RendezvousError::NoAddress), "{error}");
    assert_eq!(heard, ToMember::Goodbye { code: 197, farewell: Farewell::Error(hint::in_full(&error)) });
}
