//! What a follower does with what it hears from its leader, its member and people. Pure: `follower` does it.

use super::losses::Unsent;
use super::member::Happened;

use super::signals::Sensed;
use crate::event::RunEvent;
use crate::lane::Loss;
use crate::outcome::{Farewell, OwnCode};
use crate::rehearsal::Planned;
use crate::rendezvous::message::{ToLeader, ToMember};
use crate::signal;
use std::time::{Duration, Instant};

/// How a follower stands with its leader and its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The leader decides; a member that has ended may start again.
    Led { ended: bool, interrupted: bool },
    /// The leader is lost, and the member is to end.
    Alone { interrupted: bool },
    /// The leader has said goodbye with the job's exit code, and the member is to end.
    Dismissed { code: u8, interrupted: bool },
    /// Everything has ended.
    Over { code: u8, interrupted: bool },
}

/// A follower, as far as it decides.
#[derive(Debug)]
pub(super) struct Following {
    state: State,
    /// What the member has to end, where this agent stops it.
    grace: Duration,
    unsent: Unsent,
    /// What the leader said in the end.
    pub(super) farewell: Option<Farewell>,
}

/// Something that a follower hears.
#[derive(Debug)]
pub(super) enum Heard {
    Sensed(Sensed),
    Leader(ToMember),
    /// The connection to the leader is gone, and why.
    LeaderLost(String),
    Member(Happened),
    /// The member has written something since the last report.
    Wrote,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Say(RunEvent),
    /// No server can stand in for the member, and why.
    NoStandIn(String),
    /// A fault was done on purpose, or could not be.
    SayRehearsed {
        fault: Planned,
        pid: Option<u32>,
    },
    Tell(ToLeader),
    Start,
    StandIn,
    Signal(i32),
    Suspend(bool),
    /// Ends the connection to the leader.
    HangUp,
    Stop(Duration),
    Kill,
}

impl Following {
    /// The leader has handed out the roster, and the member is about to start.
    pub(super) fn new(grace: Duration) -> Following {
        let state = State::Led { ended: false, interrupted: false };
        Following { state, grace, unsent: Unsent::default(), farewell: None }
    }

    /// What follows from something that was heard.
    pub(super) fn next(&mut self, heard: Heard, now: Instant) -> Vec<Action> {
        match heard {
            Heard::Sensed(Sensed::Child) => Vec::new(),
            Heard::Sensed(Sensed::Suspend(on)) => vec![Action::Suspend(on)],
            Heard::Sensed(Sensed::Signal(number)) if signal::ends_the_job(number) => self.interrupt(number),
            Heard::Sensed(Sensed::Signal(number)) => vec![Action::Signal(number)],
            Heard::Leader(message) => self.obey(message),
            Heard::LeaderLost(why) => {
                self.leader_lost();
                // A leader that still hears us must not take the end that follows for the member's own.
                let lost = Action::Say(RunEvent::LeaderLostWhileRunning { why });
                vec![lost, Action::HangUp, Action::Stop(self.grace)]
            }
            Heard::Member(happened) => self.report(happened, now),
            Heard::Wrote if matches!(self.state, State::Alone { .. }) => Vec::new(),
            Heard::Wrote => vec![Action::Tell(ToLeader::Wrote)],
        }
    }

    /// Whether the leader is listened to: it says nothing after its goodbye.
    pub(super) fn is_led(&self) -> bool {
        matches!(self.state, State::Led { .. })
    }

    /// The exit code, once everything has ended.
    pub(super) fn code(&self) -> Option<u8> {
        match self.state {
            State::Over { code, .. } => Some(code),
            State::Led { .. } | State::Alone { .. } | State::Dismissed { .. } => None,
        }
    }

    /// The first signal stops the member, the second one ends it at once.
    fn interrupt(&mut self, number: i32) -> Vec<Action> {
        let (State::Led { interrupted, .. }
        | State::Alone { interrupted }
        | State::Dismissed { interrupted, .. }
        | State::Over { interrupted, .. }) = &mut self.state;
        if std::mem::replace(interrupted, true) {
            return vec![Action::Say(RunEvent::Signal { signal: number, again: true }), Action::Kill];
        }
        vec![
            Action::Say(RunEvent::Signal { signal: number, again: false }),
            Action::Stop(self.grace),
            Action::Tell(ToLeader::Interrupted { signal: number }),
        ]
    }

    fn obey(&mut self, message: ToMember) -> Vec<Action> {
        vec![match message {
            ToMember::Stop { grace_ms } => Action::Stop(Duration::from_millis(grace_ms)),
            ToMember::Kill => Action::Kill,
            ToMember::Signal { number: libc::SIGTSTP } => Action::Suspend(true),
            ToMember::Signal { number: libc::SIGCONT } => Action::Suspend(false),
            ToMember::Signal { number } if !signal::ends_the_job(number) => Action::Signal(number),
            ToMember::Restart => {
                if let State::Led { ended, .. } = &mut self.state {
                    *ended = false;
                }
                Action::Start
            }
            ToMember::StandIn => Action::StandIn,
            ToMember::Goodbye { code, farewell } => return self.dismissed(code, farewell),
            ToMember::Signal { .. }
            | ToMember::Welcome { .. }
            | ToMember::Refused { .. }
            | ToMember::Later
            | ToMember::Waiting { .. }
            | ToMember::Roster(_)
            | ToMember::Alive => return Vec::new(),
        }]
    }

    /// Nothing more will come from the leader; a member that still runs ends now.
    fn dismissed(&mut self, code: u8, farewell: Farewell) -> Vec<Action> {
        self.farewell = Some(farewell.clone());
        let mut actions = vec![Action::Say(RunEvent::Told { code, farewell })];
        if let State::Led { ended, interrupted } = self.state {
            self.state = if ended {
                State::Over { code, interrupted }
            } else {
                actions.push(Action::Kill);
                State::Dismissed { code, interrupted }
            };
        }
        actions
    }

    fn leader_lost(&mut self) {
        if let State::Led { ended, interrupted } = self.state {
            self.state = State::Alone { interrupted };
            if ended {
                self.member_ended();
            }
        }
    }

    fn member_ended(&mut self) {
        self.state = match self.state {
            State::Led { interrupted, .. } => State::Led { ended: true, interrupted },
            State::Alone { interrupted } => {
                let code = if interrupted { OwnCode::Interrupted } else { OwnCode::LeaderLost };
                State::Over { code: code.code(), interrupted }
            }
            State::Dismissed { code, interrupted } => State::Over { code, interrupted },
            over @ State::Over { .. } => over,
        };
    }

    /// Tells the leader what happened to the member.
    fn report(&mut self, happened: Happened, now: Instant) -> Vec<Action> {
        match happened {
            Happened::Started { pid, served, .. } => vec![Action::Tell(ToLeader::Started { pid, served })],
            Happened::Listening { .. } => vec![Action::Tell(ToLeader::Listening)],
            Happened::OutputLost(loss) => {
                if self.unsent.add(loss, now) {
                    self.losses(now)
                } else {
                    Vec::new()
                }
            }
            Happened::Rehearsed { fault, pid } => {
                let after_ms = fault.after.as_millis() as u64;
                let told = ToLeader::Rehearsed { deed: fault.deed, after_ms, pid };
                vec![Action::SayRehearsed { fault, pid }, Action::Tell(told)]
            }
            Happened::Ended { ended, .. } => {
                self.member_ended();
                let mut actions = self.losses(now);
                actions.push(Action::Tell(ToLeader::Ended(ended)));
                actions
            }
            Happened::NoStandIn { why, .. } => vec![Action::NoStandIn(why)],
        }
    }

    /// Tells the leader what it has not heard of yet.
    fn losses(&mut self, now: Instant) -> Vec<Action> {
        let losses = self.unsent.take(now).into_iter();
        losses
            .map(|Loss { path, bytes, why }| Action::Tell(ToLeader::OutputLost { path, bytes, why }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{End, Ended};
    use crate::rehearsal::Deed;
    use libc::{SIGINT, SIGTERM, SIGUSR1};

    const GRACE: Duration = Duration::from_secs(20);

    fn signal(number: i32) -> Heard {
        Heard::Sensed(Sensed::Signal(number))
    }

    fn passed_on(number: i32) -> Heard {
        Heard::Leader(ToMember::Signal { number })
    }

    fn lost() -> Heard {
        Heard::LeaderLost("it hung up".to_owned())
    }

    fn goodbye(code: u8) -> Heard {
        Heard::Leader(ToMember::Goodbye { code, farewell: Farewell::Error("it is over".to_owned()) })
    }

    fn exit() -> Ended {
        Ended::without_process(End::Exited(3))
    }

    fn ended() -> Heard {
        Heard::Member(Happened::Ended { rank: 1, ended: exit() })
    }

    /// What the last of these asks for, and the exit code then.
    fn last(heard: Vec<Heard>) -> (Vec<Action>, Option<u8>) {
        let mut following = Following::new(GRACE);
        let now = Instant::now();
        let actions = heard.into_iter().map(|heard| following.next(heard, now)).last();
        (actions.unwrap_or_default(), following.code())
    }

    #[test]
    fn what_is_done() {
        use Action::{HangUp, Kill, Say, StandIn, Start, Stop, Suspend, Tell};
        let came = |signal| Say(RunEvent::Signal { signal, again: false });
        let again = |signal| Say(RunEvent::Signal { signal, again: true });
        let interrupted = |signal| Tell(ToLeader::Interrupted { signal });
        let told = |code| Say(RunEvent::Told { code, farewell: Farewell::Error("it is over".to_owned()) });
        let lost_event = || RunEvent::LeaderLostWhileRunning { why: "it hung up".to_owned() };
        let leader_is_lost = || vec![Say(lost_event()), HangUp, Stop(GRACE)];
        let table = [
            ("a child", vec![Heard::Sensed(Sensed::Child)], vec![]),
            ("stand still", vec![Heard::Sensed(Sensed::Suspend(true))], vec![Suspend(true)]),
            ("a warning", vec![signal(SIGUSR1)], vec![Action::Signal(SIGUSR1)]),
            ("a signal", vec![signal(SIGTERM)], vec![came(SIGTERM), Stop(GRACE), interrupted(SIGTERM)]),
            ("a second one", vec![signal(SIGTERM), signal(SIGINT)], vec![again(SIGINT), Kill]),
            ("a second one, alone", vec![signal(SIGTERM), lost(), signal(SIGINT)], vec![again(SIGINT), Kill]),
            ("the leader warns", vec![passed_on(SIGUSR1)], vec![Action::Signal(SIGUSR1)]),
            ("the leader stands still", vec![passed_on(libc::SIGTSTP)], vec![Suspend(true)]),
            ("the leader goes on", vec![passed_on(libc::SIGCONT)], vec![Suspend(false)]),
            ("ends are asked for otherwise", vec![passed_on(SIGTERM)], vec![]),
            (
                "the leader stops",
                vec![Heard::Leader(ToMember::Stop { grace_ms: 7 })],
                vec![Stop(Duration::from_millis(7))],
            ),
            ("the leader kills", vec![Heard::Leader(ToMember::Kill)], vec![Kill]),
            ("once more", vec![ended(), Heard::Leader(ToMember::Restart)], vec![Start]),
            ("a server stands in", vec![Heard::Leader(ToMember::StandIn)], vec![StandIn]),
            ("a sign of life", vec![Heard::Leader(ToMember::Alive)], vec![]),
            ("the leader is lost", vec![lost()], leader_is_lost()),
            ("the leader is lost after the end", vec![ended(), lost()], leader_is_lost()),
            ("goodbye", vec![ended(), goodbye(0)], vec![told(0)]),
            ("goodbye too early", vec![goodbye(3)], vec![told(3), Kill]),
        ];
        for (what, heard, expected) in table {
            assert_eq!(last(heard).0, expected, "{what}");
        }
    }

    #[test]
    fn what_the_leader_hears_of_the_member() {
        let tell = |message| vec![Action::Tell(message)];
        let fault = Planned { rank: 1, deed: Deed::Kill, after: Duration::from_millis(1500) };
        let table = [
            ("it wrote", vec![Heard::Wrote], tell(ToLeader::Wrote)),
            ("it wrote to nobody", vec![lost(), Heard::Wrote], vec![]),
            (
                "it started",
                vec![Heard::Member(Happened::Started { rank: 1, pid: 7, served: false })],
                tell(ToLeader::Started { pid: 7, served: false }),
            ),
            ("it listens", vec![Heard::Member(Happened::Listening { rank: 1 })], tell(ToLeader::Listening)),
            ("it ended", vec![ended()], tell(ToLeader::Ended(exit()))),
            (
                "a fault on purpose",
                vec![Heard::Member(Happened::Rehearsed { fault, pid: Some(7) })],
                vec![
                    Action::SayRehearsed { fault, pid: Some(7) },
                    Action::Tell(ToLeader::Rehearsed { deed: fault.deed, after_ms: 1500, pid: Some(7) }),
                ],
            ),
            (
                "nobody stands in",
                vec![Heard::Member(Happened::NoStandIn { rank: 1, why: "no".to_owned() })],
                vec![Action::NoStandIn("no".to_owned())],
            ),
        ];
        for (what, heard, expected) in table {
            assert_eq!(last(heard).0, expected, "{what}");
        }
    }

    #[test]
    fn the_exit_code_waits_for_the_member_and_for_the_leader() {
        let restart = || Heard::Leader(ToMember::Restart);
        let interrupted = Some(OwnCode::Interrupted.code());
        let leader_lost = Some(OwnCode::LeaderLost.code());
        let table = [
            ("it runs", vec![], None),
            ("it ended, and may start again", vec![ended()], None),
            ("goodbye", vec![ended(), goodbye(3)], Some(3)),
            ("goodbye too early", vec![goodbye(3)], None),
            ("goodbye too early, then killed", vec![goodbye(3), ended()], Some(3)),
            ("started again", vec![ended(), restart(), goodbye(3)], None),
            ("started again and ended", vec![ended(), restart(), ended(), goodbye(0)], Some(0)),
            ("alone", vec![lost()], None),
            ("alone, ended", vec![lost(), ended()], leader_lost),
            ("ended, alone", vec![ended(), lost()], leader_lost),
            ("interrupted", vec![signal(SIGTERM), ended()], None),
            ("interrupted, the leader knows", vec![signal(SIGTERM), ended(), goodbye(198)], Some(198)),
            ("interrupted, alone", vec![signal(SIGTERM), lost(), ended()], interrupted),
            ("alone, interrupted", vec![lost(), signal(SIGTERM), ended()], interrupted),
            ("interrupted, ended, alone", vec![signal(SIGTERM), ended(), lost()], interrupted),
            ("a warning is no interruption", vec![signal(SIGUSR1), lost(), ended()], leader_lost),
        ];
        for (what, heard, expected) in table {
            assert_eq!(last(heard).1, expected, "{what}");
        }
    }

    #[test]
    fn losses_are_told_now_and_then_and_before_the_end() {
        let lose = |bytes| {
            let loss = Loss { path: "out".to_owned(), bytes, why: "full".to_owned() };
            Heard::Member(Happened::OutputLost(loss))
        };
        let tell = |bytes| {
            Action::Tell(ToLeader::OutputLost { path: "out".to_owned(), bytes, why: "full".to_owned() })
        };
        assert_eq!(last(vec![lose(10)]).0, [tell(10)]);
        assert_eq!(last(vec![lose(10), lose(5)]).0, []);
        assert_eq!(
            last(vec![lose(10), lose(5), lose(1), ended()]).0,
            [tell(6), Action::Tell(ToLeader::Ended(exit()))]
        );
    }

    #[test]
    fn the_leader_is_listened_to_until_it_is_gone() {
        let is_led = |heard: Option<Heard>| {
            let mut following = Following::new(GRACE);
            heard.into_iter().for_each(|heard| _ = following.next(heard, Instant::now()));
            following.is_led()
        };
        assert!(is_led(None) && is_led(Some(signal(SIGTERM))) && is_led(Some(ended())));
        assert!(!is_led(Some(lost())) && !is_led(Some(goodbye(0))));
    }
}
