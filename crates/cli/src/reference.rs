//! The pages under `docs/reference`, made from the code and compared with what is committed.
//!
//! `UPDATE_REFERENCE=1 cargo test -p rallypoint-cli reference` writes them.

use crate::args::Args;
use crate::exit::Exit;
use clap::{Arg, Command, CommandFactory};
use rallypoint::event::{RunEvent, samples};
use rallypoint::framework::FRAMEWORKS;
use rallypoint::outcome::OwnCode;
use rallypoint::scheduler::SCHEDULERS;
use rallypoint::variables::{Family, Use, of};
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

const GENERATED: &str = "<!-- Generated from the code; see crates/cli/src/reference.rs. -->\n\n";

#[test]
fn pages_are_current() {
    let pages = [
        ("cli.md", cli()),
        ("variables.md", variables()),
        ("exit-codes.md", exit_codes()),
        ("events.md", events()),
    ];
    for (name, page) in pages {
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

/// What all events have in common; a section for each follows.
const EVENTS: &str = r#"# Events

`rallypoint run --events FILE` appends a JSON object per line to FILE, each in one write, as things happen. All
members on one machine have one file. Where members meet, the leader writes it for everyone, and a follower's own
`--events` does nothing. A file that cannot be opened is an error before anything starts (197); a line that
cannot be written later is left out, since a full disk is no reason to stop training; it is told at once, and at the
end the job has failed with 199 unless `--log-errors ignore` is given. A thread writes the file: one that
hangs holds up nobody. FILE may be a pipe that is open already, `/dev/fd/7`; members do not inherit it.

**Versions.** Events and fields may be added. A reader ignores what it does not know.

Every line has:

| field | meaning |
|---|---|
| `time` | seconds since 1970, by the clock of the machine that writes |
| `attempt` | the scheduler's attempt, from 0; members that `--restart` starts again do not count |
| `event` | one of those below |

Fields that several events have:

| field | meaning |
|---|---|
| `rank`, `role`, `index` | the member |
| `host` | its host, `?` or null if unknown |
| `seconds` | how long its process ran; 0 if it was never started or its agent was lost |
| `peak_kib` | the most memory its process had, or one of the children it waited for; 0 if unknown |
| `end` | how it ended: one of those below |
| `code` | an [exit code](exit-codes.md) |
| `why` | what the system or the other side said |
| `waited`, `limit` | how much of a wait is over, and how long it may take, in seconds |
| `{"named":[...],"more":0}` | some members: the first eight by name, and how many more there are |

| `end` | meaning |
|---|---|
| `{"exited":3}` | its exit code |
| `{"killed":9}` | the signal that ended it |
| `{"not-started":"..."}` | it could not be started; why |
| `{"lost":"..."}` | its agent is gone; why |
| `{"agent-failed":{"code":197,"why":"..."}}` | its agent has failed before it could start it: with which of rallypoint's own codes, and why |

| `verdict` | meaning |
|---|---|
| `"success"` | all who decide have ended with 0 |
| `{"failed":{"rank":1,"pid":4711,"ended":{...}}}` | the first failure: whose it is, and how it ended |
| `{"interrupted":2}` | the signal that ended the job |
| `"output-lost"` | all went well, but output could not be written |

## The order

Where members meet, `waiting` and `came` from the moment on that the leader is known, then `gathered`. Then `roster` and
`begun`; per member `started`, `listening` where it listens on its port, and one of `finished`, `failed` or `stopped`;
`restarted` and a new `started` come between. `over` is the last line. It is missing if the members did not all meet, or if
the agent that writes was killed.

Some events never stand in the file: those before a leader is known, those of an agent that follows, and what comes after
the end. They are on the terminal, and `Run::start` of the Rust library tells them, without `time` and `attempt`.
"#;

fn events() -> String {
    let mut page = format!("{GENERATED}{EVENTS}");
    // Any time will do, as long as it is the same.
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_776_679_250);
    let mut before = None;
    for event in samples::all() {
        let json = serde_json::to_value(&event).unwrap();
        let name = json["event"].as_str().unwrap().to_owned();
        // There may be several samples; one tells enough.
        if before.as_ref() == Some(&name) {
            continue;
        }
        let meaning = rallypoint_english::event_meaning(&event).unwrap();
        let (line, place) = match is_only_told(&event) {
            true => (serde_json::to_string(&event).unwrap(), " Not in the file."),
            false => (event.line(time, 0).unwrap(), ""),
        };
        _ = writeln!(page, "\n## {name}\n\n{meaning}{place}\n\n```json\n{line}\n```");
        before = Some(name);
    }
    page
}

/// The file is opened by the agent that decides, once it is known who that is, and closed with `over`.
fn is_only_told(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::Meeting { .. }
            | RunEvent::RanBefore { .. }
            | RunEvent::Searching { .. }
            | RunEvent::LeaderGone { .. }
            | RunEvent::LeaderSilent { .. }
            | RunEvent::LeaderLost { .. }
            | RunEvent::AttemptOver { .. }
            | RunEvent::Joined { .. }
            | RunEvent::LeaderLostWhileRunning { .. }
            | RunEvent::Requeued { .. }
            | RunEvent::NotRequeued { .. }
            | RunEvent::Told { .. }
    )
}
