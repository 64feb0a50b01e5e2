//! Which steps can be taken in a state: those that follow by themselves, those of the clock, and faults.

use crate::{Action, Looks, Meeting, Phase, Process, Publish, Seat, State};

impl Meeting {
    /// What agents and the network do by themselves.
    pub(crate) fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        for (agent, it) in (0..).zip(&state.agents) {
            match it.phase {
                Phase::Search => actions.push(Action::Look { agent, stale: false, cut: false }),
                Phase::Walk(_) => actions.push(Action::Walk { agent }),
                Phase::Publish(_) => actions.push(Action::Publish { agent, stale: false }),
                _ => {}
            }
            let rank = self.rank_of(state, agent);
            match it.process() {
                Some(Process::Runs) if rank.is_some_and(|rank| self.bounds.decides(rank)) => {
                    actions.push(Action::End { agent, well: true });
                }
                Some(Process::Asked) => actions.push(Action::End { agent, well: false }),
                _ => {}
            }
            if it.cleaner.is_some() {
                actions.push(Action::CleanUp { agent });
            }
        }
        for (at, it) in state.connections.iter().enumerate() {
            let (member, leader) = (it.member, it.leader);
            if it.leader_open && !it.up.is_empty() && state.agents[leader as usize].leads() {
                actions.push(Action::Take { at, member, leader });
            }
            if it.member_open && !it.broken && !it.down.is_empty() {
                actions.push(Action::Hear { at, member, leader });
            }
            if it.is_lost_to_leader() {
                actions.push(Action::MemberLost { at, member, leader });
            }
            if it.is_lost_to_member(self.bounds.half_open) {
                actions.push(Action::LeaderLost { at, member, leader });
            }
        }
        for file in state.files.takeovers.iter().filter(|file| file.holder.closed && !file.old) {
            if !state.is_held(file.holder) {
                actions.push(Action::Age { gone: file.gone });
            }
        }
    }

    /// Limits that are over: those of seconds first, the whole meeting's only where no other is left.
    pub(crate) fn limits(&self, state: &State, actions: &mut Vec<Action>, early: bool) {
        let before = actions.len();
        for (agent, it) in (0..).zip(&state.agents) {
            match &it.phase {
                Phase::Gather(seats) => {
                    let ranks = (0..self.bounds.world).zip(seats.seats);
                    let lost = ranks.filter(|(_, seat)| *seat == Seat::Lost);
                    actions.extend(lost.map(|(rank, _)| Action::GraceOver { leader: agent, rank, early }));
                }
                Phase::Lead(leading) if leading.stopping.is_some() => {
                    actions.push(Action::GiveUp { leader: agent, early });
                }
                _ => {}
            }
        }
        if actions.len() > before && !early {
            return;
        }
        for (agent, it) in (0..).zip(&state.agents) {
            let may_be_over = match it.phase {
                // What was asked of the place is done to its end (`Seeker`), and taken back behind it.
                Phase::Publish(publish) => matches!(publish, Publish::Claim | Publish::Take(_)),
                Phase::Search
                | Phase::Walk(_)
                | Phase::Join
                | Phase::Wait { .. }
                | Phase::Later
                | Phase::Gather(_) => true,
                Phase::Lead(_) | Phase::Follow { .. } | Phase::Done(_) | Phase::Dead => false,
            };
            if may_be_over {
                actions.push(Action::TimeOver { agent, early });
            }
        }
    }

    /// Faults that may still happen.
    pub(crate) fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        let left = &state.left;
        for (agent, it) in (0..).zip(&state.agents) {
            if left.kills > 0 && it.is_alive() {
                actions.push(Action::Kill { agent, with_host: true });
                if self.bounds.guards {
                    actions.push(Action::Kill { agent, with_host: false });
                }
            }
            // The guard is the process that the scheduler has started: while it cleans up, nobody starts it again.
            if left.restarts > 0 && it.phase == Phase::Dead && it.cleaner.is_none() {
                actions.push(Action::Restart { agent });
            }
            if left.failures > 0 && it.process() == Some(Process::Runs) {
                actions.push(Action::End { agent, well: false });
            }
            self.faults_of_place(state, agent, actions);
        }
        if left.breaks > 0 {
            for (at, it) in state.connections.iter().enumerate() {
                if it.member_open && it.leader_open && !it.broken {
                    actions.push(Action::Break { at, member: it.member, leader: it.leader });
                }
            }
        }
        for file in state.files.takeovers.iter().filter(|file| file.holder.closed && !file.old) {
            if left.slow_cleaners > 0 && state.is_held(file.holder) {
                actions.push(Action::Age { gone: file.gone });
            }
        }
        if left.early > 0 {
            self.limits(state, actions, true);
        }
    }

    /// Stale reads, and leaders that cannot be reached.
    fn faults_of_place(&self, state: &State, agent: u8, actions: &mut Vec<Action>) {
        let (left, name) = (&state.left, self.name(agent));
        let second = left.stale > 0 && state.files.root_before[name] != state.files.meeting[name];
        let is_stale = left.stale > 0 && state.files.before[name] != state.files.look(name, false);
        match state.agents[agent as usize].phase {
            Phase::Search => {
                if is_stale {
                    actions.push(Action::Look { agent, stale: true, cut: false });
                }
                let published = state.files.look(name, false);
                if left.cuts > 0 && published.is_some_and(|it| it.id.agent != agent && state.listens(it)) {
                    actions.push(Action::Look { agent, stale: false, cut: true });
                }
            }
            Phase::Publish(publish) if second && self.bounds.looks == Looks::All && publish.looks() => {
                actions.push(Action::Publish { agent, stale: true });
            }
            _ => {}
        }
    }

    /// The rank of a member that runs.
    fn rank_of(&self, state: &State, agent: u8) -> Option<u8> {
        let id = state.id(agent);
        let started = state.past.started.iter().find(|started| started.by == id);
        started.map(|started| started.rank)
    }
}
