//! The model as the checker sees it: the first state, the steps, and what follows from each.

use crate::{Agent, Bounds, Cleaner, Phase, Post, State, Variant, properties};
use rallypoint::outcome::OwnCode;
use stateright::{Model, Property};

/// The meeting and the job's end.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// How large it is, and which faults happen.
    pub bounds: Bounds,
    /// Which protocol.
    pub variant: Variant,
}

/// One step. `at` is the connection's place in the list, of `member` to `leader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An agent looks who leads, and connects or begins to publish itself.
    Look {
        /// Who looks.
        agent: u8,
        /// It sees what stood there before.
        stale: bool,
        /// The leader lives, but cannot be reached for so long that it counts as gone.
        cut: bool,
    },
    /// An agent reads the chain on.
    Walk {
        /// Who looks.
        agent: u8,
    },
    /// The next request of an agent that publishes itself.
    Publish {
        /// Who asks.
        agent: u8,
        /// It sees what stood there before.
        stale: bool,
    },
    /// The next request of whoever takes back a publication.
    CleanUp {
        /// Whose publication it is.
        agent: u8,
    },
    /// A takeover file is older than the limit.
    Age {
        /// The one that was replaced.
        gone: Post,
    },
    /// The leader takes a word of a member.
    Take {
        /// On this connection.
        at: usize,
        /// Of this agent.
        member: u8,
        /// The leader.
        leader: u8,
    },
    /// A member hears a word of its leader.
    Hear {
        /// On this connection.
        at: usize,
        /// The member.
        member: u8,
        /// Of this leader.
        leader: u8,
    },
    /// A connection breaks; nobody has noticed.
    Break {
        /// This connection.
        at: usize,
        /// Of this agent.
        member: u8,
        /// To this one.
        leader: u8,
    },
    /// The leader notices that a member is gone.
    MemberLost {
        /// On this connection.
        at: usize,
        /// The one that is gone.
        member: u8,
        /// Who notices.
        leader: u8,
    },
    /// A member notices that its leader is gone.
    LeaderLost {
        /// On this connection.
        at: usize,
        /// Who notices.
        member: u8,
        /// The one that is gone.
        leader: u8,
    },
    /// A member's process ends.
    End {
        /// Its agent.
        agent: u8,
        /// It has succeeded.
        well: bool,
    },
    /// The grace of a rank that was lost is over.
    GraceOver {
        /// Who gathers.
        leader: u8,
        /// Who was lost.
        rank: u8,
        /// Before everything else has happened.
        early: bool,
    },
    /// `--meet-timeout` is over.
    TimeOver {
        /// Whose.
        agent: u8,
        /// Before everything else has happened.
        early: bool,
    },
    /// The leader waits no longer for those that have not reported their end.
    GiveUp {
        /// Who leads.
        leader: u8,
        /// Before everything else has happened.
        early: bool,
    },
    /// An agent is killed.
    Kill {
        /// Which one.
        agent: u8,
        /// With its guard, its host, and what it has said last.
        with_host: bool,
    },
    /// A killed agent is started again.
    Restart {
        /// Which one.
        agent: u8,
    },
}

/// An exit code of rallypoint's own.
pub(crate) fn own_code(code: OwnCode) -> u8 {
    code.code()
}

impl Meeting {
    /// Which meeting file an agent looks at. `Directory::in_folder` of `rendezvous/directory.rs`.
    pub(crate) fn name(&self, agent: u8) -> usize {
        if self.variant == Variant::NoAttemptInName { 0 } else { self.bounds.attempt(agent) as usize }
    }

    /// Something has happened for which the attempt of this agent may fail.
    pub(crate) fn blame(&self, state: &mut State, agent: u8) {
        state.past.cause[self.bounds.attempt(agent) as usize] = true;
    }

    /// True if nothing can happen any more.
    pub(crate) fn is_over(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.into_iter().all(|action| self.next_state(state, action).is_none())
    }

    fn kill(&self, state: &mut State, agent: u8, with_host: bool) {
        state.left.kills -= 1;
        let it = &state.agents[agent as usize];
        let may_be_published = it.listens();
        let cleaner = (may_be_published && !with_host).then(|| Cleaner::new(state.post(agent)));
        let holds = matches!(it.phase, Phase::Publish(publish) if publish.holds());
        let run = it.run;
        state.hang_up(agent, with_host);
        *state.agent(agent) = Agent { phase: Phase::Dead, cleaner, ..Agent::new(run) };
        self.blame(state, agent);
        let attempt = self.bounds.attempt(agent) as usize;
        state.past.may_leave_file[attempt] |= with_host;
        state.past.may_leave_takeover |= with_host || holds;
    }

    fn age(&self, state: &mut State, gone: Post) {
        if state.files.next(gone).is_some_and(|holder| state.is_held(holder)) {
            state.left.slow_cleaners -= 1;
        }
        state.files.age(gone);
    }

    /// A limit is over.
    fn limit(&self, state: &mut State, agent: u8, early: bool) {
        if early {
            state.left.early -= 1;
        }
        match state.agents[agent as usize].phase {
            Phase::Gather(_) => self.dismiss(state, agent),
            Phase::Lead(_) => self.give_up(state, agent),
            _ => self.done(state, agent, own_code(OwnCode::MeetingFailed)),
        }
    }

    /// What follows from a step.
    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Look { agent, stale, cut } => {
                state.left.stale -= u8::from(stale);
                state.left.cuts -= u8::from(cut);
                self.look(state, agent, stale, cut);
            }
            Action::Walk { agent } => {
                if let Phase::Walk(at) = state.agents[agent as usize].phase {
                    self.walk(state, agent, at);
                }
            }
            Action::Publish { agent, stale } => {
                state.left.stale -= u8::from(stale);
                self.publish(state, agent, stale);
            }
            Action::CleanUp { agent } => {
                let cleaner = state.agents[agent as usize].cleaner;
                let name = self.name(agent);
                let next = cleaner.and_then(|cleaner| cleaner.ask(&mut state.files, name, self));
                state.agent(agent).cleaner = next;
            }
            Action::Age { gone } => self.age(state, gone),
            Action::Take { at, .. } => self.take(state, at),
            Action::Hear { at, .. } => self.hear(state, at),
            Action::Break { at, .. } => {
                state.left.breaks -= 1;
                let down = state.connections[at].down.clone();
                state.connections[at].cut();
                if self.variant == Variant::LateRoster {
                    state.connections[at].down = down;
                }
            }
            Action::MemberLost { at, .. } => self.member_lost(state, at),
            Action::LeaderLost { at, .. } => self.leader_lost(state, at),
            Action::End { agent, well } => self.process_ends(state, agent, well),
            Action::GraceOver { leader, early, .. } => {
                self.blame(state, leader);
                self.limit(state, leader, early);
            }
            Action::TimeOver { agent, early } | Action::GiveUp { leader: agent, early } => {
                if early {
                    self.blame(state, agent);
                }
                self.limit(state, agent, early);
            }
            Action::Kill { agent, with_host } => self.kill(state, agent, with_host),
            Action::Restart { agent } => {
                state.left.restarts -= 1;
                let run = state.agents[agent as usize].run + 1;
                *state.agent(agent) = Agent::new(run);
            }
        }
    }

    fn process_ends(&self, state: &mut State, agent: u8, well: bool) {
        let runs = state.agents[agent as usize].process() == Some(crate::Process::Runs);
        if runs && !well {
            state.left.failures -= 1;
            self.blame(state, agent);
        }
        self.end(state, agent, well);
    }
}

impl Model for Meeting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        // Limits are long: they are over when nothing else can happen.
        if actions.is_empty() {
            self.limits(state, actions, false);
        }
        self.faults(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        next.tidy();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Meeting>> {
        properties::all()
    }
}
