//! `rallypoint run`

use crate::args::{EndingArgs, HandOverArg, OutputArgs, RunArgs, Switch, UntilArg};
use crate::company::Company;
use crate::exit::{Exit, Failure, report};
use crate::private::PrivateFolder;
use crate::settings;
use crate::talk::{Loudness, Talk};
use rallypoint::allocation::{Allocation, Scheduler};
use rallypoint::check::{ConfigFile, Finding, Strategy, check};
use rallypoint::environ::Environ;
use rallypoint::job::{Rules, Until};
use rallypoint::machine::{find_on_path, is_executable};
use rallypoint::plan::{JobSpec, Plan};
use rallypoint::ports::{HandOver, PortChoice};
use rallypoint::rendezvous::Place;
use rallypoint::roles::{Role, RoleRequest};
use rallypoint::scheduler::{self, slurm};
use rallypoint::supervise::guard::{self, Side};
use rallypoint::supervise::{OutputStyle, Requeue, Run, RunError, RunSpec, run_here, run_member, run_step};
use rallypoint::variables as var;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
enum CannotRun {
    #[error("{program} is not a program that can be run; hint: give its path, or put it on PATH")]
    NoProgram { program: String },
    #[error(
        "{program} cannot be looked for: PATH is not set in this job; hint: give its whole path, or write `getenv = PATH` into the submit description"
    )]
    NoPath { program: String },
    #[error("no private folder can be made in {}: {source}; hint: set TMPDIR", folder.display())]
    NoPrivateFolder { folder: PathBuf, source: std::io::Error },
    #[error("--requeue-on: {scheduler} has no queue that a job could ask to go back to")]
    NoRequeue { scheduler: Scheduler },
    #[error("cannot read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("{file} names no address for {role} {index}", role = .config.role, index = .config.index, file = .config.name)]
    NoAddress { config: Box<ConfigFile> },
}

pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let environ = Environ::here();
    let mut job = settings::job_spec(&args.job.roles, &args.gpus)?;
    let mut ports = port_choice(args);
    let mut extra = Vec::new();
    let mut index = None;
    let mut cluster = None;
    let on = match &args.tf_config {
        None => settings::on(args.on),
        Some(file) => {
            let (config, text) = read_config(file)?;
            let findings = check(std::slice::from_ref(&config), Strategy::Auto);
            if !findings.is_empty() {
                return Ok(refuse(&findings));
            }
            job.roles = RoleRequest::List(config.role.parse()?);
            ports = PortChoice::Base(own_port(&config)?);
            extra.push((var::TF_CONFIG.to_owned(), text));
            index = Some(config.index);
            cluster = Some(config);
            scheduler::On::Local
        }
    };
    let allocation = scheduler::allocation(&environ, on, &job.roles)?;
    let mut plan = match Plan::new(allocation.clone(), &job) {
        // How many tasks the step will have is up to --srun-args; its tasks will know, and say so.
        Err(_) if allocation.me.is_none() && !args.job.srun_args.is_empty() => {
            Plan::new(allocation.clone(), &JobSpec::default())?
        }
        plan => plan?,
    };
    if allocation.me.is_none() && !args.job.srun_args.is_empty() {
        // They may lay out the tasks otherwise, too.
        plan.members.iter_mut().for_each(|member| member.place = None);
    }
    if let Some(index) = index {
        plan.members[0].index = index;
    }
    if args.dry_run {
        super::plan::write(&mut std::io::stdout().lock(), &plan)?;
        return Ok(Exit::Success);
    }
    // What the scheduler reserved for this step comes before any free port.
    if let (PortChoice::Any, Some([first, .., last])) = (&ports, plan.ports.as_deref()) {
        ports = PortChoice::Prefer(*first..=*last);
    }
    must_exist(&args.command[0], environ.get(var::PATH))?;
    let company = Company::find(args, &environ, &allocation, &plan)?;
    let addressing = settings::addressing(&args.job.addresses)?;
    let rules = rules(&args.job.ending)?;
    let served = super::serve::served(args, cluster.as_ref(), &plan, &rules, &environ, &company)?;
    let private = private_folder(&environ)?;
    let spec = RunSpec {
        command: args.command.clone(),
        served,
        rules,
        grace: args.job.ending.grace,
        framework: settings::framework(args.job.framework),
        ports,
        hand_over: hand_over(args.job.ports.hand_over),
        style: style(&args.job.output, &environ),
        log_dir: args.job.output.log_dir.clone(),
        events: args.job.output.events.clone(),
        threads: args.job.threads == Switch::On,
        addressing,
        extra,
        withheld: company.taken_variables(),
        requeue: requeue(args, &allocation, &environ)?,
        ask_deadline: match (allocation.scheduler, allocation.deadline) {
            (Scheduler::Slurm, None) => Some(slurm::control::ask_deadline),
            _ => None,
        },
        private: private.path.clone(),
    };
    let exit = guarded(Run { allocation, job, plan, environ, spec }, company, loudness(args));
    private.remove();
    exit
}

/// How `--requeue-on` asks; a launched task leaves that to its launcher.
fn requeue(args: &RunArgs, allocation: &Allocation, environ: &Environ) -> Result<Option<Requeue>, CannotRun> {
    if args.job.ending.requeue_on.is_none() || args.launched {
        return Ok(None);
    }
    let (Scheduler::Slurm, Some(job)) = (allocation.scheduler, allocation.job.clone()) else {
        return Err(CannotRun::NoRequeue { scheduler: allocation.scheduler });
    };
    let command = slurm::control::requeue_command(&job, environ.get(var::PATH))
        .ok_or_else(|| CannotRun::NoProgram { program: "scontrol, for --requeue-on,".to_owned() })?;
    Ok(Some(Requeue { job, command }))
}

/// Splits off the guard; the agent runs the job.
fn guarded(run: Run, company: Company, loudness: Loudness) -> Result<Exit, Failure> {
    match guard::enter()? {
        Side::Guard { code, message } => {
            if let Some(message) = message {
                _ = writeln!(std::io::stderr(), "rallypoint: {message}");
            }
            Ok(Exit::Run(code))
        }
        Side::Agent(pipe) => Ok(Exit::Run(agent(run, company, pipe, loudness))),
    }
}

fn agent(run: Run, company: Company, pipe: OwnedFd, loudness: Loudness) -> u8 {
    let mut talk = Talk::new(loudness);
    let mut say = |notice| talk.notice(notice);
    let result = match company {
        Company::Alone => run_here(run, Some(pipe), &mut say),
        Company::Others(Place { mut way, meeting }) => {
            run_member(run, &meeting, way.as_mut(), Some(pipe), &mut say)
        }
        Company::Step(srun, meeting) => {
            run_step(run, &meeting, &srun.variables, &srun.command, Some(pipe), &mut say)
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            talk.end_bar();
            let code = error.code();
            _ = report(Err(Box::<RunError>::new(error)));
            code
        }
    }
}

fn loudness(args: &RunArgs) -> Loudness {
    match (args.launched, args.job.output.quiet) {
        (true, _) => Loudness::OwnFailures,
        (false, true) => Loudness::Failures,
        (false, false) => Loudness::Everything,
    }
}

fn read_config(file: &Path) -> Result<(ConfigFile, String), Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| CannotRun::Unreadable { file: file.to_owned(), source })?;
    let config = ConfigFile::parse(&file.display().to_string(), &text)?;
    Ok((config, text.trim().to_owned()))
}

/// The port that the file gives this member; an evaluator has none, so any will do.
fn own_port(config: &ConfigFile) -> Result<u16, CannotRun> {
    let address =
        config.cluster.get(&config.role).and_then(|list| list.get(config.index as usize)?.as_deref());
    match address {
        None if config.role == "evaluator" => Ok(0),
        None => Err(CannotRun::NoAddress { config: Box::new(config.clone()) }),
        Some(address) => Ok(address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)),
    }
}

fn refuse(findings: &[Finding]) -> Exit {
    let mut stderr = std::io::stderr().lock();
    for finding in findings {
        _ = writeln!(stderr, "error: {}: {}\nhint: {}", finding.file, finding.problem, finding.fix);
    }
    Exit::Findings
}

/// A program that does not exist is found before anything waits.
fn must_exist(program: &OsStr, path: Option<&str>) -> Result<(), CannotRun> {
    let name = program.to_string_lossy();
    let found = if name.contains('/') {
        is_executable(Path::new(program))
    } else {
        find_on_path(&name, path).is_some()
    };
    match (found, path) {
        (true, _) => Ok(()),
        // HTCondor gives some jobs none.
        (false, None) if !name.contains('/') => Err(CannotRun::NoPath { program: name.into_owned() }),
        (false, _) => Err(CannotRun::NoProgram { program: name.into_owned() }),
    }
}

/// In TMPDIR, or in memory: 64 agents that begin at once keep a disk busy with their small files.
fn private_folder(environ: &Environ) -> Result<PrivateFolder, CannotRun> {
    let make = |folder: &str| {
        let folder = PathBuf::from(folder);
        PrivateFolder::new(&folder, environ.now)
            .map_err(|source| CannotRun::NoPrivateFolder { folder, source })
    };
    match environ.get_nonempty(var::TMPDIR) {
        Some(folder) => make(folder),
        None => make("/dev/shm").or_else(|_| make("/tmp")),
    }
}

fn port_choice(args: &RunArgs) -> PortChoice {
    match (args.job.ports.port_base, args.job.ports.port_range) {
        (Some(base), _) => PortChoice::Base(base),
        (None, Some((lo, hi))) => PortChoice::Range(lo..=hi),
        (None, None) => PortChoice::Any,
    }
}

fn hand_over(arg: HandOverArg) -> HandOver {
    match arg {
        HandOverArg::ReuseAddr => HandOver::ReuseAddr,
        HandOverArg::ReusePort => HandOver::ReusePort,
        HandOverArg::Release => HandOver::Release,
    }
}

fn rules(args: &EndingArgs) -> Result<Rules, Failure> {
    let mut rules = Rules {
        until: match args.until {
            UntilArg::Auto => Until::Auto,
            UntilArg::Chief => Until::Chief,
            UntilArg::Workers => Until::Workers,
            UntilArg::All => Until::All,
        },
        requeue_on: args.requeue_on,
        ..Rules::default()
    };
    for (role, count) in &args.restart {
        rules.restarts.insert(role.parse::<Role>()?, *count);
    }
    for role in &args.tolerate {
        rules.tolerate.insert(role.parse()?);
    }
    Ok(rules)
}

fn style(args: &OutputArgs, environ: &Environ) -> OutputStyle {
    let terminal = !args.quiet && (args.log_dir.is_none() || args.tee);
    let colour = std::io::stdout().is_terminal() && environ.get_nonempty(var::NO_COLOR).is_none();
    OutputStyle { terminal, prefix: args.prefix.clone(), colour }
}
