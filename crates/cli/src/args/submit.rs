//! `rallypoint submit`: what is asked of a scheduler. The schedulers tell their own options.

use super::JobArgs;
use clap::{Arg, ArgAction, ArgMatches, Args as ClapArgs, Command, Error, FromArgMatches, Subcommand};
use rallypoint::scheduler::submit::{Given, OptionSpec, Submit, Value};
use rallypoint::scheduler::{SCHEDULERS, by_name};
use std::ffi::OsString;

/// One of the schedulers that take jobs, and what is asked of it.
#[derive(Debug)]
pub(crate) struct SubmitCommand {
    pub(crate) to: &'static dyn Submit,
    pub(crate) job: SubmitJobArgs,
    pub(crate) given: Given,
}

/// What every kind of submission has.
#[derive(Debug, ClapArgs)]
pub(crate) struct SubmitJobArgs {
    /// Set up this environment first: [env.NAME] of rallypoint.toml
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Option<String>,
    /// Print the script and submit nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Stay and tell the job's state and output; end with its exit code
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) handed_on: JobArgs,
}

/// What stands below the examples of every scheduler.
const BELOW: &str = "

Options of run are handed on to it. Environments and defaults may stand in
rallypoint.toml.";

impl Subcommand for SubmitCommand {
    fn augment_subcommands(command: Command) -> Command {
        let takers = SCHEDULERS.iter().filter_map(|scheduler| Some((scheduler, scheduler.submit()?)));
        let each = takers.map(|(scheduler, submit)| command_of(scheduler.source().name, submit));
        // In the order of their names: the list has the order of detection.
        let mut each: Vec<Command> = each.collect();
        each.sort_by_key(|command| std::cmp::Reverse(command.get_name().to_owned()));
        command.subcommand_required(true).arg_required_else_help(true).subcommands(each)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        by_name(name).is_some_and(|scheduler| scheduler.submit().is_some())
    }
}

impl FromArgMatches for SubmitCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SubmitCommand, Error> {
        let missing = || Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let to = by_name(name).and_then(|scheduler| scheduler.submit()).ok_or_else(missing)?;
        let job = SubmitJobArgs::from_arg_matches(matches)?;
        Ok(SubmitCommand { to, job, given: given(to, matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = SubmitCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

fn command_of(name: &'static str, submit: &'static dyn Submit) -> Command {
    SubmitJobArgs::augment_args(Command::new(name))
        .about(submit.about())
        .after_help(format!("{}{BELOW}", submit.examples()))
        .args(submit.options().iter().map(|option| argument(option).help_heading("Resources")))
}

/// An option's name among the arguments. The job's own options have theirs.
fn id(long: &str) -> String {
    format!("scheduler.{long}")
}

fn argument(option: &OptionSpec) -> Arg {
    let mut argument = Arg::new(id(option.long)).long(option.long).help(option.help);
    if let Some(short) = option.short {
        argument = argument.short(short);
    }
    if let Some(other) = option.requires {
        argument = argument.requires(id(other));
    }
    let count = |from: i64| clap::value_parser!(u32).range(from..);
    match option.value {
        Value::Flag => argument.action(ArgAction::SetTrue),
        Value::Text(name) => argument.value_name(name),
        Value::Texts(name) => argument.value_name(name).action(ArgAction::Append).allow_hyphen_values(true),
        Value::Count(name) => argument.value_name(name).value_parser(count(1)),
        Value::Number(name, default) => {
            argument.value_name(name).value_parser(count(0)).default_value(default.to_string())
        }
        Value::Choice(choices) => {
            let name = option.long.to_uppercase();
            argument.value_name(name).value_parser(choices.to_vec()).default_value(choices[0])
        }
    }
}

/// The values that were given for a scheduler's options, or that are their defaults.
fn given(submit: &'static dyn Submit, matches: &ArgMatches) -> Given {
    let mut given = Given::default();
    for option in submit.options() {
        let id = id(option.long);
        match option.value {
            Value::Flag if matches.get_flag(&id) => given.add(option.long, ""),
            Value::Flag => {}
            _ => {
                for value in matches.get_raw(&id).into_iter().flatten() {
                    given.add(option.long, value.to_string_lossy());
                }
            }
        }
    }
    given
}
