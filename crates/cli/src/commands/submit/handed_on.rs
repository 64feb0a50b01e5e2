//! The options of `run` that `submit` takes too, handed on as they were typed.

use crate::args::JobArgs;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, Command};

/// `--ps=1 --grace=60s`: what was typed, and nothing else. A value may look like an option (`--prefix=--x`), so
/// it always stands in one word with its name.
pub(super) fn options(matches: &ArgMatches) -> Vec<String> {
    let mut words = Vec::new();
    let command = JobArgs::augment_args(Command::new("run"));
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(long) = argument.get_long() else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !argument.get_action().takes_values() {
            words.push(format!("--{long}"));
            continue;
        }
        for mut occurrence in matches.get_raw_occurrences(id).into_iter().flatten() {
            // An option whose value may be left out has none here, or its default.
            words.push(match occurrence.next() {
                Some(value) => format!("--{long}={}", value.to_string_lossy()),
                None => format!("--{long}"),
            });
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::options;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn what_was_typed_is_handed_on_in_one_word_each() {
        let handed_on = |typed: &str| {
            let words = ["rallypoint", "submit", "slurm"].into_iter().chain(typed.split(' '));
            let matches = Args::command().get_matches_from(words.chain(["--", "python"]));
            let (_, submit) = matches.subcommand().unwrap();
            options(submit.subcommand().unwrap().1).join(" ")
        };
        assert_eq!(handed_on("-n 4 --prefix=--x --ps 1"), "--ps=1 --prefix=--x");
        assert_eq!(
            handed_on("--host-suffix -ib --quiet --grace 60s"),
            "--host-suffix=-ib --grace=60s --quiet"
        );
        assert_eq!(
            handed_on("--restart worker=3 --restart ps=1 --srun-args=--exact --job=-7 --meet=."),
            "--srun-args=--exact --meet=. --job=-7 --restart=worker=3 --restart=ps=1"
        );
        assert_eq!(handed_on("--requeue-on --time 5"), "--requeue-on=42");
        let faults = "--rehearse=kill:worker.1@30s,stop:ps@1min+20s";
        assert_eq!(handed_on(faults), faults);
        assert_eq!(handed_on("--requeue-on 7"), "--requeue-on=7");
        assert_eq!(handed_on("--prefix="), "--prefix=");
    }
}
