//! What a search does with what it sees, as a table.

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

fn contact() -> Contact {
    crate::rendezvous::tests::contact()
}

fn failed(error: RendezvousError) -> Seen {
    Seen::NotJoined { contact: contact(), error, is_dead: false }
}

fn wire(error: WireError) -> Seen {
    failed(error.into())
}

fn unreachable() -> RendezvousError {
    RendezvousError::Unreachable { reason: "no route".to_owned() }
}

/// `claim, rest 5, look`: what is decided about what is seen at these milliseconds, and in brackets what is said.
fn decisions(may_lead: bool, seen: Vec<(u64, Seen)>) -> String {
    let wait = Wait::begin(LIMIT);
    let start = wait.end() - LIMIT;
    let awaited = (!may_lead).then(|| "rank 0 to lead".to_owned());
    let longest_pause = Duration::from_millis(100);
    let place = Where { name: "directory /d".to_owned(), awaited, longest_pause };
    let mut search = Search::new(place, wait, start);
    let decide = |(ms, seen)| {
        let now = start + Duration::from_millis(ms);
        let Decision { say, step } = search.saw(seen, now);
        let step = match step {
            Step::Look => "look".to_owned(),
            Step::Join { contact, waiting } => format!("join {} [{waiting}]", contact.id),
            Step::Claim => "claim".to_owned(),
            Step::Replace { gone } => format!("replace {}", gone.id),
            Step::Rest { until } => format!("rest {}", (until - now).as_millis()),
            Step::GiveUp(RendezvousError::NoLeader { waited, obstacle }) => format!("{waited} s: {obstacle}"),
            Step::GiveUp(error) => format!("give up: {}", hint::in_full(&error)),
        };
        say.map_or(step.clone(), |say| format!("[{}] {step}", shown(&say)))
    };
    seen.into_iter().map(decide).collect::<Vec<String>>().join(", ")
}

fn shown(event: &RunEvent) -> String {
    match event {
        RunEvent::Searching { obstacle, waited } => {
            format!("{obstacle} ({} s of {} s)", waited.waited.as_secs(), waited.limit.as_secs())
        }
        RunEvent::LeaderGone { leader, why } => format!("{leader} is gone: {why}"),
        other => panic!("{other:?}"),
    }
}

fn nobody(ms: u64) -> (u64, Seen) {
    (ms, Seen::Nobody)
}

#[test]
fn a_place_without_a_leader() {
    let busy = |place: &str| Obstacle::PlaceUnsteady { place: place.to_owned(), why: "busy".to_owned() };
    let not_published = |ms, unsteady| (ms, Seen::NotPublished { unsteady });
    let unsteady = |ms| (ms, Seen::Unsteady { place: "chirp".to_owned(), why: "busy".to_owned() });
    let table = [
        ("the first look", vec![(0, Seen::Nothing)], "look"),
        ("the place is claimed", vec![nobody(1)], "claim"),
        (
            "another was quicker",
            vec![nobody(1), not_published(2, None), (7, Seen::Nothing)],
            "claim, rest 5, look",
        ),
        (
            "the place does not take it",
            vec![not_published(2, Some(busy("chirp"))), not_published(5000, Some(busy("chirp")))],
            "rest 5, [chirp does not answer: busy (5 s of 60 s)] rest 10",
        ),
        (
            "the place is silent to the end",
            vec![(60_000, Seen::NoAnswer)],
            "60 s: directory /d does not answer",
        ),
        (
            "a busy place is left alone",
            vec![unsteady(10), unsteady(5010), (60_010, Seen::Nothing)],
            "rest 1000, [chirp does not answer: busy (5 s of 60 s)] rest 1000, 60 s: chirp does not answer: busy",
        ),
    ];
    for (what, seen, expected) in table {
        assert_eq!(decisions(true, seen), expected, "{what}");
    }
}

#[test]
fn an_agent_that_may_not_lead() {
    let table = [
        (
            "pauses get longer, up to a limit",
            (1..8).map(nobody).collect(),
            "rest 5, rest 10, rest 20, rest 40, rest 80, rest 100, rest 100",
        ),
        (
            "it is said every 5 s",
            vec![nobody(4999), nobody(5000), nobody(9999), nobody(10_000)],
            "rest 5, [still waiting for rank 0 to lead (5 s of 60 s)] rest 10, rest 20, [still waiting for rank 0 to lead (10 s of 60 s)] rest 40",
        ),
        (
            "no pause goes beyond the end",
            vec![nobody(59_998)],
            "[still waiting for rank 0 to lead (59 s of 60 s)] rest 2",
        ),
        (
            "the time is over",
            vec![nobody(1), (60_000, Seen::Nothing)],
            "rest 5, 60 s: still waiting for rank 0 to lead",
        ),
    ];
    for (what, seen, expected) in table {
        assert_eq!(decisions(false, seen), expected, "{what}");
    }
}

#[test]
fn a_leader_that_answers() {
    let closed = |ms| (ms, wire(WireError::Closed));
    let not_joined =
        |contact, error: WireError| (0, Seen::NotJoined { contact, error: error.into(), is_dead: false });
    let given = || not_joined(Contact { id: String::new(), ..contact() }, WireError::WrongKey);
    let table = [
        (
            "it is asked",
            vec![(0, Seen::Leader(contact()))],
            "join 9f0c [the leader in directory /d (pid 4711 on n1) does not answer]",
        ),
        (
            "it refuses",
            vec![(0, failed(RendezvousError::Refused { why: "no".to_owned() }))],
            "give up: the leader refuses this member: no",
        ),
        (
            "it only takes connections: its place is not taken",
            vec![closed(0), closed(4000), closed(9000), (9001, Seen::Leader(contact()))],
            "rest 5, rest 10, [the leader in directory /d (pid 4711 on n1): it takes connections, but the connection was closed (9 s of 60 s)] rest 20, join 9f0c [the leader in directory /d (pid 4711 on n1): it takes connections, but the connection was closed]",
        ),
        ("somebody else answers at a given address", vec![given(), given()], "rest 1000, rest 1000"),
        (
            "it does not answer to the end",
            vec![(60_000, Seen::Unanswered(contact())), (60_000, Seen::Nothing)],
            "rest 0, 60 s: the leader in directory /d (pid 4711 on n1) does not answer",
        ),
        (
            "an earlier attempt runs to the end",
            vec![(60_000, Seen::StillRunning), (60_000, Seen::Nothing)],
            "rest 0, 60 s: an earlier attempt of this job still runs",
        ),
    ];
    for (what, seen, expected) in table {
        assert_eq!(decisions(true, seen), expected, "{what}");
    }
}

#[test]
fn a_leader_of_another_version() {
    let old = Contact { version: 1, ..contact() };
    let seen = Seen::NotJoined { contact: old, error: WireError::Closed.into(), is_dead: false };
    let why = format!("its protocol is version 1, ours {VERSION}; hint: use the same rallypoint everywhere");
    assert_eq!(decisions(true, vec![(0, seen)]), format!("give up: the leader refuses this member: {why}"));
}

#[test]
fn a_leader_that_cannot_be_reached() {
    let no_route = |ms| (ms, failed(unreachable()));
    let not_joined = |ms, contact, is_dead| (ms, Seen::NotJoined { contact, error: unreachable(), is_dead });
    let dead = || not_joined(0, contact(), true);
    let other = not_joined(0, Contact { id: "77".to_owned(), ..contact() }, false);
    let wrong_key = |ms| (ms, wire(WireError::WrongKey));
    let lost = (3002, Seen::NotPublished { unsteady: None });
    let who = "the leader in directory /d (pid 4711 on n1)";
    let gone = format!("[{who} is gone: the leader cannot be reached: no route] replace 9f0c");
    let said = "[the leader cannot be reached: no route (5 s of 60 s)]";
    let rests = || "rest 5, rest 10, rest 20".to_owned();
    let table = [
        ("patience", true, vec![no_route(0), no_route(3000)], "rest 5, rest 10".to_owned()),
        ("no more patience", true, vec![no_route(0), no_route(3001)], format!("rest 5, {gone}")),
        ("its process is dead", true, vec![dead()], gone.clone()),
        ("dead, and not ours to replace", false, vec![dead()], "rest 5".to_owned()),
        ("not ours", false, vec![no_route(0), no_route(5000)], format!("rest 5, {said} rest 10")),
        ("another leader has its own time", true, vec![other, no_route(3001), no_route(4000)], rests()),
        (
            "a connection begins the time anew",
            true,
            vec![no_route(0), (2000, wire(WireError::Closed)), no_route(3001)],
            rests(),
        ),
        (
            "an attempt whose leader was lost begins it anew",
            true,
            vec![no_route(0), (2000, Seen::EndUnknown), no_route(3001)],
            rests(),
        ),
        (
            "so does another that was quicker to replace it",
            true,
            vec![no_route(0), no_route(3001), lost, no_route(3500)],
            format!("rest 5, {gone}, rest 10, rest 20"),
        ),
        (
            "a wrong key in a published place is a leader that is gone",
            true,
            vec![wrong_key(0), wrong_key(3001)],
            format!("rest 5, [{who} is gone: it has another key] replace 9f0c"),
        ),
    ];
    for (what, may_lead, seen, expected) in table {
        assert_eq!(decisions(may_lead, seen), expected, "{what}");
    }
}
