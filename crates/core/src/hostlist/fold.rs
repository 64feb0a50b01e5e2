//! From names back to a folded list.

use super::{HostList, MAX_DIGITS, Range, Term};
use crate::hint;
use crate::hint::{Hint, Hinted};
use thiserror::Error;

/// Whether folding may change the order of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As given: expanding the result gives the same names in the same order.
    Kept,
    /// By prefix, then by number (`n9` before `n10`): the shortest result. Duplicates stay.
    Sorted,
}

/// A name that a host list cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FoldError {
    /// A name has no characters.
    #[error("a host name is empty")]
    Empty,
    /// A name has a character with a meaning of its own in a list, such as `[` or a comma.
    #[error("host name {name:?} contains {found:?}, which a host list cannot hold")]
    Character {
        /// The name.
        name: String,
        /// The character.
        found: char,
    },
}

impl Hinted for FoldError {
    fn hint(&self) -> Option<Hint> {
        match self {
            FoldError::Empty => Some(hint!("give one name per line, or names separated by commas")),
            FoldError::Character { .. } => None,
        }
    }
}

/// A name split at its trailing number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Split<'a> {
    prefix: &'a str,
    number: Option<(u64, usize)>,
}

pub(super) fn fold<S: AsRef<str>>(
    names: impl IntoIterator<Item = S>,
    order: Order,
) -> Result<HostList, FoldError> {
    let mut list = HostList::default();
    match order {
        Order::Kept => {
            for name in names {
                push(&mut list, &split(name.as_ref())?);
            }
        }
        Order::Sorted => {
            let names: Vec<S> = names.into_iter().collect();
            let mut splits = names.iter().map(|name| split(name.as_ref())).collect::<Result<Vec<_>, _>>()?;
            splits.sort();
            for name in &splits {
                push(&mut list, name);
            }
        }
    }
    Ok(list)
}

fn split(name: &str) -> Result<Split<'_>, FoldError> {
    if name.is_empty() {
        return Err(FoldError::Empty);
    }
    if let Some(found) = name.chars().find(|&c| c == ',' || c == '[' || c == ']' || c.is_ascii_whitespace()) {
        return Err(FoldError::Character { name: name.to_owned(), found });
    }
    let digits = name.bytes().rev().take(MAX_DIGITS).take_while(u8::is_ascii_digit).count();
    let (prefix, number) = name.split_at(name.len() - digits);
    // A number beyond u64 stays part of the text.
    Ok(match number.parse() {
        Ok(value) => Split { prefix, number: Some((value, digits)) },
        Err(_) => Split { prefix: name, number: None },
    })
}

fn push(list: &mut HostList, name: &Split<'_>) {
    let Some((value, width)) = name.number else {
        list.terms.push(Term { literals: vec![name.prefix.to_owned()], brackets: Vec::new() });
        return;
    };
    let range = Range { lo: value, hi: value, width };
    match list.terms.last_mut() {
        Some(Term { literals, brackets })
            if brackets.len() == 1 && literals[0] == name.prefix && literals[1].is_empty() =>
        {
            match brackets[0].last_mut() {
                Some(last) if last.is_followed_by(value, width) => last.hi = value,
                _ => brackets[0].push(range),
            }
        }
        _ => list.terms.push(Term {
            literals: vec![name.prefix.to_owned(), String::new()],
            brackets: vec![vec![range]],
        }),
    }
}

impl Range {
    /// True if `value`, written in `width` digits, is what this range would print next.
    fn is_followed_by(&self, value: u64, width: usize) -> bool {
        let natural = value.checked_ilog10().unwrap_or(0) as usize + 1;
        self.hi.checked_add(1) == Some(value) && width == natural.max(self.width)
    }
}
