//! With whom the members of this agent work: nobody, others that are met, or a step that is to be started.

use super::{Run, RunError};
use crate::environ::Environ;
use crate::plan::Plan;
use crate::rendezvous::{Meeting, WayToMeet, launched::Launched};
use crate::scheduler::{self, LaunchRequest, Place, place};
use crate::supervise::Launcher;

pub(super) enum Mode {
    /// All members run here.
    Alone,
    /// Others run elsewhere, and are met.
    Others(Place),
    /// All run in a step that is to be started.
    Step(Launcher, Meeting),
}

impl Mode {
    pub(super) fn find(run: &Run, environ: &Environ, plan: &Plan) -> Result<Mode, RunError> {
        let request = &run.place;
        let job = plan.job().map(str::to_owned);
        let meeting =
            Meeting { rank: None, key: None, timeout: request.timeout, job, listen: request.listen };
        if run.launched {
            let way = Launched::from_stdin(request.timeout)?;
            let meeting = Meeting { job: way.job(), ..meeting };
            return Ok(Mode::Others(Place { way: WayToMeet::known(way), meeting }));
        }
        let is_auto = matches!(request.meet.as_deref(), None | Some("auto"));
        if let (true, None, Some(agent)) = (is_auto, plan.me(), &run.agent) {
            let request = LaunchRequest {
                environ,
                command: &agent.program,
                arguments: &agent.arguments,
                more: &run.launcher_options,
                grace: run.grace,
            };
            if let Some(launcher) = scheduler::of(plan.scheduler()).launcher(&request) {
                return Ok(Mode::Step(launcher.map_err(RunError::Scheduler)?, meeting));
            }
        }
        Ok(place(request, environ, plan)?.map_or(Mode::Alone, Mode::Others))
    }

    /// Members run in a step that is to be started.
    pub(super) fn is_step(&self) -> bool {
        matches!(self, Mode::Step(..))
    }

    /// Variables that no member may inherit.
    pub(super) fn taken_variables(&self) -> &'static [&'static str] {
        match self {
            Mode::Others(place) => place.way.taken_variables(),
            Mode::Alone | Mode::Step(..) => &[],
        }
    }
}
