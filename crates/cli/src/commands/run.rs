//! `rallypoint run`

use crate::args::{EndingArgs, HandOverArg, LogErrorsArg, OutputArgs, RunArgs, Switch, UntilArg};
use crate::caller;
use crate::exit::error_text;
use crate::exit::{Exit, Failure, complaint, say};
use crate::here::{Here, look_up};
use crate::settings;
use crate::talk::{Loudness, Talk};
use crate::voice;
use rallypoint::check::{ConfigFile, Finding, Strategy, check};
use rallypoint::environ::Environ;
use rallypoint::job::{Rules, Until};
use rallypoint::ports::{HandOver, PortChoice};
use rallypoint::roles::Role;
use rallypoint::run::{Agent, Entered};
use rallypoint::supervise::{LogErrors, OutputStyle};
use rallypoint::variables as var;
use rallypoint::{Run, RunError, network, scheduler};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;

pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let environ = scheduler::environ_here();
    let mut run = asked_for(args, &environ)?;
    if let Some(file) = &args.tf_config {
        let (config, text) = read_config(file)?;
        let findings = check(std::slice::from_ref(&config), Strategy::Auto);
        if !findings.is_empty() {
            return Ok(refuse(&findings));
        }
        warn_if_elsewhere(&config, &environ, args);
        run = run.tf_config(config, text)?;
    }
    if args.dry_run {
        let plan = run.plan(&environ)?;
        if !super::plan::is_told_elsewhere(&plan) {
            super::plan::write(&mut std::io::stdout().lock(), &plan)?;
        }
        return Ok(Exit::Success);
    }
    let ready = match run.prepare_in(environ) {
        Ok(ready) => ready,
        Err(error) => {
            voice::say_last(error_text(&error));
            return Ok(Exit::Run(error.code()));
        }
    };
    match ready.enter()? {
        Entered::Agent(agent) => Ok(Exit::Run(work(*agent, loudness(args)))),
        Entered::Guard(watched) => {
            if let Some(message) = rallypoint_english::watched(&watched) {
                voice::say_last(format!("rallypoint: {message}\n"));
            }
            Ok(Exit::Run(watched.code()))
        }
    }
}

/// From arguments as typed to a job as meant.
fn asked_for(args: &RunArgs, environ: &Environ) -> Result<Run, Failure> {
    let (meet, ending, output, serve) = (&args.job.meet, &args.job.ending, &args.job.output, &args.job.serve);
    let job = settings::job_spec(&args.job.roles, &args.gpus)?;
    let mut run = Run::new(args.command.clone())
        .on(args.on)
        .role_request(job.roles)
        .gpus(job.gpus)
        .cpus_per_task(job.cpus_per_task)
        .rank(meet.rank)
        .job_name(meet.job.clone())
        .meet_timeout(meet.meet_timeout)
        .listen(settings::listen(meet.listen.as_deref())?)
        .rallypoint(std::env::current_exe()?, as_launched())
        .launched(args.launched)
        .launcher_options(args.job.srun_args.clone())
        .rules(rules(ending)?)
        .grace(ending.grace)
        .framework(args.job.framework)
        .threads(args.job.threads == Switch::On)
        .ports(port_choice(args), hand_over(args.job.ports.hand_over))
        .addressing(settings::addressing(&args.job.addresses)?)
        .output(style(output, environ))
        .log_dir(output.log_dir.clone())
        .events(output.events.clone())
        .log_errors(match output.log_errors {
            LogErrorsArg::Fail => LogErrors::Fail,
            LogErrorsArg::Ignore => LogErrors::Ignore,
        })
        .serve(serve.serve.clone(), serve.serve_config.clone())
        .tensorflow(serve.tensorflow.clone())
        .stand_in(serve.stand_in == Switch::On);
    for rehearsal in &args.job.rehearse.rehearse {
        run = run.rehearse(rehearsal.clone());
    }
    if let Some(way) = &meet.meet {
        run = run.meet(way);
    }
    Ok(run)
}

/// Behind the program and `run`, everything as it was typed; a caller is this process's alone.
fn as_launched() -> Vec<OsString> {
    let (typed, _) = caller::split(std::env::args_os().collect());
    ["run", "--launched"].map(OsString::from).into_iter().chain(typed.into_iter().skip(2)).collect()
}

/// Runs the job, and says what there is to say.
fn work(agent: Agent, loudness: Loudness) -> u8 {
    let mut talk = Talk::new(loudness);
    if let Err(error) = caller::watch() {
        talk.failure(&format!("nobody watches whether the caller goes away: {error}"));
    }
    let code = match agent.run(&mut |event| talk.hear(&event)) {
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
        .map_err(|source| RunError::Unreadable { file: file.to_owned(), source })?;
    let config = ConfigFile::parse(&file.display().to_string(), &text)?;
    Ok((config, text.trim().to_owned()))
}

/// Says that the others will look for this member on another machine. It may still be right: some addresses lead
/// here by ways that nobody sees from here.
fn warn_if_elsewhere(config: &ConfigFile, environ: &Environ, args: &RunArgs) {
    let Some(address) = config.own_address().filter(|_| !args.job.output.quiet) else { return };
    let name = environ.hostname.clone().unwrap_or_default();
    let here = Here { name, addresses: network::own_addresses() };
    if let Some(why) = here.is_not(address, look_up) {
        let (file, role, index) = (&config.name, &config.role, config.index);
        say(&format!("warning: {file} is for another machine: the others look for {role} {index} at {why}"));
    }
}

fn refuse(findings: &[Finding]) -> Exit {
    for finding in findings {
        let problem = format!("{}: {}", finding.file, finding.problem);
        voice::say_last(complaint(&problem, Some(&finding.fix)));
    }
    Exit::BadInput
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
