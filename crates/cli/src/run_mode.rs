//! With whom the members of this agent work: nobody, others that are met, or a step that is to be started.

use crate::args::RunArgs;
use crate::caller;
use crate::exit::Failure;
use rallypoint::environ::Environ;
use rallypoint::plan::Plan;
use rallypoint::rendezvous::{Meeting, WayToMeet, launched::Launched};
use rallypoint::scheduler::{self, LaunchRequest, Place, PlaceRequest, place};
use rallypoint::supervise::Launcher;
use std::ffi::OsString;

pub(crate) enum RunMode {
    /// All members run here.
    Alone,
    /// Others run elsewhere, and are met.
    Others(Place),
    /// All run in a step that is to be started.
    Step(Launcher, Meeting),
}

impl RunMode {
    pub(crate) fn find(args: &RunArgs, environ: &Environ, plan: &Plan) -> Result<RunMode, Failure> {
        let given = &args.job.meet;
        let request = PlaceRequest {
            meet: given.meet.clone(),
            rank: given.rank,
            job: given.job.clone(),
            timeout: given.meet_timeout,
        };
        let meeting = Meeting {
            rank: None,
            key: None,
            timeout: given.meet_timeout,
            job: plan.job().map(str::to_owned),
        };
        if args.launched {
            let way = Launched::from_stdin(given.meet_timeout)?;
            let meeting = Meeting { job: way.job(), ..meeting };
            return Ok(RunMode::Others(Place { way: WayToMeet::known(way), meeting }));
        }
        let is_auto = matches!(given.meet.as_deref(), None | Some("auto"));
        if is_auto && plan.me().is_none() {
            // Behind the program and `run`, everything as it was typed; a caller is this process's alone.
            let (typed, _) = caller::split(std::env::args_os().collect());
            let arguments: Vec<OsString> = ["run", "--launched"]
                .map(OsString::from)
                .into_iter()
                .chain(typed.into_iter().skip(2))
                .collect();
            let request = LaunchRequest {
                environ,
                command: &std::env::current_exe()?,
                arguments: &arguments,
                more: &args.job.srun_args,
                grace: args.job.ending.grace,
            };
            if let Some(launcher) = scheduler::of(plan.scheduler()).launcher(&request) {
                return Ok(RunMode::Step(launcher?, meeting));
            }
        }
        Ok(place(&request, environ, plan)?.map_or(RunMode::Alone, RunMode::Others))
    }

    /// Variables that no member may inherit.
    pub(crate) fn taken_variables(&self) -> &'static [&'static str] {
        match self {
            RunMode::Others(place) => place.way.taken_variables(),
            RunMode::Alone | RunMode::Step(..) => &[],
        }
    }
}
