//! How the command ends: the documented exit codes, and errors as a person reads them.

use std::io::Write;
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
pub(crate) type Failure = Box<dyn std::error::Error>;

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
    let text = error.to_string();
    let mut stderr = std::io::stderr().lock();
    _ = match text.split_once("; hint: ") {
        Some((problem, hint)) => writeln!(stderr, "error: {problem}\nhint: {hint}"),
        None => writeln!(stderr, "error: {text}"),
    };
    Exit::BadInput
}
