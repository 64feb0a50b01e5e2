//! A path to a broken property, in words: one line per step.

use crate::{Action, Meeting, Phase, State};
use stateright::{Model, Path};

/// The steps to the first state that breaks this property. The checker goes on for a while after it has found one, so
/// its path may be longer.
pub(crate) fn steps(meeting: &Meeting, property: &str, path: Path<State, Action>) -> Vec<String> {
    let all = meeting.properties();
    let breaks = |state: &State| all.iter().any(|it| it.name == property && !(it.condition)(meeting, state));
    let mut steps = Vec::new();
    for (state, action) in path.into_vec() {
        if breaks(&state) {
            break;
        }
        steps.extend(action.map(|action| told(&state, action)));
    }
    steps
}

/// What happens in this state by this step.
fn told(state: &State, action: Action) -> String {
    let who = |agent: u8| format!("{:?}", state.id(agent));
    match action {
        Action::Look { agent, stale, cut } => {
            let how = if stale { ", and sees what stood there before" } else { "" };
            let cut = if cut { ", and cannot reach the leader" } else { "" };
            format!("{} looks who leads{how}{cut}", who(agent))
        }
        Action::Walk { agent } => {
            format!("{} reads on: {:?}", who(agent), state.agents[agent as usize].phase)
        }
        Action::Publish { agent, stale } => {
            let Phase::Publish(publish) = state.agents[agent as usize].phase else { return String::new() };
            let stale = if stale { ", and sees what stood there before" } else { "" };
            format!("{} publishes itself: {publish:?}{stale}", who(agent))
        }
        Action::CleanUp { agent } => match state.agents[agent as usize].cleaner {
            Some(cleaner) => format!("{:?} is taken back: {:?}", cleaner.of, cleaner.step),
            None => String::new(),
        },
        Action::Age { gone } => format!("the takeover file of {gone:?} is too old"),
        Action::Take { at, member, leader } => {
            let word = state.connections[at].up[0];
            format!("{} takes {word:?} of {}", who(leader), who(member))
        }
        Action::Hear { at, member, leader } => {
            let word = state.connections[at].down[0];
            format!("{} hears {word:?} of {}", who(member), who(leader))
        }
        Action::Break { member, leader, .. } => {
            format!("the connection of {} and {} breaks", who(member), who(leader))
        }
        Action::MemberLost { member, leader, .. } => {
            format!("{} notices that {} is gone", who(leader), who(member))
        }
        Action::LeaderLost { member, leader, .. } => {
            format!("{} notices that its leader {} is gone", who(member), who(leader))
        }
        Action::End { agent, well } => format!("the member of {} ends, well: {well}", who(agent)),
        Action::GraceOver { leader, rank, .. } => {
            format!("the grace of rank {rank} is over for {}", who(leader))
        }
        Action::TimeOver { agent, .. } => format!("the time to meet is over for {}", who(agent)),
        Action::GiveUp { leader, .. } => format!("{} gives up on those that are silent", who(leader)),
        Action::Kill { agent, with_host: true } => format!("{} is killed with its host", who(agent)),
        Action::Kill { agent, with_host: false } => format!("{} is killed", who(agent)),
        Action::Restart { agent } => format!("{} is started again", who(agent)),
    }
}
