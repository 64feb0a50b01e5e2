//! From text to a checked list; every error knows its place in the text.

use super::{HostList, MAX_BYTES, MAX_DIGITS, MAX_NAMES, Range, Term};
use crate::hint;
use crate::hint::{Hint, Hinted};
use std::fmt;
use thiserror::Error;

/// Why a text is not a host list, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostListError {
    /// The whole text.
    pub text: String,
    /// Byte offset of the trouble.
    pub at: usize,
    /// Bytes it spans.
    pub len: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a host list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// A `[` without its `]`.
    #[error("this bracket is never closed")]
    Unclosed,
    /// Nothing stands between commas or brackets: `n[1,]`.
    #[error("expected a number here, found nothing")]
    EmptyRange,
    /// Something else than a number or a range: `n[a]`.
    #[error("expected a number or a range such as 1-4")]
    NotANumber,
    /// A range ends below its beginning: `n[4-1]`.
    #[error("the range ends before it begins")]
    Backwards {
        /// Where it begins.
        lo: u64,
        /// Where it ends.
        hi: u64,
    },
    /// A number is too large, or has too many digits.
    #[error("a number may have {MAX_DIGITS} digits and be at most {}", u64::MAX)]
    TooLong,
    /// The list gives more names than any machine has hosts.
    #[error("{count} names; more than {MAX_NAMES} are surely a mistake")]
    TooMany {
        /// How many it gives.
        count: u64,
    },
    /// The names are so long that all of them together would fill the memory.
    #[error("names of {bytes} bytes in all; more than {MAX_BYTES} are surely a mistake")]
    TooLarge {
        /// How many bytes they have.
        bytes: u64,
    },
}

impl Hinted for Problem {
    fn hint(&self) -> Option<Hint> {
        match self {
            Problem::Backwards { lo, hi } => Some(hint!(format!("write {hi}-{lo}"))),
            Problem::Unclosed
            | Problem::EmptyRange
            | Problem::NotANumber
            | Problem::TooLong
            | Problem::TooMany { .. }
            | Problem::TooLarge { .. } => None,
        }
    }
}

impl std::error::Error for HostListError {}

impl Hinted for HostListError {
    fn hint(&self) -> Option<Hint> {
        self.problem.hint()
    }
}

/// Characters shown on each side of the trouble when the text is long.
const WINDOW: usize = 48;

impl fmt::Display for HostListError {
    /// Three lines: what, the text, and a mark under the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = floor_boundary(&self.text, self.at.saturating_sub(WINDOW));
        let end = floor_boundary(&self.text, (self.at + self.len + WINDOW).min(self.text.len()));
        let (lead, tail) = (if start > 0 { "…" } else { "" }, if end < self.text.len() { "…" } else { "" });
        let shown: String = self.text[start..end].chars().map(printable).collect();
        let indent = lead.chars().count() + self.text[start..self.at].chars().count();
        let marks = self.text[self.at..self.at + self.len].chars().count().clamp(1, WINDOW);
        write!(
            f,
            "bad host list at character {}: {}\n  {lead}{shown}{tail}\n  {:indent$}{}",
            self.text[..self.at].chars().count() + 1,
            self.problem,
            "",
            "^".repeat(marks)
        )
    }
}

fn printable(c: char) -> char {
    if c.is_control() { '·' } else { c }
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

pub(super) fn parse(text: &str) -> Result<HostList, HostListError> {
    let mut terms = Vec::new();
    let (mut total, mut bytes) = (0u64, 0u64);
    for (at, token) in tokens(text)? {
        let term = Parser { text }.term(at, token)?;
        total = total.saturating_add(term.count());
        if total > MAX_NAMES {
            return Err(Parser { text }.error(at, token.len(), Problem::TooMany { count: total }));
        }
        // A name that stands there as it is takes no more than the text.
        bytes = bytes.saturating_add(if term.brackets.is_empty() { 0 } else { term.bytes() });
        if bytes > MAX_BYTES {
            return Err(Parser { text }.error(at, token.len(), Problem::TooLarge { bytes }));
        }
        terms.push(term);
    }
    Ok(HostList { terms })
}

/// Splits at commas and white space outside brackets; empty entries vanish.
fn tokens(text: &str) -> Result<Vec<(usize, &str)>, HostListError> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut open = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => open.push(at),
            b']' => _ = open.pop(),
            b',' | b' ' | b'\t' | b'\n' | b'\r' if open.is_empty() => {
                if start < at {
                    tokens.push((start, &text[start..at]));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some(&at) = open.first() {
        return Err(Parser { text }.error(at, text.len() - at, Problem::Unclosed));
    }
    if start < text.len() {
        tokens.push((start, &text[start..]));
    }
    Ok(tokens)
}

struct Parser<'a> {
    text: &'a str,
}

impl Parser<'_> {
    fn error(&self, at: usize, len: usize, problem: Problem) -> HostListError {
        HostListError { text: self.text.to_owned(), at, len, problem }
    }

    /// `rack[1-2]n[01-03]-ib`: from the right, since a bracket belongs to the last `[` before it.
    fn term(&self, at: usize, token: &str) -> Result<Term, HostListError> {
        let mut literals = Vec::new();
        let mut brackets = Vec::new();
        let mut rest = token;
        while let Some((open, close)) = last_bracket(rest) {
            literals.push(rest[close + 1..].to_owned());
            brackets.push(self.ranges(at + open + 1, &rest[open + 1..close])?);
            rest = &rest[..open];
        }
        literals.push(rest.to_owned());
        literals.reverse();
        brackets.reverse();
        Ok(Term { literals, brackets })
    }

    fn ranges(&self, at: usize, text: &str) -> Result<Vec<Range>, HostListError> {
        let mut ranges = Vec::new();
        let mut start = 0;
        for piece in text.split(',') {
            ranges.push(self.range(at + start, piece)?);
            start += piece.len() + 1;
        }
        Ok(ranges)
    }

    fn range(&self, at: usize, text: &str) -> Result<Range, HostListError> {
        if text.is_empty() {
            return Err(self.error(at, 0, Problem::EmptyRange));
        }
        let not_a_number = || self.error(at, text.len(), Problem::NotANumber);
        let (low, high) = match text.split_once('-') {
            Some((low, high)) => (low, Some(high)),
            None => (text, None),
        };
        // Slurm measures the padding before the dash, white space included: `n[1\t-2]` is n01,n02.
        let width = low.len();
        if width > MAX_DIGITS {
            return Err(self.error(at, text.len(), Problem::TooLong));
        }
        let low = if high.is_some() { low.trim_end_matches([' ', '\t']) } else { low };
        let lo = self.number(at, low).ok_or_else(not_a_number)??;
        let hi = match high {
            None | Some("") => lo,
            Some(high) => self.number(at, high).ok_or_else(not_a_number)??,
        };
        if hi < lo {
            return Err(self.error(at, text.len(), Problem::Backwards { lo, hi }));
        }
        Ok(Range { lo, hi, width })
    }

    fn number(&self, at: usize, text: &str) -> Option<Result<u64, HostListError>> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let too_long = || self.error(at, text.len(), Problem::TooLong);
        Some(if text.len() > MAX_DIGITS { Err(too_long()) } else { text.parse().map_err(|_| too_long()) })
    }
}

/// The last `[` that has a `]` after it, with the first such `]`.
fn last_bracket(text: &str) -> Option<(usize, usize)> {
    let limit = text.rfind(']')?;
    let open = text[..limit].rfind('[')?;
    let close = open + text[open..].find(']')?;
    Some((open, close))
}
