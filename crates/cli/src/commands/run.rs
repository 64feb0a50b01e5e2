//! `rallypoint run`

use crate::args::{EndingArgs, HandOverArg, LogErrorsArg, OutputArgs, RunArgs, Switch, UntilArg};
use crate::caller;
use crate::exit::error_text;
use crate::exit::{Exit, Failure, complaint, say};
use crate::here::{Here, look_up};
use crate::private::PrivateFolder;
use crate::program::must_exist;
use crate::run_mode::RunMode;
use crate::settings;
use crate::talk::{Loudness, Talk};
use crate::voice;
use rallypoint::check::{ConfigFile, Finding, Strategy, check};
use rallypoint::environ::Environ;
use rallypoint::hint;
use rallypoint::hint::{Hint, Hinted};
use rallypoint::job::{Job, Rules, Until};
use rallypoint::network;
use rallypoint::plan::Plan;
use rallypoint::ports::{HandOver, PortChoice};
use rallypoint::process::{check_descriptors, close_for_children};
use rallypoint::roles::{Role, RoleRequest};
use rallypoint::scheduler::{self, On, Place, RequeueError, local};
use rallypoint::supervise::guard::{self, Side};
use rallypoint::supervise::{
    LogErrors, OutputStyle, Requeue, Run, RunError, RunSpec, run_here, run_member, run_step,
};
use rallypoint::variables as var;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How long a guard may take to clean up after its agent.
const CLEAN_UP: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
enum CannotRun {
    #[error("no private folder can be made in {}: {source}", folder.display())]
    NoPrivateFolder { folder: PathBuf, source: std::io::Error },
    #[error("cannot read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("{option} {role}: no member of this job has that role, there are {there}")]
    NoSuchRole { option: &'static str, role: Role, there: String },
    #[error("{file} names no address for {role} {index}", role = .config.role, index = .config.index, file = .config.name)]
    NoAddress { config: Box<ConfigFile> },
}

impl Hinted for CannotRun {
    fn hint(&self) -> Option<Hint> {
        match self {
            CannotRun::NoPrivateFolder { source, .. } => Some(hint!(way_out(source))),
            CannotRun::NoSuchRole { .. } => Some(hint!("name one of those")),
            CannotRun::Unreadable { .. } | CannotRun::NoAddress { .. } => None,
        }
    }
}

/// What may help where no private folder can be made.
fn way_out(why: &std::io::Error) -> &'static str {
    match why.kind() {
        std::io::ErrorKind::FileTooLarge => "files may not be that large here, see ulimit -f",
        _ => "set TMPDIR",
    }
}

pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    guard::survive_file_limits()?;
    if let (Some(file), false) = (&args.job.output.events, args.launched) {
        close_for_children(file);
    }
    let environ = scheduler::environ_here();
    let mut job = settings::job_spec(&args.job.roles, &args.gpus)?;
    let mut ports = port_choice(args);
    let mut extra = Vec::new();
    let mut index = None;
    let mut cluster = None;
    let on = match &args.tf_config {
        None => args.on,
        Some(file) => {
            let (config, text) = read_config(file)?;
            let findings = check(std::slice::from_ref(&config), Strategy::Auto);
            if !findings.is_empty() {
                return Ok(refuse(&findings));
            }
            warn_if_elsewhere(&config, &environ, args);
            job.roles = RoleRequest::List(config.role.parse()?);
            ports = PortChoice::Base(own_port(&config)?);
            extra.push((var::TF_CONFIG.to_owned(), text));
            index = Some(config.index);
            cluster = Some(config);
            On::Scheduler(&local::Local)
        }
    };
    let allocation = scheduler::allocation(&environ, on, &job.roles)?;
    // How many tasks the step will have, and where, is up to --srun-args; its tasks will know, and say so.
    let plan = match allocation.me.is_none() && !args.job.srun_args.is_empty() {
        true => Plan::foreseen(allocation, &job)?,
        false => Plan::new(allocation, &job)?,
    };
    let plan = match index {
        Some(index) => plan.as_task(index),
        None => plan,
    };
    if args.dry_run {
        if !super::plan::is_told_elsewhere(&plan) {
            super::plan::write(&mut std::io::stdout().lock(), &plan)?;
        }
        return Ok(Exit::Success);
    }
    // What the scheduler reserved for this step comes before any free port.
    if let (PortChoice::Any, Some(reserved)) = (&ports, plan.ports()) {
        ports = PortChoice::Prefer(reserved.to_vec());
    }
    let program = args.command[0].to_string_lossy();
    must_exist(&program, &std::env::current_dir().unwrap_or_default(), environ.get(var::PATH))?;
    let mode = RunMode::find(args, &environ, &plan)?;
    let addressing = settings::addressing(&args.job.addresses)?;
    let framework = args.job.framework;
    let mut rules = rules(&args.job.ending)?;
    rules.stand_in = framework.has_servers() && args.job.serve.stand_in == Switch::On;
    // How many members there will be may be up to srun; they know, and say what is wrong.
    let all_are_known = !matches!(mode, RunMode::Step(..)) || args.job.srun_args.is_empty();
    if all_are_known {
        roles_exist(&rules, &plan, cluster.as_ref())?;
    }
    let tensorflow = super::serve::given(args, &environ, &mode)?;
    let served =
        super::serve::served(args, cluster.as_ref(), &plan, &rules, &environ, &mode, tensorflow.as_deref())?;
    if cluster.is_some() && rules.until == Until::Auto {
        // Its one member decides; whether that is a server is the file's business.
        rules.until = Until::All;
    }
    if all_are_known {
        Job::new(&plan, rules.clone()).ok_or_else(|| RunError::nobody(&rules))?;
    }
    if let Err(error) = check_descriptors().map_err(RunError::from) {
        voice::say_last(error_text(&error));
        return Ok(Exit::Run(error.code()));
    }
    let private = private_folder(&environ)?;
    let spec = RunSpec {
        command: args.command.clone(),
        served,
        stand_in: rules.stand_in.then(|| super::serve::stand_in(args, tensorflow)).transpose()?,
        rules,
        grace: args.job.ending.grace,
        framework,
        ports,
        hand_over: hand_over(args.job.ports.hand_over),
        style: style(&args.job.output, &environ),
        log_dir: args.job.output.log_dir.clone(),
        events: args.job.output.events.clone(),
        log_errors: match args.job.output.log_errors {
            LogErrorsArg::Fail => LogErrors::Fail,
            LogErrorsArg::Ignore => LogErrors::Ignore,
        },
        threads: args.job.threads == Switch::On,
        addressing,
        extra,
        withheld: mode.taken_variables(),
        requeue: requeue(args, &plan, &environ)?,
        ask_deadline: match plan.deadline() {
            None => scheduler::of(plan.scheduler()).deadline_question(),
            Some(_) => None,
        },
        private: private.path.clone(),
    };
    // The private folder goes with this function, in the guard.
    guarded(Run { plan, environ, spec }, mode, loudness(args))
}

/// Refuses rules for a role that nobody has: a mistyped one would be noticed when a member fails.
fn roles_exist(rules: &Rules, plan: &Plan, cluster: Option<&ConfigFile>) -> Result<(), CannotRun> {
    let there: BTreeSet<&str> = match cluster {
        None => plan.members().iter().map(|member| member.role.as_str()).collect(),
        Some(config) => config.cluster.keys().map(String::as_str).chain([config.role.as_str()]).collect(),
    };
    let restarts = rules.restarts.keys().map(|role| ("--restart", role));
    let named = restarts.chain(rules.tolerate.iter().map(|role| ("--tolerate", role)));
    for (option, role) in named {
        if !there.contains(role.as_str()) {
            let there = there.into_iter().collect::<Vec<_>>().join(", ");
            return Err(CannotRun::NoSuchRole { option, role: role.clone(), there });
        }
    }
    Ok(())
}

/// How `--requeue-on` asks; a launched task leaves that to its launcher.
fn requeue(args: &RunArgs, plan: &Plan, environ: &Environ) -> Result<Option<Requeue>, RequeueError> {
    if args.job.ending.requeue_on.is_none() || args.launched {
        return Ok(None);
    }
    scheduler::of(plan.scheduler()).requeue(plan, environ).map(Some)
}

/// Splits off the guard; the agent runs the job.
fn guarded(run: Run, mode: RunMode, loudness: Loudness) -> Result<Exit, Failure> {
    match guard::enter(run.spec.grace)? {
        Side::Guard(watched) => {
            if let (Some(agent), RunMode::Others(place)) = (watched.dead_agent(), mode) {
                clean_up(place, agent);
            }
            if let Some(message) = rallypoint_english::watched(&watched) {
                voice::say_last(format!("rallypoint: {message}\n"));
            }
            Ok(Exit::Run(watched.code()))
        }
        Side::Agent(pipe) => Ok(Exit::Run(agent(run, mode, pipe, loudness))),
    }
}

/// Takes back what a dead agent has published, if that can be done soon: the guard has to end.
fn clean_up(Place { mut way, .. }: Place, agent: u32) {
    let (end, ended) = std::sync::mpsc::channel();
    let clean_up = move || {
        way.clean_up_after(agent);
        _ = end.send(());
    };
    if std::thread::Builder::new().spawn(clean_up).is_ok() {
        _ = ended.recv_timeout(CLEAN_UP);
    }
}

fn agent(run: Run, mode: RunMode, pipe: OwnedFd, loudness: Loudness) -> u8 {
    let mut talk = Talk::new(loudness);
    if let Err(error) = caller::watch() {
        talk.failure(&format!("nobody watches whether the caller goes away: {error}"));
    }
    let mut say = |event| talk.hear(&event);
    let result = match mode {
        RunMode::Alone => run_here(run, Some(pipe), &mut say),
        RunMode::Others(Place { way, meeting }) => run_member(run, &meeting, way, Some(pipe), &mut say),
        RunMode::Step(launcher, meeting) => run_step(run, &meeting, &launcher, Some(pipe), &mut say),
    };
    let code = match result {
        Ok(outcome) => outcome.code(),
        Err(error) => {
            talk.error(&error);
            error.code()
        }
    };
    talk.finish();
    code
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

/// Says that the others will look for this member on another machine. It may still be right: some addresses lead
/// here by ways that nobody sees from here.
fn warn_if_elsewhere(config: &ConfigFile, environ: &Environ, args: &RunArgs) {
    let Some(address) = own_address(config).filter(|_| !args.job.output.quiet) else { return };
    let name = environ.hostname.clone().unwrap_or_default();
    let here = Here { name, addresses: network::own_addresses() };
    if let Some(why) = here.is_not(address, look_up) {
        let (file, role, index) = (&config.name, &config.role, config.index);
        say(&format!("warning: {file} is for another machine: the others look for {role} {index} at {why}"));
    }
}

fn own_address(config: &ConfigFile) -> Option<&str> {
    config.cluster.get(&config.role)?.get(config.index as usize)?.as_deref()
}

/// The port that the file gives this member; an evaluator has none, so any will do.
fn own_port(config: &ConfigFile) -> Result<u16, CannotRun> {
    match own_address(config) {
        None if config.role == "evaluator" => Ok(0),
        None => Err(CannotRun::NoAddress { config: Box::new(config.clone()) }),
        Some(address) => Ok(address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)),
    }
}

fn refuse(findings: &[Finding]) -> Exit {
    for finding in findings {
        let problem = format!("{}: {}", finding.file, finding.problem);
        voice::say_last(complaint(&problem, Some(&finding.fix)));
    }
    Exit::Findings
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
            UntilArg::First => Until::First,
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
