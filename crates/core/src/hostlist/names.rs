//! The names of a host list, one at a time and without holding the others.

use super::{Range, Term};

/// Iterator over the names of a [`super::HostList`]; [`Names::next_into`] makes no allocation a name.
#[derive(Debug, Clone)]
pub struct Names<'a> {
    terms: std::slice::Iter<'a, Term>,
    current: Option<Odometer<'a>>,
}

/// Where we are in one term: a counter a bracket, fastest first.
#[derive(Debug, Clone)]
struct Odometer<'a> {
    term: &'a Term,
    counters: Vec<Counter>,
    /// The brackets in the order in which they turn, fastest first.
    turning: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    range: usize,
    value: u64,
}

impl<'a> Names<'a> {
    pub(super) fn new(terms: &'a [Term]) -> Names<'a> {
        Names { terms: terms.iter(), current: None }
    }

    /// Appends the next name to `name`; false when there is none.
    pub fn next_into(&mut self, name: &mut String) -> bool {
        loop {
            if let Some(odometer) = &mut self.current {
                odometer.write(name);
                if !odometer.advance() {
                    self.current = None;
                }
                return true;
            }
            match self.terms.next() {
                Some(term) => self.current = Some(Odometer::new(term)),
                None => return false,
            }
        }
    }
}

impl Iterator for Names<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut name = String::new();
        self.next_into(&mut name).then_some(name)
    }
}

impl<'a> Odometer<'a> {
    fn new(term: &'a Term) -> Odometer<'a> {
        let last = term.brackets.len().saturating_sub(1);
        let turning = match term.brackets.len() {
            0 => Vec::new(),
            // Slurm unrolls the last bracket innermost and the ones before it from the right
            // outwards, so the first bracket is the second fastest.
            _ => std::iter::once(last).chain(0..last).collect(),
        };
        let counters = term.brackets.iter().map(|ranges| Counter { range: 0, value: ranges[0].lo }).collect();
        Odometer { term, counters, turning }
    }

    fn write(&self, name: &mut String) {
        name.push_str(&self.term.literals[0]);
        for ((ranges, counter), literal) in
            self.term.brackets.iter().zip(&self.counters).zip(&self.term.literals[1..])
        {
            push_padded(name, counter.value, ranges[counter.range].width);
            name.push_str(literal);
        }
    }

    fn advance(&mut self) -> bool {
        for &bracket in &self.turning {
            let ranges = &self.term.brackets[bracket];
            if self.counters[bracket].step(ranges) {
                return true;
            }
            self.counters[bracket] = Counter { range: 0, value: ranges[0].lo };
        }
        false
    }
}

impl Counter {
    fn step(&mut self, ranges: &[Range]) -> bool {
        if self.value < ranges[self.range].hi {
            self.value += 1;
            return true;
        }
        self.range += 1;
        match ranges.get(self.range) {
            Some(range) => self.value = range.lo,
            None => return false,
        }
        true
    }
}

/// Decimal digits with leading zeros; `format!` costs four times as much, and this is the hot path.
fn push_padded(name: &mut String, mut value: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    for _ in digits.len() - start..width {
        name.push('0');
    }
    name.extend(digits[start..].iter().map(|&digit| char::from(digit)));
}
