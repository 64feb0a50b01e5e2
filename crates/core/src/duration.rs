//! Times as people type them: `90`, `10s`, `1.5min`, `2h`, `200ms`.

use crate::hint::{Hint, Hinted};
use std::time::Duration;
use thiserror::Error;

/// Longer than any job.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86400);

/// A time that cannot be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DurationError {
    /// No number, or a unit that is none.
    #[error("expected a time such as 10s, 5min or 2h")]
    Unreadable,
    /// More than ten years.
    #[error("that is longer than any job")]
    TooLong,
}

impl Hinted for DurationError {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

/// The time that is meant; a number alone is in seconds.
///
/// ```
/// use rallypoint::duration::parse;
/// use std::time::Duration;
///
/// assert_eq!(parse("1.5min"), Ok(Duration::from_secs(90)));
/// assert_eq!(parse("soon").unwrap_err().to_string(), "expected a time such as 10s, 5min or 2h");
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(DurationError::Unreadable),
    };
    let seconds = number.parse::<f64>().map_err(|_| DurationError::Unreadable)? * scale;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST).ok_or(DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in
            [("10", 10_000), ("10s", 10_000), ("1.5min", 90_000), ("2h", 7_200_000), ("200ms", 200), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "ten", "-1", "5y", "1e99h"] {
            assert_eq!(parse(bad), Err(DurationError::Unreadable), "{bad}");
        }
        assert_eq!(parse("99999999999h"), Err(DurationError::TooLong));
    }
}
