//! Job scripts as a person would have written them, handed in with the scheduler's own program.
//!
//! A scheduler tells its options as data ([`OptionSpec`]), so that a front end can offer them in its own way, and makes a
//! [`Submission`] of what was given.

use crate::hint;
use crate::hint::{AnyError, Hint, Hinted, Setting};
use crate::roles::RoleRequest;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use thiserror::Error;

/// What a job does once it has its allocation, whoever gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// The environment to set up first.
    pub setup: Option<Setup>,
    /// `rallypoint run ... -- python train.py`, word by word.
    pub command: Vec<String>,
    /// The command line that made this script, word by word.
    pub made_by: Vec<String>,
}

/// A named environment: `[env.tf17] setup = ["module load tensorflow/1.7"]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// `tf17`
    pub name: String,
    /// Lines of shell.
    pub lines: Vec<String>,
    /// The file it stands in.
    pub origin: String,
}

/// How jobs are handed in to a scheduler.
pub trait Submit: Debug + Sync {
    /// `Through sbatch; its job id goes to stdout`
    fn about(&self) -> &'static str;

    /// Command lines that show how, with a word on each.
    fn examples(&self) -> &'static str;

    /// What can be asked of the scheduler, in the order in which it is shown.
    fn options(&self) -> &'static [OptionSpec];

    /// The job, ready to be handed in. Whatever can be found wrong now is found now: a job may wait for hours before
    /// it fails.
    fn prepare(&self, order: Order<'_>) -> Result<Box<dyn Submission>, SubmitError>;
}

/// A job that is ready to be handed in.
pub trait Submission: Debug {
    /// The script, as it is handed in.
    fn script(&self) -> &str;

    /// Gives it to the scheduler, which answers with the job's id.
    fn hand_in(&self) -> Result<HandedIn, SubmitError>;

    /// Tells what happens to the job until it is over; its exit code.
    fn follow(&self, id: &str, tell: &mut dyn FnMut(Told<'_>)) -> Result<u8, SubmitError>;
}

/// An error in the words of the scheduler's own room.
pub type SubmitError = AnyError;

/// What was asked for.
#[derive(Debug)]
pub struct Order<'a> {
    /// The scheduler's own options.
    pub given: Given,
    /// Who is who among the members.
    pub roles: RoleRequest,
    /// How long members may take to end.
    pub grace: Duration,
    /// What the script is to do.
    pub work: Work,
    /// The program and its arguments, as they were typed.
    pub command: &'a [String],
    /// The running command itself.
    pub own: &'a Path,
}

/// An option of a scheduler.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// `ntasks` of `--ntasks`
    pub long: &'static str,
    /// `n` of `-n`
    pub short: Option<char>,
    /// What it takes.
    pub value: Value,
    /// A line for people: `Tasks, one per member`.
    pub help: &'static str,
    /// Another option without which it makes no sense.
    pub requires: Option<&'static str>,
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Flag,
    /// A text; what it is called.
    Text(&'static str),
    /// Any number of texts, which may begin with a dash.
    Texts(&'static str),
    /// A whole number, 1 or more.
    Count(&'static str),
    /// A whole number, and what it is if it is not given.
    Number(&'static str, u32),
    /// One of these; the first if none is given.
    Choice(&'static [&'static str]),
}

impl OptionSpec {
    pub(crate) const fn new(long: &'static str, value: Value, help: &'static str) -> OptionSpec {
        OptionSpec { long, short: None, value, help, requires: None }
    }

    pub(crate) const fn short(self, short: char) -> OptionSpec {
        OptionSpec { short: Some(short), ..self }
    }

    pub(crate) const fn requires(self, other: &'static str) -> OptionSpec {
        OptionSpec { requires: Some(other), ..self }
    }
}

/// Values of options, by their long names. A flag that was given has one, empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given(BTreeMap<&'static str, Vec<String>>);

impl Given {
    /// One more value of an option.
    pub fn add(&mut self, long: &'static str, value: impl Into<String>) {
        self.0.entry(long).or_default().push(value.into());
    }

    pub(crate) fn has(&self, long: &str) -> bool {
        self.0.contains_key(long)
    }

    /// All values of an option that may be given several times.
    pub(crate) fn all(&self, long: &str) -> &[String] {
        self.0.get(long).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn text(&self, long: &str) -> Option<&str> {
        self.all(long).last().map(String::as_str)
    }

    pub(crate) fn number(&self, long: &str) -> Option<u32> {
        self.text(long)?.parse().ok()
    }
}

/// A job that the scheduler has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedIn {
    /// As the scheduler calls it: `4711`.
    pub id: String,
    /// What the scheduler's program had to say, if anything.
    pub said: Option<String>,
}

/// What there is to tell of a job that is followed.
#[derive(Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// A line about the job.
    Line(String),
    /// What the job itself has written.
    Output(&'a [u8]),
}

#[derive(Debug, Error)]
pub(crate) enum NotHandedIn {
    #[error("{program} cannot be started: {source}")]
    NoProgram { program: &'static str, scheduler: &'static str, source: std::io::Error },
    #[error("{program} refuses the job: {reason}")]
    Refused { program: &'static str, reason: String },
    #[error("{program} did not answer with a job's id but {answer:?}")]
    NoId { program: &'static str, answer: String },
    #[error("{program} broke off: {source}")]
    BrokenOff { program: &'static str, source: std::io::Error },
}

impl Hinted for NotHandedIn {
    fn hint(&self) -> Option<Hint> {
        match self {
            NotHandedIn::NoProgram { scheduler, .. } => Some(hint!(
                format!("submit from a machine that has {scheduler}'s commands, or look at it with "),
                Setting::DryRun
            )),
            NotHandedIn::Refused { .. } | NotHandedIn::NoId { .. } | NotHandedIn::BrokenOff { .. } => None,
        }
    }
}

/// Runs `program` with the script as its standard input. `id_of` finds the id in the answer.
pub(crate) fn hand_in(
    scheduler: &'static str,
    program: &'static str,
    options: &[&str],
    script: &str,
    id_of: fn(&str) -> Option<&str>,
) -> Result<HandedIn, NotHandedIn> {
    let mut running = Command::new(program)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| NotHandedIn::NoProgram { program, scheduler, source })?;
    if let Some(mut stdin) = running.stdin.take() {
        // If it does not want to read, it says why.
        _ = stdin.write_all(script.as_bytes());
    }
    let Output { status, stdout, stderr } =
        running.wait_with_output().map_err(|source| NotHandedIn::BrokenOff { program, source })?;
    let said = String::from_utf8_lossy(&stderr).trim().to_owned();
    if !status.success() {
        return Err(NotHandedIn::Refused { program, reason: said });
    }
    let answer = String::from_utf8_lossy(&stdout).trim().to_owned();
    match id_of(&answer).filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(id) => Ok(HandedIn { id: id.to_owned(), said: Some(said).filter(|said| !said.is_empty()) }),
        None => Err(NotHandedIn::NoId { program, answer }),
    }
}

/// A name for a job: the script's says more than its interpreter's.
pub(crate) fn job_name(command: &[String]) -> Option<String> {
    let script = command.iter().find(|word| word.ends_with(".py"));
    Some(Path::new(script.or(command.first())?).file_stem()?.to_string_lossy().into_owned())
}

/// The file that an interpreter is to run: `train.py` of `python -u train.py`.
pub fn script_of(command: &[String]) -> Option<&str> {
    let program = Path::new(command.first()?).file_name()?.to_str()?;
    let is_python = program.starts_with("python");
    if !is_python && !["sh", "bash", "zsh", "perl", "ruby", "julia"].contains(&program) {
        return None;
    }
    let mut words = command[1..].iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            // Options of Python that take a value of their own.
            "-W" | "-X" | "--check-hash-based-pycs" if is_python => _ = words.next(),
            // Code or a module instead of a file, or something we do not know.
            option
                if option.starts_with('-')
                    && (!is_python || option.len() > 2 || "-c-m-".contains(option)) =>
            {
                return None;
            }
            option if option.starts_with('-') => {}
            file => return Some(file),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::script_of;

    #[test]
    fn the_script_of_an_interpreter() {
        let script = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            script_of(&words).map(str::to_owned)
        };
        let found = |line: &str| script(line).unwrap_or_else(|| "-".to_owned());
        assert_eq!(found("python train.py"), "train.py");
        assert_eq!(found("/opt/bin/python3.11 -u -W ignore train.py -c x"), "train.py");
        assert_eq!(found("bash job.sh"), "job.sh");
        for none in [
            "python -m train",
            "python -c code",
            "python -",
            "python",
            "bash -c x",
            "bash -x job.sh",
            "./train",
            "env python x.py",
        ] {
            assert_eq!(found(none), "-", "{none}");
        }
    }
}
