//! With whom the members of this agent work: nobody, others that are met, or a step that is to be started.

use crate::args::RunArgs;
use crate::exit::Failure;
use crate::srun::Srun;
use rallypoint::allocation::{Allocation, Scheduler};
use rallypoint::environ::Environ;
use rallypoint::plan::Plan;
use rallypoint::rendezvous::{Meeting, Place, PlaceRequest, launched::Launched, place};

pub(crate) enum Company {
    /// All members run here.
    Alone,
    /// Others run elsewhere, and are met.
    Others(Place),
    /// All run in a step that is to be started.
    Step(Srun, Meeting),
}

impl Company {
    pub(crate) fn find(
        args: &RunArgs,
        environ: &Environ,
        allocation: &Allocation,
        plan: &Plan,
    ) -> Result<Company, Failure> {
        let given = &args.job.meet;
        let request = PlaceRequest {
            meet: given.meet.clone(),
            rank: given.rank,
            job: given.job.clone(),
            timeout: given.meet_timeout,
        };
        let meeting = Meeting { rank: None, key: None, timeout: given.meet_timeout, job: plan.job.clone() };
        if args.launched {
            let way = Launched::from_stdin(given.meet_timeout)?;
            let meeting = Meeting { job: way.job(), ..meeting };
            return Ok(Company::Others(Place { way: Box::new(way), meeting }));
        }
        let is_auto = matches!(given.meet.as_deref(), None | Some("auto"));
        if is_auto && allocation.scheduler == Scheduler::Slurm && allocation.me.is_none() {
            return Ok(Company::Step(Srun::new(args, environ)?, meeting));
        }
        Ok(place(&request, environ, allocation, plan)?.map_or(Company::Alone, Company::Others))
    }

    /// Variables that no member may inherit.
    pub(crate) fn taken_variables(&self) -> &'static [&'static str] {
        match self {
            Company::Others(place) => place.way.taken_variables(),
            Company::Alone | Company::Step(..) => &[],
        }
    }
}
