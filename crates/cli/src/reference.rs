//! The pages under `docs/reference`, made from the code and compared with what is committed.
//!
//! `UPDATE_REFERENCE=1 cargo test -p rallypoint-cli reference` writes them.

use crate::args::Args;
use crate::exit::Exit;
use clap::{Arg, Command, CommandFactory};
use rallypoint::framework::FRAMEWORKS;
use rallypoint::outcome::OwnCode;
use rallypoint::scheduler::SCHEDULERS;
use rallypoint::variables::{Family, Use, of};
use std::fmt::Write;
use std::path::Path;

const GENERATED: &str = "<!-- Generated from the code; see crates/cli/src/reference.rs. -->\n\n";

#[test]
fn pages_are_current() {
    for (name, page) in [("cli.md", cli()), ("variables.md", variables()), ("exit-codes.md", exit_codes())] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&file, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == page, "docs/reference/{name} is not current; run `make reference`");
    }
}

#[test]
fn the_command_line_is_well_formed() {
    Args::command().debug_assert();
}

fn cli() -> String {
    let mut page = format!("{GENERATED}# The command line\n");
    let mut command = Args::command();
    command.build();
    describe(&mut page, &command, "rallypoint");
    page
}

fn describe(page: &mut String, command: &Command, path: &str) {
    let heading = "#".repeat(path.split(' ').count() + 1);
    _ = writeln!(page, "\n{heading} `{path}`\n");
    if let Some(about) = command.get_about() {
        _ = writeln!(page, "{about}.\n");
    }
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()) && !arg.is_hide_set())
        .collect();
    if !arguments.is_empty() {
        page.push_str("| option | meaning |\n|---|---|\n");
        for argument in arguments {
            _ = writeln!(page, "| {} | {} |", cell(&usage(argument)), cell(&meaning(argument)));
        }
    }
    if let Some(examples) = command.get_after_help() {
        _ = writeln!(page, "\n```text\n{}\n```", examples.to_string().trim_end());
    }
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        describe(page, subcommand, &format!("{path} {}", subcommand.get_name()));
    }
}

fn usage(argument: &Arg) -> String {
    let values = argument
        .get_value_names()
        .filter(|_| argument.get_action().takes_values())
        .map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" "));
    match (argument.get_long(), values) {
        (Some(long), Some(values)) => format!("`--{long} {values}`"),
        (Some(long), None) => format!("`--{long}`"),
        (None, Some(values)) => format!("`{values}`"),
        (None, None) => format!("`{}`", argument.get_id()),
    }
}

fn meaning(argument: &Arg) -> String {
    let mut text = argument.get_help().map(|help| help.to_string()).unwrap_or_default();
    if argument.get_action().takes_values() {
        let choices = argument
            .get_possible_values()
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => format!("`{}`: {help}", value.get_name()),
                None => format!("`{}`", value.get_name()),
            })
            .collect::<Vec<_>>();
        if !choices.is_empty() {
            _ = write!(text, " ({})", choices.join("; "));
        }
        if let [default] = argument.get_default_values() {
            _ = write!(text, " [default: {}]", default.to_string_lossy());
        }
    }
    text
}

/// A `|` would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn variables() -> String {
    let mut page = format!("{GENERATED}# Environment variables\n");
    let mut families = vec![("Set for the child by rallypoint", of(Family::Rallypoint))];
    let frameworks =
        FRAMEWORKS.iter().map(|framework| (framework.title(), of(Family::Framework(framework.name()))));
    families.extend(frameworks.filter(|(_, variables)| !variables.is_empty()));
    let rooms = SCHEDULERS.iter().map(|scheduler| (scheduler.source().heading, scheduler.variables()));
    families.extend(rooms.filter(|(_, variables)| !variables.is_empty()));
    families.extend([
        ("Devices", of(Family::Devices)),
        ("Network", of(Family::Network)),
        ("The machine", of(Family::Machine)),
    ]);
    for (title, variables) in families {
        _ = writeln!(page, "\n## {title}\n\n| variable | use | meaning |\n|---|---|---|");
        for variable in variables {
            let usage = match variable.usage {
                Use::Read => "read",
                Use::Set => "set",
                Use::ReadAndSet => "read, set",
            };
            _ = writeln!(page, "| `{}` | {usage} | {} |", variable.name, cell(variable.meaning));
        }
    }
    page
}

fn exit_codes() -> String {
    let mut page = format!("{GENERATED}# Exit codes\n\n| code | meaning |\n|---|---|\n");
    for exit in Exit::ALL {
        _ = writeln!(page, "| {} | {} |", exit.code(), exit.meaning());
    }
    _ = writeln!(page, "| any other | {} |", Exit::Run(0).meaning());
    for own in OwnCode::ALL {
        _ = writeln!(page, "| {} | {} |", own.code(), rallypoint_english::meaning(own));
    }
    page
}
