//! `rallypoint submit slurm`

use super::hand_in::{NotHandedIn, hand_in};
use super::{job_name, say, work};
use crate::args::SubmitSlurmArgs;
use crate::commands::print;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::settings;
use clap::ArgMatches;
use rallypoint::allocation::Scheduler;
use rallypoint::plan::{JobSpec, Plan};
use rallypoint::scheduler::hypothetical::{self, Hypothesis};
use rallypoint::submit::shell_words;
use rallypoint::submit::slurm::{JobStatus, Request, script};
use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use thiserror::Error;

/// How often Slurm is asked, with --wait: a controller serves thousands of users.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(2);
/// How many questions in a row may stay without an answer.
const UNANSWERED: u32 = 30;

#[derive(Debug, Error)]
enum CannotSubmit {
    #[error("--sbatch {text:?}: a quote is not closed")]
    OpenQuote { text: String },
    #[error("--sbatch {text:?}: expected options of sbatch; hint: --sbatch=\"--qos=shared\"")]
    NoOption { text: String },
    #[error("scontrol cannot be started: {source}; hint: job {job} goes on without; squeue tells how it is")]
    NoScontrol { job: String, source: std::io::Error },
    #[error("Slurm does not tell how job {job} is: {reason}")]
    Unknown { job: String, reason: String },
}

pub(super) fn run(args: &SubmitSlurmArgs, matches: &ArgMatches, config: &Config) -> Result<Exit, Failure> {
    let work = work(&args.job, matches, config)?;
    roles_fit(args)?;
    let script = script(&request(args)?, &work);
    if args.job.dry_run {
        return print(script.as_bytes());
    }
    let job = submit(&script)?;
    print(format!("{job}\n").as_bytes())?;
    if args.job.wait { follow(&job) } else { Ok(Exit::Success) }
}

fn request(args: &SubmitSlurmArgs) -> Result<Request, Failure> {
    let asked = &args.resources;
    let name = asked.job_name.clone().or_else(|| job_name(&args.job.command));
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let options = [
        ("job-name", name),
        ("partition", asked.partition.clone()),
        ("account", asked.account.clone()),
        ("nodes", asked.nodes.clone()),
        ("ntasks", number(asked.ntasks)),
        ("ntasks-per-node", number(asked.ntasks_per_node)),
        ("cpus-per-task", number(asked.cpus_per_task)),
        ("gpus-per-node", asked.gpus_per_node.clone()),
        ("gpus-per-task", asked.gpus_per_task.clone()),
        ("mem", asked.mem.clone()),
        ("time", asked.time.clone()),
        ("output", asked.output_file.clone()),
    ];
    let mut more = Vec::new();
    for text in &asked.sbatch {
        let words = shell_words(text).ok_or_else(|| CannotSubmit::OpenQuote { text: text.clone() })?;
        if !words.first().is_some_and(|word| word.starts_with('-')) {
            return Err(CannotSubmit::NoOption { text: text.clone() }.into());
        }
        more.extend(words);
    }
    let options = options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    Ok(Request { options, more })
}

/// Roles that cannot be dealt over the tasks asked for are an error before the job has waited for them.
fn roles_fit(args: &SubmitSlurmArgs) -> Result<(), Failure> {
    let asked = &args.resources;
    let roles = settings::role_request(&args.job.handed_on.roles)?;
    let nodes: Option<u32> = asked.nodes.as_deref().unwrap_or("1").parse().ok();
    // A task for each node, unless said otherwise.
    let each = match (nodes, asked.ntasks, asked.ntasks_per_node) {
        _ if asked.sbatch.iter().any(|text| says_how_many(text)) => return Ok(()),
        (Some(nodes), Some(tasks), _) => tasks.div_ceil(nodes.max(1)),
        (Some(_), None, each) => each.unwrap_or(1),
        (None, ..) => return Ok(()),
    };
    let tasks = asked.ntasks.unwrap_or(each * nodes.unwrap_or(1));
    let hypothesis = Hypothesis {
        nodes: format!("n[1-{tasks}]"),
        tasks_per_node: Some(1),
        gpus_per_node: 0,
        cpus_per_task: None,
    };
    let spec = JobSpec { roles, ..JobSpec::default() };
    Plan::new(hypothetical::allocation(&hypothesis, &spec.roles)?, &spec)?;
    Ok(())
}

/// True if options of sbatch ask for tasks or hosts in their own way.
fn says_how_many(options: &str) -> bool {
    let words = ["-n", "-N", "--nt", "--no", "--het", "-a"];
    options.split_whitespace().any(|word| words.iter().any(|start| word.starts_with(start)))
        || options.contains(':')
}

/// The job's id: sbatch answers with `17`, or `17;cluster`.
fn submit(script: &str) -> Result<String, NotHandedIn> {
    hand_in(Scheduler::Slurm, "sbatch", &["--parsable"], script, |answer| answer.split(';').next())
}

/// Tells the job's state when it changes, and what it writes, until it is over. Ctrl-C leaves it running.
fn follow(job: &str) -> Result<Exit, Failure> {
    let mut told = String::new();
    let mut log = Log { position: 0 };
    let mut unanswered = 0;
    loop {
        let statuses = match ask(job) {
            Ok(statuses) => statuses,
            Err(error) if unanswered < UNANSWERED => {
                unanswered += 1;
                if unanswered == 1 {
                    say(&format!("{error}; asking again"));
                }
                std::thread::sleep(BETWEEN_QUESTIONS);
                continue;
            }
            Err(error) => return Err(error),
        };
        unanswered = 0;
        let state = describe(job, &statuses);
        let over = statuses.iter().all(JobStatus::is_over);
        // What it wrote comes before how it ended.
        if let [status] = statuses.as_slice() {
            log.show(status)?;
        }
        if state != told {
            say(&state);
            told = state;
        }
        if over {
            let code = statuses.iter().map(JobStatus::code).find(|&code| code != 0).unwrap_or(0);
            return Ok(Exit::Run(code));
        }
        std::thread::sleep(BETWEEN_QUESTIONS);
    }
}

/// One status, or several for an array.
fn ask(job: &str) -> Result<Vec<JobStatus>, Failure> {
    let answer = Command::new("scontrol")
        .args(["--oneliner", "show", "job", job])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| CannotSubmit::NoScontrol { job: job.to_owned(), source })?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let statuses: Vec<JobStatus> = text.lines().filter_map(JobStatus::parse).collect();
    match statuses.is_empty() {
        true => {
            let reason = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
            Err(CannotSubmit::Unknown { job: job.to_owned(), reason }.into())
        }
        false => Ok(statuses),
    }
}

/// `job 7: RUNNING on n[01-02]`
fn describe(job: &str, statuses: &[JobStatus]) -> String {
    let [status] = statuses else {
        let over = statuses.iter().filter(|status| status.is_over()).count();
        return format!("job {job}: {over} of {} tasks of the array are over", statuses.len());
    };
    let why = match status.state.as_str() {
        "PENDING" => format!(" ({})", status.reason),
        _ if status.is_over() => format!(", exit code {}:{}", status.exit.0, status.exit.1),
        _ if !status.nodes.is_empty() => format!(" on {}", status.nodes),
        _ => String::new(),
    };
    format!("job {job}: {}{why}", status.state)
}

/// How much of the job's output has been shown.
struct Log {
    position: u64,
}

impl Log {
    fn show(&mut self, status: &JobStatus) -> Result<(), Failure> {
        let Some(path) = &status.log else { return Ok(()) };
        // It appears when the job starts, and on another machine a little later.
        let Ok(mut file) = std::fs::File::open(path) else { return Ok(()) };
        if file.metadata()?.len() < self.position {
            // A requeued job begins its output anew.
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut stdout = std::io::stdout().lock();
        self.position += std::io::copy(&mut file, &mut stdout)?;
        stdout.flush()?;
        Ok(())
    }
}
