//! Slurm's host-list language as a value: `n[01-04,7]`, `rack[1-2]n[01-03]-ib`, `a1,b[2-3]`.
//!
//! A [`HostList`] is the *folded* text, parsed and checked; names come out of it one by one
//! ([`HostList::names`]), so a list of a million hosts costs as much memory as its text. Order and
//! duplicates are what `scontrol show hostnames` of Slurm 24.11 prints; `tests/hostlist_slurm.rs`
//! holds the captured cases.
//!
//! What surprised us in the real thing, and is kept:
//! - with three or more brackets the last one varies fastest, then the *first*, then the second:
//!   `n[0-1][0-1][0-1]` is `n000 n001 n100 n101 n010 ...`;
//! - padding is the width of the low bound alone: `n[08-9]` is `n08 n09`, `n[9-11]` is not padded;
//! - `n[1-]` is `n1`; a `]` that closes nothing and a `[` before the last one are plain characters.

mod fold;
mod names;
mod parse;

pub use fold::{FoldError, Order};
pub use names::Names;
pub use parse::{HostListError, Problem};

use std::fmt;
use std::str::FromStr;

/// More names than this in one list is an error: a typing mistake, not a machine.
pub(crate) const MAX_NAMES: u64 = 1 << 22;

/// More bytes than this in all names together, likewise: 64 for each of as many names as there may be.
const MAX_BYTES: u64 = MAX_NAMES << 6;

/// Digits a number may have, leading zeros included.
const MAX_DIGITS: usize = 64;

/// A checked host list. `FromStr` parses it, `Display` prints it folded again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList {
    terms: Vec<Term>,
}

/// One comma-separated entry: `literals[0] brackets[0] literals[1] ... literals[n]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    literals: Vec<String>,
    brackets: Vec<Vec<Range>>,
}

/// `lo-hi`, every number padded with zeros to `width`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    lo: u64,
    hi: u64,
    width: usize,
}

impl HostList {
    /// How many names the list gives, duplicates counted.
    pub fn count(&self) -> u64 {
        self.terms.iter().map(Term::count).sum()
    }

    /// The names in Slurm's order, made one at a time.
    pub fn names(&self) -> Names<'_> {
        Names::new(&self.terms)
    }

    /// The shortest list Slurm itself would print for `names`: the inverse of [`HostList::names`].
    ///
    /// Only a trailing number is folded (`n1-ib,n2-ib` stays as it is), since older Slurm refuses
    /// a suffix behind a bracket.
    pub fn fold<S: AsRef<str>>(
        names: impl IntoIterator<Item = S>,
        order: Order,
    ) -> Result<HostList, FoldError> {
        fold::fold(names, order)
    }
}

impl FromStr for HostList {
    type Err = HostListError;

    fn from_str(text: &str) -> Result<HostList, HostListError> {
        parse::parse(text)
    }
}

impl Term {
    fn count(&self) -> u64 {
        self.brackets
            .iter()
            .map(|ranges| ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.count())))
            .fold(1, u64::saturating_mul)
    }
}

impl Term {
    /// The most bytes that its names come to.
    fn bytes(&self) -> u64 {
        let numbers = self.brackets.iter().map(|ranges| ranges.iter().map(Range::digits).max().unwrap_or(0));
        let longest = self.literals.iter().map(String::len).chain(numbers).fold(0, usize::saturating_add);
        self.count().saturating_mul(longest as u64)
    }
}

impl Range {
    /// How long its longest number is.
    fn digits(&self) -> usize {
        self.width.max(self.hi.checked_ilog10().unwrap_or(0) as usize + 1)
    }

    fn count(&self) -> u64 {
        (self.hi - self.lo).saturating_add(1)
    }
}

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.literals[0])?;
        let is_one = |ranges: &[Range]| matches!(ranges, [one] if one.lo == one.hi);
        // Without its last bracket another one would turn fastest: `a[1-2]b[1-2]c[0]` is not `a[1-2]b[1-2]c0`.
        let several_turn = self.brackets.iter().filter(|ranges| !is_one(ranges)).count() > 1;
        let last = self.brackets.len().saturating_sub(1);
        for (i, (ranges, literal)) in self.brackets.iter().zip(&self.literals[1..]).enumerate() {
            match ranges.as_slice() {
                [one] if is_one(ranges) && !(several_turn && i == last) => write!(f, "{one}")?,
                several => {
                    f.write_str("[")?;
                    for (i, range) in several.iter().enumerate() {
                        if i > 0 {
                            f.write_str(",")?;
                        }
                        write!(f, "{range}")?;
                    }
                    f.write_str("]")?;
                }
            }
            f.write_str(literal)?;
        }
        Ok(())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$}", self.lo, width = self.width)?;
        if self.hi > self.lo {
            write!(f, "-{:0width$}", self.hi, width = self.width)?;
        }
        Ok(())
    }
}
