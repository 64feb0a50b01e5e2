//! From a roster to launches: variables and files.

use super::executor::Executor;
use super::losses::Hearing;
use super::member::Launch;
use super::output::Output;
use super::rehearsing::Rehearsing;
use super::run::{AgentError, RunSpec, io};
use super::standin::StandIns;
use crate::environ::Environ;
use crate::framework::{Extras, child_env};
use crate::ports::HeldPort;
use crate::process::limits::DescriptorLimit;
use crate::roster::Roster;
use std::collections::{BTreeMap, HashSet};

/// Launches of this agent's members, with all their variables and files; and what a person should know of these.
pub(super) fn prepare(
    roster: &Roster,
    held: BTreeMap<u32, HeldPort>,
    descriptors: DescriptorLimit,
    spec: &RunSpec,
    environ: &Environ,
    hearing: Hearing,
) -> Result<(Executor, Vec<String>), AgentError> {
    let plan = roster.plan();
    let roster_file = spec.private.join("roster.json");
    std::fs::write(&roster_file, roster.to_json()).map_err(io(&roster_file.display().to_string()))?;
    let log_folder = spec.log_dir.as_ref().map(|folder| folder.join(format!("attempt-{}", plan.attempt())));
    if let Some(folder) = &log_folder {
        std::fs::create_dir_all(folder)
            .map_err(|source| AgentError::LogDir { folder: folder.clone(), source })?;
    }
    let own: HashSet<u32> = held.keys().copied().collect();
    let (mut launches, mut notes) = (Vec::new(), Vec::new());
    for (rank, port) in held {
        let member = &plan.members()[rank as usize];
        let error_file = spec.private.join(format!("error-{rank}"));
        let extras = Extras {
            roster_file: Some(roster_file.clone()),
            error_file: Some(error_file.clone()),
            threads: spec.threads,
            hand_over: spec.hand_over,
        };
        let child = child_env(spec.framework, roster, member, environ, &extras)?;
        if launches.is_empty() {
            notes = child.notes;
        }
        let served = spec.served.as_ref().filter(|served| served.roles.contains(&member.role));
        launches.push(Launch {
            rank,
            role: member.role.to_string(),
            index: member.index,
            host: plan.host(member).unwrap_or("?").to_owned(),
            command: served.map_or(&spec.command, |served| &served.command).clone(),
            served: served.is_some(),
            variables: child.variables.into_iter().chain(spec.extra.iter().cloned()).collect(),
            withheld: spec.withheld,
            error_file,
            log_folder: log_folder.clone(),
            port: Some(port),
        });
    }
    let Hearing { wake, losses, heard } = hearing;
    let output = Output::new(spec.style.clone(), log_folder.is_some(), losses).map_err(io("output"))?;
    let mut executor = Executor::new(launches, output, (wake, heard), descriptors).map_err(io("log file"))?;
    executor.stand_ins = StandIns::new(spec.stand_in.clone(), &spec.private);
    executor.rehearsing = Rehearsing::new(spec.rehearsal.planned(plan), |rank| own.contains(&rank));
    Ok((executor, notes))
}
