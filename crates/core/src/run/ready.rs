//! A job that is prepared: guard and agent are split, and the agent runs it.

use super::mode::Mode;
use super::private::PrivateFolder;
use crate::beside;
use crate::event::RunEvent;
use crate::outcome::Outcome;
use crate::scheduler::Place;
use crate::supervise::guard::{self, Side, Watched};
use crate::supervise::{AgentError, Prepared, run_here, run_member, run_step};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a guard may take to clean up after its agent.
const CLEAN_UP: Duration = Duration::from_secs(10);

/// A job whose every question is answered before anything starts.
#[expect(missing_debug_implementations, reason = "a way to meet is a trait object")]
pub struct Ready {
    pub(super) prepared: Prepared,
    pub(super) mode: Mode,
    /// It goes when the guard has seen the end.
    pub(super) private: PrivateFolder,
}

/// Which of the two this process now is.
#[expect(missing_debug_implementations, reason = "a way to meet is a trait object")]
pub enum Entered {
    /// The guard, after everything has ended: the agent has told people what there was to tell.
    Guard(Watched),
    /// The agent, which runs the job.
    Agent(Box<Agent>),
}

/// The process that runs the job.
#[expect(missing_debug_implementations, reason = "a way to meet is a trait object")]
pub struct Agent {
    ready: Ready,
    guard: OwnedFd,
}

impl Ready {
    /// This process has forked another that does all of it: what stands on disk is that one's.
    pub(super) fn leave_to_the_child(self) {
        self.private.leave_to_child();
    }

    /// The same, in that child.
    pub(super) fn taken_over(mut self) -> Ready {
        self.private.take_over();
        self
    }

    /// Splits this process, which must have a single thread, into guard and agent.
    pub fn enter(self) -> std::io::Result<Entered> {
        match guard::enter(self.prepared.spec.grace)? {
            Side::Guard(watched) => {
                if let (Some(agent), Mode::Others(place)) = (watched.dead_agent(), self.mode) {
                    clean_up(place, agent);
                }
                Ok(Entered::Guard(watched))
            }
            Side::Agent(guard) => Ok(Entered::Agent(Box::new(Agent { ready: self, guard }))),
        }
    }
}

impl Agent {
    /// Runs the job to its end. `tell` hears what happens, in the event loop: it must not wait.
    pub fn run(self, tell: &mut dyn FnMut(RunEvent)) -> Result<Outcome, AgentError> {
        let Agent { ready: Ready { prepared, mode, mut private }, guard } = self;
        let result = match mode {
            Mode::Alone => run_here(prepared, Some(guard), tell),
            Mode::Others(Place { way, meeting }) => run_member(prepared, &meeting, way, Some(guard), tell),
            Mode::Step(launcher, meeting) => run_step(prepared, &meeting, &launcher, Some(guard), tell),
        };
        // Its members have ended. The guard may be killed at any moment, and does it otherwise.
        private.take_over();
        result
    }
}

/// Takes back what a dead agent has published, if that can be done soon: the guard has to end.
fn clean_up(Place { mut way, .. }: Place, agent: u32) {
    let (end, ended) = std::sync::mpsc::channel();
    let clean_up = move || {
        way.clean_up_after(agent);
        _ = end.send(());
    };
    if beside::start(clean_up).is_ok() {
        _ = beside::wait(&ended, CLEAN_UP);
    }
}
