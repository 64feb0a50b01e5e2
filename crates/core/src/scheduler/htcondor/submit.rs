//! `submit htcondor`: a submit description from what one would type.

use super::SOURCE;
use super::description::{Request, Universe, description};
use super::follow::follow;
use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::plan::{JobSpec, Plan};
use crate::roles::{Role, RoleRequest, Workers};
use crate::scheduler::local;
use crate::scheduler::submit::{
    HandedIn, OptionSpec, Order, Submission, Submit, SubmitError, Told, Value, Work, hand_in, job_name,
    script_of,
};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// `condor_submit`
#[derive(Debug)]
pub(super) struct CondorSubmit;

/// A submit description, and what it was made from.
#[derive(Debug)]
struct Description {
    text: String,
    request: Request,
    plan: Plan,
}

#[derive(Debug, Error)]
enum CannotSubmit {
    #[error("how many workers? HTCondor starts a proc for each member")]
    HowMany,
    #[error("the line {line:?}: expected `name = value`")]
    NoLine { line: String },
    #[error("the input {}: there is no such file", file.display())]
    NoInput { file: PathBuf },
    #[error("the directory for logs {}: {source}", folder.display())]
    NoLogs { folder: PathBuf, source: std::io::Error },
}

impl Hinted for CannotSubmit {
    fn hint(&self) -> Option<Hint> {
        match self {
            CannotSubmit::HowMany => Some(hint!(Setting::Workers.with("2"))),
            CannotSubmit::NoLine { .. } => Some(hint!(Setting::Line.with("'accounting_group = physics'"))),
            CannotSubmit::NoInput { .. } | CannotSubmit::NoLogs { .. } => None,
        }
    }
}

/// How often all are started again, unless said otherwise.
const RETRIES: u32 = 5;

/// Names and values are those of a submit description.
const OPTIONS: [OptionSpec; 13] = [
    OptionSpec::new(
        "universe",
        Value::Choice(&["vanilla", "parallel"]),
        "One proc per member, or one node of a dedicated scheduler",
    ),
    OptionSpec::new("request-cpus", Value::Count("N"), "CPUs of each member"),
    OptionSpec::new(
        "request-gpus",
        Value::Count("N"),
        "GPUs of each member; in the vanilla universe a parameter server gets none",
    ),
    OptionSpec::new("request-memory", Value::Text("SIZE"), "Memory of each member: 8GB"),
    OptionSpec::new("request-disk", Value::Text("SIZE"), "Disk of each member: 20GB"),
    OptionSpec::new("requirements", Value::Text("EXPRESSION"), "Which hosts will do: 'Machine != \"n7\"'"),
    OptionSpec::new(
        "batch-name",
        Value::Text("NAME"),
        "The job's name, and its files' [default: the script's]",
    ),
    OptionSpec::new("logs", Value::Text("DIR"), "A directory for output and logs [default: this one]"),
    OptionSpec::new(
        "no-shared-fs",
        Value::Flag,
        "The execute hosts do not see this directory: rallypoint and the script go with the job",
    ),
    OptionSpec::new(
        "input",
        Value::Texts("FILE"),
        "With --no-shared-fs, another file that goes with the job",
    )
    .requires("no-shared-fs"),
    OptionSpec::new(
        "retries",
        Value::Number("N", RETRIES),
        "How often all are started again if one was evicted or lost; in the vanilla universe",
    ),
    OptionSpec::new("retry-failures", Value::Flag, "Start all again if the program itself has failed, too"),
    OptionSpec::new(
        "line",
        Value::Texts("LINE"),
        "More lines of the submit description: 'accounting_group = physics'",
    ),
];

impl Submit for CondorSubmit {
    fn about(&self) -> &'static str {
        "Through condor_submit; its cluster id goes to stdout"
    }

    fn examples(&self) -> &'static str {
        "Examples:
  rallypoint submit htcondor --ps 1 --workers 2 --request-gpus 1 -- python x.py
  rallypoint submit htcondor --workers 4 --no-shared-fs --wait -- python x.py
      files go with the job; until it is over
  rallypoint submit htcondor --universe parallel --workers 2 --dry-run -- ./x
      the description alone"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn prepare(&self, order: Order<'_>) -> Result<Box<dyn Submission>, SubmitError> {
        let plan = plan(order.roles.clone())?;
        let (request, work) = request(order, &plan)?;
        let text = description(&request, &work);
        Ok(Box::new(Description { text, request, plan }))
    }
}

impl Submission for Description {
    fn script(&self) -> &str {
        &self.text
    }

    /// condor_submit answers with `12.0 - 12.2`.
    fn hand_in(&self) -> Result<HandedIn, SubmitError> {
        if !self.request.logs.is_empty() {
            let folder = PathBuf::from(&self.request.logs);
            std::fs::create_dir_all(&folder).map_err(|source| CannotSubmit::NoLogs { folder, source })?;
        }
        let options = ["-terse", "-"];
        Ok(hand_in(SOURCE.title, "condor_submit", &options, &self.text, |answer| {
            answer.lines().last()?.split('.').next()
        })?)
    }

    fn follow(&self, id: &str, tell: &mut dyn FnMut(Told<'_>)) -> Result<u8, SubmitError> {
        follow(id, &self.request, &self.plan, tell)
    }
}

/// Every member, as the job will have it.
fn plan(roles: RoleRequest) -> Result<Plan, SubmitError> {
    if matches!(roles, RoleRequest::Counts { workers: Workers::Rest, .. }) {
        return Err(CannotSubmit::HowMany.into());
    }
    let spec = JobSpec { roles, ..JobSpec::default() };
    let nowhere = Environ::from_variables::<String, String>([]);
    Ok(Plan::new(local::allocation(&nowhere, &spec.roles)?, &spec)?)
}

fn request(order: Order<'_>, plan: &Plan) -> Result<(Request, Work), CannotSubmit> {
    let Order { given, grace, mut work, command, own, .. } = order;
    for line in given.all("line") {
        if line.split_once('=').is_none_or(|(name, _)| name.trim().is_empty()) {
            return Err(CannotSubmit::NoLine { line: line.clone() });
        }
    }
    // A name alone would be looked for in the submit directory.
    let own = own.to_string_lossy().into_owned();
    if let Some(first) = work.command.first_mut() {
        first.clone_from(&own);
    }
    let transfer = match given.has("no-shared-fs") {
        false => None,
        true => Some(files_that_go_along(given.all("input"), command, &mut work, own)?),
    };
    let ranks = || plan.members().iter().filter(|member| member.role == Role::Ps).map(|member| member.rank);
    let together = || ranks().zip(ranks().skip(1)).all(|(rank, next)| rank + 1 == next);
    let without_gpus = ranks().next().zip(ranks().next_back()).filter(|_| together());
    let asked = |name: &'static str, option: &str| Some((name, given.text(option)?.to_owned()));
    let resources = [
        asked("request_cpus", "request-cpus"),
        asked("request_memory", "request-memory"),
        asked("request_disk", "request-disk"),
        asked("requirements", "requirements"),
    ];
    let name = given.text("batch-name").map(str::to_owned).or_else(|| job_name(command));
    let request = Request {
        universe: match given.text("universe") {
            Some("parallel") => Universe::Parallel,
            _ => Universe::Vanilla,
        },
        roles: roles(plan),
        members: plan.world(),
        name: name.unwrap_or_else(|| "job".to_owned()),
        logs: given.text("logs").unwrap_or_default().to_owned(),
        resources: resources.into_iter().flatten().collect(),
        gpus: given.number("request-gpus"),
        without_gpus: without_gpus.map(|(first, last)| (first, last + 1)),
        transfer,
        retries: given.number("retries").unwrap_or(RETRIES),
        retry_failures: given.has("retry-failures"),
        grace: grace.as_secs(),
        more: given.all("line").to_vec(),
    };
    Ok((request, work))
}

/// Files arrive in the job's working directory under their own names, so the script is called by its name.
fn files_that_go_along(
    input: &[String],
    command: &[String],
    work: &mut Work,
    own: String,
) -> Result<Vec<String>, CannotSubmit> {
    let mut files = Vec::new();
    if work.setup.is_some() {
        files.push(own);
    }
    if let Some(script) = script_of(command) {
        let base = Path::new(script).file_name().map_or(script.into(), |name| name.to_string_lossy());
        let at = work.command.len() - command.len();
        if let Some(word) = work.command[at..].iter_mut().find(|word| *word == script) {
            *word = base.into_owned();
        }
        files.push(script.to_owned());
    }
    for file in input {
        if !Path::new(file).exists() {
            return Err(CannotSubmit::NoInput { file: PathBuf::from(file) });
        }
        files.push(file.clone());
    }
    Ok(files)
}

/// `1 ps, 2 workers`
fn roles(plan: &Plan) -> String {
    let plural = |role: &Role, count: u32| if count > 1 && *role != Role::Ps { "s" } else { "" };
    let counts = plan.role_counts();
    let words: Vec<String> =
        counts.iter().map(|(role, count)| format!("{count} {role}{}", plural(role, *count))).collect();
    words.join(", ")
}
