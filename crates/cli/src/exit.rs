//! How the command ends: the documented exit codes, and errors as a person reads them.

use crate::printable::printable;
use crate::voice;
use rallypoint::outcome::OwnCode;
use rallypoint::serve::find::NotFound;
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
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Prints an error with its hint on a line of its own, and chooses the exit code.
pub(crate) fn report(result: Result<Exit, Failure>) -> Exit {
    let error = match result {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    // Whoever reads our output has enough: `rallypoint hostlist expand ... | head`.
    if error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return Exit::Success;
    }
    voice::say_last(error_text(error.as_ref()));
    // Whoever looks for TensorFlow, and whenever: one code says that there is none.
    match error.is::<NotFound>() {
        true => Exit::Run(OwnCode::NotStarted.code()),
        false => Exit::BadInput,
    }
}

/// An error as a person reads it, with its hint on a line of its own.
pub(crate) fn error_text(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    match text.split_once("; hint: ") {
        Some((problem, hint)) => complaint(problem, Some(hint)),
        None => complaint(&text, None),
    }
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
