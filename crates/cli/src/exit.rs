//! How the command ends: the documented exit codes, and errors as a person reads them.

use crate::printable::printable;
use crate::voice;
use rallypoint::hint::{AnyError, Hinted};
use rallypoint::outcome::OwnCode;
use rallypoint::serve::find::NotFound;
use std::error::Error;
use std::process::ExitCode;

/// What a script can tell from the exit code. `docs/reference/exit-codes.md` is generated from [`Exit::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Findings,
    BadInput,
    /// A member's own code, or one of rallypoint's.
    Run(u8),
}

impl Exit {
    /// For the reference page.
    #[cfg(test)]
    pub(crate) const ALL: [Exit; 3] = [Exit::Success, Exit::Findings, Exit::BadInput];

    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Findings => 1,
            Exit::BadInput => 2,
            Exit::Run(code) => code,
        }
    }

    #[cfg(test)]
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Exit::Success => "all went well",
            Exit::Findings => "`check` found something wrong",
            Exit::BadInput => {
                "bad usage or bad input: an option, a variable, a file; nothing was written to stdout"
            }
            Exit::Run(_) => "`run`: the first failure's own exit code, or 128 + n for signal n",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Any error that reaches the user.
pub(crate) type Failure = AnyError;

/// Prints an error with its hint on a line of its own, and chooses the exit code.
pub(crate) fn report(result: Result<Exit, Failure>) -> Exit {
    let error = match result {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    let cause: &(dyn Error + 'static) = error.as_ref();
    // Whoever reads our output has enough: `rallypoint hostlist expand ... | head`.
    if cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return Exit::Success;
    }
    voice::say_last(error_text(error.as_ref()));
    // Whoever looks for TensorFlow, and whenever: one code says that there is none.
    match cause.is::<NotFound>() {
        true => Exit::Run(OwnCode::NotStarted.code()),
        false => Exit::BadInput,
    }
}

/// An error as a person reads it, with its hint on a line of its own.
pub(crate) fn error_text(error: &dyn Hinted) -> String {
    complaint(&error.to_string(), error.hint().map(|hint| hint.typed()).as_deref())
}

/// `error: ...`, and on a line of its own what may be done about it.
pub(crate) fn complaint(problem: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!("hint: {}\n", printable(hint))).unwrap_or_default();
    format!("error: {}\n{hint}", printable(problem))
}

/// A line of a command that has no more to say than a few.
pub(crate) fn say(line: &str) {
    // At once, so that nobody else's lines come in between.
    voice::say_if_heard(&format!("rallypoint: {}\n", printable(line)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;
    use rallypoint::hint::Setting;
    use rallypoint::rendezvous::RendezvousError;

    #[test]
    fn every_setting_that_a_hint_may_name_is_an_option() {
        for setting in Setting::ALL {
            let mut command = &Args::command();
            for word in setting.command().split(' ') {
                command = command.find_subcommand(word).expect(word);
            }
            let is_there =
                command.get_arguments().any(|argument| argument.get_long() == Some(setting.name()));
            assert!(is_there, "rallypoint {} has no --{}", setting.command(), setting.name());
        }
    }

    #[test]
    fn a_hint_has_a_line_of_its_own() {
        let missing = RendezvousError::Missing { waited: 5, come: 1, world: 2, missing: "ps 0".to_owned() };
        let says = "error: after 5 s 1 of 2 members have come; missing: ps 0\nhint: --meet-timeout gives them longer\n";
        assert_eq!(error_text(&missing), says);
        let summary = "after 5 s 1 of 2 members have come; hint: --meet-timeout gives them longer".to_owned();
        let told = RendezvousError::Dismissed { code: 98, summary };
        let says = "error: the leader has ended the meeting: after 5 s 1 of 2 members have come\nhint: --meet-timeout gives them longer\n";
        assert_eq!(error_text(&told), says, "in the words of another agent, too");
    }
}
