//! What must be true in every state.
//!
//! `eventually` of stateright is not used: it takes a path that ends in a cycle for one that has not ended, and says
//! nothing about it. That everyone ends is asked of the states in which nothing can happen any more.

use crate::{Meeting, Phase, State};
use stateright::Property;

/// Of the living agents that lead in an attempt, at most one was not found gone by somebody.
pub const ONE_LEADER: &str = "one leader";
/// All rosters of an attempt that were ever acted on are one.
pub const ONE_ROSTER: &str = "one roster per attempt";
/// All who start in an attempt have the same members at the same ranks.
pub const SAME_ROSTER: &str = "all who start have the same roster";
/// In an attempt a rank is started by one agent, and an agent has one rank.
pub const ONE_OWNER: &str = "a rank has one owner";
/// Nobody starts after its leader was declared lost to it.
pub const NO_LATE_START: &str = "nobody starts after the loss of its leader";
/// An agent ends with an error only if something has happened in its attempt that explains it.
pub const CAUSE: &str = "no failure without a cause";
/// A member that is killed was asked to end before.
pub const ASKED: &str = "nobody is killed unasked";
/// When nothing can happen any more, everyone has an exit code.
pub const ALL_END: &str = "everyone ends";
/// When nothing can happen any more, no meeting file is left, unless a host was lost; and no takeover file, unless a host
/// was lost or a contender was killed in a takeover.
pub const NO_FILE: &str = "no meeting file is left";

/// There is a run in which the job succeeds: the model is not empty.
pub const SUCCEEDS: &str = "a job succeeds";
/// There is a run in which it succeeds though a fault has happened.
pub const RECOVERS: &str = "a job succeeds in spite of a fault";

/// All of them, for the checker.
pub fn all() -> Vec<Property<Meeting>> {
    vec![
        Property::always(ONE_LEADER, one_leader),
        Property::always(ONE_ROSTER, one_roster),
        Property::always(SAME_ROSTER, same_roster),
        Property::always(ONE_OWNER, one_owner),
        Property::always(NO_LATE_START, |_, state: &State| !state.past.started_after_loss),
        Property::always(CAUSE, has_cause),
        Property::always(ASKED, |_, state: &State| !state.past.killed_unasked),
        Property::always(ALL_END, all_end),
        Property::always(NO_FILE, no_file),
        Property::sometimes(SUCCEEDS, succeeds),
        Property::sometimes(RECOVERS, |model: &Meeting, state: &State| {
            state.left != State::new(&model.bounds).left && succeeds(model, state)
        }),
    ]
}

fn one_leader(model: &Meeting, state: &State) -> bool {
    (0..model.bounds.attempts).all(|attempt| {
        let agents = (0..).zip(&state.agents);
        let here = agents.filter(|(agent, _)| model.bounds.attempt(*agent) == attempt);
        here.filter(|(_, it)| it.leads() && !it.found_gone).count() <= 1
    })
}

fn one_roster(_: &Meeting, state: &State) -> bool {
    let started = &state.past.started;
    started.iter().all(|one| {
        let same = started.iter().filter(|other| other.roster.attempt == one.roster.attempt);
        same.into_iter().all(|other| other.roster.leader == one.roster.leader)
    })
}

fn same_roster(_: &Meeting, state: &State) -> bool {
    let started = &state.past.started;
    started.iter().all(|one| {
        let same = started.iter().filter(|other| other.roster.attempt == one.roster.attempt);
        same.into_iter().all(|other| other.roster.owners == one.roster.owners)
    })
}

fn one_owner(_: &Meeting, state: &State) -> bool {
    let started = &state.past.started;
    started.iter().all(|one| {
        let mut owners = one.roster.owners.iter().flatten().map(|id| id.agent);
        let is_its_own = one.roster.owners[one.rank as usize] == Some(one.by);
        let mut seen = 0_u8;
        let has_one_rank = owners.all(|agent| {
            let is_new = seen & (1 << agent) == 0;
            seen |= 1 << agent;
            is_new
        });
        let mut same = started.iter().filter(|other| {
            other.roster.attempt == one.roster.attempt && other.rank == one.rank && other.by != one.by
        });
        is_its_own && has_one_rank && same.next().is_none()
    })
}

fn has_cause(model: &Meeting, state: &State) -> bool {
    (0..).zip(&state.agents).all(|(agent, it)| match it.phase {
        Phase::Done(code) => code == 0 || state.past.cause[model.bounds.attempt(agent) as usize],
        _ => true,
    })
}

fn all_end(model: &Meeting, state: &State) -> bool {
    let is_busy = |phase: &Phase| matches!(phase, Phase::Search | Phase::Walk(_) | Phase::Publish(_));
    let busy = state.agents.iter().any(|it| is_busy(&it.phase) || it.cleaner.is_some());
    busy || state.agents.iter().all(|it| !it.is_alive()) || !model.is_over(state)
}

fn no_file(model: &Meeting, state: &State) -> bool {
    let is_quiet = state.agents.iter().all(|it| !it.is_alive() && it.cleaner.is_none());
    if !is_quiet || state.left.restarts > 0 {
        return true;
    }
    let attempts = model.bounds.attempts as usize;
    let no_takeover = state.files.takeovers.is_empty() || state.past.may_leave_takeover;
    no_takeover && (0..attempts).all(|at| state.files.meeting[at].is_none() || state.past.may_leave_file[at])
}

fn succeeds(model: &Meeting, state: &State) -> bool {
    let of_first = state.agents.iter().take(model.bounds.agents as usize);
    of_first.filter(|it| it.phase == Phase::Done(0)).count() >= model.bounds.world as usize
}
