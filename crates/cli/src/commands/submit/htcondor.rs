//! `rallypoint submit htcondor`

use super::hand_in::{NotHandedIn, hand_in};
use super::{job_name, say, script_of, work};
use crate::args::{SubmitHtcondorArgs, UniverseArg};
use crate::commands::print;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::settings;
use clap::ArgMatches;
use rallypoint::allocation::Scheduler;
use rallypoint::environ::Environ;
use rallypoint::outcome::name;
use rallypoint::plan::{JobSpec, Plan};
use rallypoint::roles::{Role, RoleRequest, Workers};
use rallypoint::scheduler::local;
use rallypoint::submit::Work;
use rallypoint::submit::htcondor::{Request, Universe, description};
use rallypoint::submit::user_log::{Change, State, UserLog};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often the user log is looked at, with --wait. It is a file of this machine.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// The log is made with the job.
const LOG_APPEARS: Duration = Duration::from_secs(30);
/// How often one that waits is told that nothing has changed.
const REMINDER: Duration = Duration::from_secs(300);

#[derive(Debug, Error)]
enum CannotSubmit {
    #[error("how many workers? HTCondor starts a proc for each member; hint: --workers 2")]
    HowMany,
    #[error("--line {line:?}: expected `name = value`; hint: --line 'accounting_group = physics'")]
    NoLine { line: String },
    #[error("--input {}: there is no such file", file.display())]
    NoInput { file: PathBuf },
    #[error("--logs {}: {source}", folder.display())]
    NoLogs { folder: PathBuf, source: std::io::Error },
    #[error("{log} cannot be read: {source}; hint: condor_q tells how cluster {cluster} is")]
    NoLog { log: String, cluster: String, source: std::io::Error },
}

pub(super) fn run(args: &SubmitHtcondorArgs, matches: &ArgMatches, config: &Config) -> Result<Exit, Failure> {
    let work = work(&args.job, matches, config)?;
    let plan = plan(args)?;
    let (request, work) = request(args, &plan, work)?;
    let description = description(&request, &work);
    if args.job.dry_run {
        return print(description.as_bytes());
    }
    if !request.logs.is_empty() {
        let folder = PathBuf::from(&request.logs);
        std::fs::create_dir_all(&folder).map_err(|source| CannotSubmit::NoLogs { folder, source })?;
    }
    let cluster = submit(&description)?;
    print(format!("{cluster}\n").as_bytes())?;
    if args.job.wait { follow(&cluster, &request, &plan) } else { Ok(Exit::Success) }
}

/// Every member, as the job will have it.
fn plan(args: &SubmitHtcondorArgs) -> Result<Plan, Failure> {
    let roles = settings::role_request(&args.job.handed_on.roles)?;
    if matches!(roles, RoleRequest::Counts { workers: Workers::Rest, .. }) {
        return Err(CannotSubmit::HowMany.into());
    }
    let spec = JobSpec { roles, ..JobSpec::default() };
    let nowhere = Environ::from_variables::<String, String>([]);
    Ok(Plan::new(local::allocation(&nowhere, &spec.roles)?, &spec)?)
}

fn request(args: &SubmitHtcondorArgs, plan: &Plan, mut work: Work) -> Result<(Request, Work), Failure> {
    let asked = &args.resources;
    for line in &asked.line {
        if line.split_once('=').is_none_or(|(name, _)| name.trim().is_empty()) {
            return Err(CannotSubmit::NoLine { line: line.clone() }.into());
        }
    }
    // A name alone would be looked for in the submit directory.
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    if let Some(first) = work.command.first_mut() {
        first.clone_from(&own);
    }
    let transfer = match asked.no_shared_fs {
        false => None,
        true => Some(files_that_go_along(args, &mut work, own)?),
    };
    let ranks = || plan.members.iter().filter(|member| member.role == Role::Ps).map(|member| member.rank);
    let together = || ranks().zip(ranks().skip(1)).all(|(rank, next)| rank + 1 == next);
    let without_gpus = ranks().next().zip(ranks().next_back()).filter(|_| together());
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let resources = [
        ("request_cpus", number(asked.request_cpus)),
        ("request_memory", asked.request_memory.clone()),
        ("request_disk", asked.request_disk.clone()),
        ("requirements", asked.requirements.clone()),
    ];
    let request = Request {
        universe: match asked.universe {
            UniverseArg::Vanilla => Universe::Vanilla,
            UniverseArg::Parallel => Universe::Parallel,
        },
        roles: roles(plan),
        members: plan.world(),
        name: asked
            .batch_name
            .clone()
            .or_else(|| job_name(&args.job.command))
            .unwrap_or_else(|| "job".to_owned()),
        logs: asked.logs.clone().unwrap_or_default(),
        resources: resources.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        gpus: asked.request_gpus,
        without_gpus: without_gpus.map(|(first, last)| (first, last + 1)),
        transfer,
        retries: asked.retries,
        retry_failures: asked.retry_failures,
        grace: args.job.handed_on.ending.grace.as_secs(),
        more: asked.line.clone(),
    };
    Ok((request, work))
}

/// Files arrive in the job's working directory under their own names, so the script is called by its name.
fn files_that_go_along(
    args: &SubmitHtcondorArgs,
    work: &mut Work,
    own: String,
) -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    if work.setup.is_some() {
        files.push(own);
    }
    let typed: Vec<String> =
        args.job.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(script) = script_of(&typed).map(str::to_owned) {
        let base =
            Path::new(&script).file_name().map_or(script.clone(), |name| name.to_string_lossy().into_owned());
        let at = work.command.len() - typed.len();
        if let Some(word) = work.command[at..].iter_mut().find(|word| **word == script) {
            *word = base;
        }
        files.push(script);
    }
    for file in &args.resources.input {
        if !Path::new(file).exists() {
            return Err(CannotSubmit::NoInput { file: PathBuf::from(file) }.into());
        }
        files.push(file.clone());
    }
    Ok(files)
}

/// `1 ps, 2 workers`
fn roles(plan: &Plan) -> String {
    let mut counts: Vec<(&Role, u32)> = Vec::new();
    for member in &plan.members {
        match counts.iter_mut().find(|(role, _)| *role == &member.role) {
            Some((_, count)) => *count += 1,
            None => counts.push((&member.role, 1)),
        }
    }
    let plural = |role: &Role, count: u32| if count > 1 && *role != Role::Ps { "s" } else { "" };
    let words: Vec<String> =
        counts.iter().map(|(role, count)| format!("{count} {role}{}", plural(role, *count))).collect();
    words.join(", ")
}

/// The cluster's id: condor_submit answers with `12.0 - 12.2`.
fn submit(description: &str) -> Result<String, NotHandedIn> {
    hand_in(Scheduler::HtCondor, "condor_submit", &["-terse", "-"], description, |answer| {
        answer.lines().last()?.split('.').next()
    })
}

/// Tells what happens to each member, until all have ended. Ctrl-C leaves the job running.
fn follow(cluster: &str, request: &Request, plan: &Plan) -> Result<Exit, Failure> {
    let parallel = request.universe == Universe::Parallel;
    let path = request.log(cluster);
    let mut log = UserLog::new(request.members, parallel);
    let who = |member: u32| match parallel {
        true => format!("{} (node {member})", name(&plan.members[member as usize])),
        false => format!("{} ({cluster}.{member})", name(&plan.members[member as usize])),
    };
    let started = Instant::now();
    let mut position = 0;
    let mut told = Instant::now();
    say(&summary(&log, &who));
    loop {
        let changes = match read_from(&path, &mut position) {
            Ok(text) => log.read(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && started.elapsed() < LOG_APPEARS => {
                Vec::new()
            }
            Err(source) => {
                return Err(CannotSubmit::NoLog { log: path, cluster: cluster.to_owned(), source }.into());
            }
        };
        for change in &changes {
            say(&line(change, &who));
        }
        if !changes.is_empty() || told.elapsed() > REMINDER {
            say(&summary(&log, &who));
            told = Instant::now();
        }
        if log.is_over() {
            return Ok(Exit::Run(log.code()));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// What was written since the last time.
fn read_from(path: &str, position: &mut u64) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(*position))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    *position += bytes.len() as u64;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `worker 0 (12.1) has landed on ex2.lab`
fn line(change: &Change, who: &dyn Fn(u32) -> String) -> String {
    let member = who(change.member);
    match &change.state {
        State::Idle if change.evicted => format!("{member} was evicted, and waits for a host again"),
        State::Idle => format!("{member} waits for a host"),
        State::Running(host) => format!("{member} has landed on {host}"),
        State::Held(why) => format!("{member} is held: {why}"),
        State::Disconnected => format!("{member} does not answer; HTCondor tries to reach its host"),
        State::Ended(code) => format!("{member} has ended with {code}"),
        State::Removed => format!("{member} was removed"),
    }
}

/// `1 idle (worker 1 (12.2)), 2 landed, 0 ended`
fn summary(log: &UserLog, who: &dyn Fn(u32) -> String) -> String {
    let count = |matches: fn(&State) -> bool| log.states.values().filter(|state| matches(state)).count();
    let idle: Vec<String> = log
        .states
        .iter()
        .filter(|(_, state)| matches!(state, State::Idle | State::Held(_)))
        .map(|(member, _)| who(*member))
        .collect();
    let named = match idle.len() {
        0 => String::new(),
        1..=8 => format!(": {}", idle.join(", ")),
        more => format!(": {}, and {} more", idle[..8].join(", "), more - 8),
    };
    let landed = count(|state| matches!(state, State::Running(_) | State::Disconnected));
    let ended = count(|state| matches!(state, State::Ended(_) | State::Removed));
    format!("{landed} landed, {ended} ended, {} not on a host{named}", idle.len())
}
