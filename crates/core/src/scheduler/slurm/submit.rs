//! `submit slurm`: a batch script from what one would type.

use super::SOURCE;
use super::follow::follow;
use super::script::{Request, script};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::plan::{JobSpec, Plan};
use crate::roles::RoleRequest;
use crate::scheduler::hypothetical::{self, Hypothesis};
use crate::scheduler::submit::{
    Given, HandedIn, OptionSpec, Order, Submission, Submit, SubmitError, Told, Value, hand_in, job_name,
};
use crate::shell;
use thiserror::Error;

/// `sbatch`
#[derive(Debug)]
pub(super) struct Sbatch;

/// A batch script.
#[derive(Debug)]
struct Batch {
    script: String,
}

#[derive(Debug, Error)]
enum CannotSubmit {
    #[error("options of sbatch {text:?}: a quote is not closed")]
    OpenQuote { text: String },
    #[error("expected options of sbatch, found {text:?}")]
    NoOption { text: String },
}

impl Hinted for CannotSubmit {
    fn hint(&self) -> Option<Hint> {
        match self {
            CannotSubmit::OpenQuote { .. } => None,
            CannotSubmit::NoOption { .. } => Some(hint!(Setting::Sbatch.with("\"--qos=shared\""))),
        }
    }
}

/// Names and values are sbatch's.
const OPTIONS: [OptionSpec; 13] = [
    OptionSpec::new("nodes", Value::Text("N"), "Hosts: a number, or 2-4").short('N'),
    OptionSpec::new("ntasks", Value::Count("N"), "Tasks, one per member").short('n'),
    OptionSpec::new("ntasks-per-node", Value::Count("N"), "Tasks on each host"),
    OptionSpec::new("cpus-per-task", Value::Count("N"), "CPUs of each task").short('c'),
    OptionSpec::new("gpus-per-node", Value::Text("N"), "GPUs of each host: 4, or a100:4"),
    OptionSpec::new("gpus-per-task", Value::Text("N"), "GPUs of each task"),
    OptionSpec::new("mem", Value::Text("SIZE"), "Memory of each host: 64G"),
    OptionSpec::new("time", Value::Text("TIME"), "Time limit: minutes, 1:00:00 or 2-00:00").short('t'),
    OptionSpec::new("partition", Value::Text("NAME"), "Partition").short('p'),
    OptionSpec::new("account", Value::Text("NAME"), "Account").short('A'),
    OptionSpec::new("job-name", Value::Text("NAME"), "The job's name [default: the script's]").short('J'),
    OptionSpec::new("output", Value::Text("FILE"), "Where the job's output goes: logs/%j.out").short('o'),
    OptionSpec::new(
        "sbatch",
        Value::Texts("OPTIONS"),
        "More options of sbatch: --sbatch=\"--qos=shared --exclusive\"",
    ),
];

/// The order in which the options stand in a script.
const IN_SCRIPT: [&str; 11] = [
    "partition",
    "account",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "gpus-per-node",
    "gpus-per-task",
    "mem",
    "time",
    "output",
];

impl Submit for Sbatch {
    fn about(&self) -> &'static str {
        "Through sbatch; its job id goes to stdout"
    }

    fn examples(&self) -> &'static str {
        "Examples:
  rallypoint submit slurm -N 2 --ntasks-per-node 4 --ps 1 -- python train.py
  rallypoint submit slurm -n 4 --gpus-per-task 1 --env tf -- python train.py
      after the lines of [env.tf] in rallypoint.toml
  rallypoint submit slurm -n 4 --sbatch=\"--qos=shared\" --dry-run -- python x.py
      the script alone
  rallypoint submit slurm -n 4 --time 10 --wait -- python train.py
      until the job is over, with its output"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn prepare(&self, order: Order<'_>) -> Result<Box<dyn Submission>, SubmitError> {
        roles_fit(&order.given, &order.roles)?;
        let request = request(&order.given, order.command)?;
        Ok(Box::new(Batch { script: script(&request, &order.work) }))
    }
}

impl Submission for Batch {
    fn script(&self) -> &str {
        &self.script
    }

    /// sbatch answers with `17`, or `17;cluster`.
    fn hand_in(&self) -> Result<HandedIn, SubmitError> {
        Ok(hand_in(SOURCE.title, "sbatch", &["--parsable"], &self.script, |answer| answer.split(';').next())?)
    }

    fn follow(&self, id: &str, tell: &mut dyn FnMut(Told<'_>)) -> Result<u8, SubmitError> {
        follow(id, tell)
    }
}

fn request(given: &Given, command: &[String]) -> Result<Request, CannotSubmit> {
    let name = given.text("job-name").map(str::to_owned).or_else(|| job_name(command));
    let mut options: Vec<(&'static str, String)> = name.map(|name| ("job-name", name)).into_iter().collect();
    options.extend(IN_SCRIPT.iter().filter_map(|name| Some((*name, given.text(name)?.to_owned()))));
    let mut more = Vec::new();
    for text in given.all("sbatch") {
        let words = shell::words(text).ok_or_else(|| CannotSubmit::OpenQuote { text: text.clone() })?;
        if !words.first().is_some_and(|word| word.starts_with('-')) {
            return Err(CannotSubmit::NoOption { text: text.clone() });
        }
        more.extend(words);
    }
    Ok(Request { options, more })
}

/// Roles that cannot be dealt over the tasks asked for are an error before the job has waited for them.
fn roles_fit(given: &Given, roles: &RoleRequest) -> Result<(), SubmitError> {
    let nodes: Option<u32> = given.text("nodes").unwrap_or("1").parse().ok();
    let ntasks = given.number("ntasks");
    // A task for each node, unless said otherwise.
    let each = match (nodes, ntasks, given.number("ntasks-per-node")) {
        _ if given.all("sbatch").iter().any(|text| says_how_many(text)) => return Ok(()),
        (Some(nodes), Some(tasks), _) => tasks.div_ceil(nodes.max(1)),
        (Some(_), None, each) => each.unwrap_or(1),
        (None, ..) => return Ok(()),
    };
    let tasks = ntasks.unwrap_or(each * nodes.unwrap_or(1));
    let hypothesis = Hypothesis {
        nodes: format!("n[1-{tasks}]"),
        tasks_per_node: Some(1),
        gpus_per_node: 0,
        cpus_per_task: None,
    };
    let spec = JobSpec { roles: roles.clone(), ..JobSpec::default() };
    Plan::new(hypothetical::allocation(&hypothesis, &spec.roles)?, &spec)?;
    Ok(())
}

/// True if options of sbatch ask for tasks or hosts in their own way.
fn says_how_many(options: &str) -> bool {
    let words = ["-n", "-N", "--nt", "--no", "--het", "-a"];
    options.split_whitespace().any(|word| words.iter().any(|start| word.starts_with(start)))
        || options.contains(':')
}
