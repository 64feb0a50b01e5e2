//! Slurm's run-length lists of numbers: `2(x2),1` is 2, 2, 1.

use crate::hint::{Hint, Hinted};
use crate::roles::MAX_MEMBERS;
use thiserror::Error;

/// A list that is not one, or not of the expected length.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountsError {
    /// An entry is neither `2` nor `2(x3)`.
    #[error("expected numbers such as 2(x3),1, found {found:?}")]
    Syntax {
        /// The entry.
        found: String,
    },
    /// The list is for another number of hosts.
    #[error("it gives numbers for {found} hosts, and there are {expected}")]
    Length {
        /// How many numbers it gives.
        found: u64,
        /// How many hosts there are.
        expected: usize,
    },
    /// The list is longer than any job.
    #[error("it gives {found} numbers, more than {MAX_MEMBERS}")]
    TooMany {
        /// How many numbers it gives.
        found: u64,
    },
}

impl Hinted for CountsError {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

/// One number per host.
pub(super) fn parse_counts(text: &str, hosts: usize) -> Result<Vec<u32>, CountsError> {
    let (runs, total) = parse_runs(text)?;
    if total != hosts as u64 {
        return Err(CountsError::Length { found: total, expected: hosts });
    }
    Ok(expand(runs))
}

/// As many numbers as the list gives, where nobody knows how many hosts there are.
pub fn expand_counts(text: &str) -> Result<Vec<u32>, CountsError> {
    let (runs, total) = parse_runs(text)?;
    if total > MAX_MEMBERS {
        return Err(CountsError::TooMany { found: total });
    }
    Ok(expand(runs))
}

type Runs = Vec<(u32, u32)>;

/// Numbers with how often each stands there, and how many these are in all.
fn parse_runs(text: &str) -> Result<(Runs, u64), CountsError> {
    let mut runs = Vec::new();
    let mut total = 0u64;
    for entry in text.split(',') {
        let run = parse_run(entry.trim()).ok_or_else(|| CountsError::Syntax { found: entry.to_owned() })?;
        total = total.saturating_add(u64::from(run.1));
        runs.push(run);
    }
    Ok((runs, total))
}

fn expand(runs: Runs) -> Vec<u32> {
    runs.into_iter().flat_map(|(count, times)| std::iter::repeat_n(count, times as usize)).collect()
}

fn parse_run(entry: &str) -> Option<(u32, u32)> {
    match entry.split_once("(x") {
        None => Some((entry.parse().ok()?, 1)),
        Some((count, times)) => Some((count.parse().ok()?, times.strip_suffix(')')?.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_unrolled_and_counted() {
        assert_eq!(parse_counts("2(x2),1", 3), Ok(vec![2, 2, 1]));
        assert_eq!(parse_counts("7", 1), Ok(vec![7]));
        assert_eq!(parse_counts("2(x2)", 3), Err(CountsError::Length { found: 2, expected: 3 }));
        assert_eq!(
            parse_counts("1(x4294967295)", 2),
            Err(CountsError::Length { found: 4_294_967_295, expected: 2 })
        );
        for bad in ["", "2(x", "2(x)", "2(3)", "a", "1,,2", "-1", "2(x2"] {
            assert!(matches!(parse_counts(bad, 2), Err(CountsError::Syntax { .. })), "{bad:?}");
        }
    }
}
