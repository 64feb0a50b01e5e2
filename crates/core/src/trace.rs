//! What went wrong without consequence, for those who ask: `RALLYPOINT_LOG=debug` shows it.

use std::fmt::Display;

/// A result that nobody needs, but somebody may want to read about.
pub(crate) trait OrLog<T> {
    /// The value, if there is one; an error is logged with what follows from it.
    fn or_log(self, what: &str) -> Option<T>;
}

impl<T, E: Display> OrLog<T> for Result<T, E> {
    fn or_log(self, what: &str) -> Option<T> {
        self.inspect_err(|error| tracing::debug!("{what}: {error}")).ok()
    }
}
