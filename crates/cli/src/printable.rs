//! Text that is fit for a terminal, whatever stands in a variable, a file or an answer that it quotes.
//!
//! Everything that rallypoint itself says on stderr goes through here, and what `plan` and `doctor` print for people; what
//! members write does not.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Longer words are shortened: a host list of 26 kB would push the reason off the screen.
const LONGEST_WORD: usize = 400;
/// Longer lines are, too: a value may have spaces.
const LONGEST_LINE: usize = 4000;

/// The same text with control characters shown (`\x1b`), and what is very long cut in its middle. Line ends and
/// tabs stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let fits = text.len() <= LONGEST_WORD || text.lines().all(|line| shortened_line(line).is_none());
    if fits && !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| shown(&shortened_line(line).unwrap_or_else(|| line.to_owned())))
        .collect();
    Cow::Owned(lines.join("\n"))
}

/// An output on which control characters are shown, and nothing is cut: a table may have long rows. Each write has whole
/// characters.
pub(crate) struct Shown<W>(pub(crate) W);

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // To the end in any case: without an early exit many bytes are looked at in one step.
        let is_plain = |byte: u8| (byte == b'\n') | (byte == b'\t') | matches!(byte, b' '..=b'~');
        match bytes.iter().fold(true, |plain, &byte| plain & is_plain(byte)) {
            true => self.0.write_all(bytes)?,
            false => self.0.write_all(shown(&String::from_utf8_lossy(bytes)).as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Characters that move the cursor, change colours, or turn the order of the text around.
fn is_harmful(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\r' => out.push_str("\\r"),
            c if is_harmful(c) && c.is_ascii() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if is_harmful(c) => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// A line that is too long, or has a word that is; `None` if it may stay.
fn shortened_line(line: &str) -> Option<String> {
    let has_long_word = line.split(' ').any(|word| word.chars().count() > LONGEST_WORD);
    let words = match has_long_word {
        false => line.to_owned(),
        true => line.split(' ').map(|word| shortened(word, LONGEST_WORD)).collect::<Vec<_>>().join(" "),
    };
    let whole = shortened(&words, LONGEST_LINE);
    (has_long_word || whole != line).then_some(whole)
}

/// Its beginning and its end, with how much is between them.
fn shortened(text: &str, longest: usize) -> String {
    let count = text.chars().count();
    if count <= longest {
        return text.to_owned();
    }
    let (head, tail) = (longest * 5 / 8, longest / 4);
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(count - tail).collect();
    format!("{first}[... {} more characters ...]{last}", count - head - tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown() {
        for (text, expected) in [
            ("plain, ärger, 日本\tand\ntwo lines", "plain, ärger, 日本\tand\ntwo lines"),
            ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
            ("over\rwritten\x08\x07\x7f\0", "over\\rwritten\\x08\\x07\\x7f\\x00"),
            ("\u{9b}2J \u{202e}txt.exe\u{2066}", "\\u{9b}2J \\u{202e}txt.exe\\u{2066}"),
        ] {
            assert_eq!(printable(text), expected);
        }
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_output_shows_them_too() {
        let mut out = Shown(Vec::new());
        writeln!(out, "n1\x1b[2J 日本").unwrap();
        out.write_all(b"plain\tand\n").unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "n1\\x1b[2J 日本\nplain\tand\n");
    }

    #[test]
    fn what_is_very_long_is_cut_in_its_middle() {
        let value = format!("begin{}end", "x".repeat(26_000));
        let text = format!("SLURM_GTIDS={value}: expected ranks, found {value}; and more");
        let short = printable(&text);
        assert!(short.len() < 1100, "{}", short.len());
        assert!(short.starts_with("SLURM_GTIDS=beginxxx"), "{short}");
        assert!(short.contains("xxxend: expected ranks, found beginxxx"), "{short}");
        assert!(short.ends_with("xxxend; and more"), "{short}");
        assert!(short.contains("x[... 25671 more characters ...]x"), "{short}");
        let spaces = "ab ".repeat(9_000);
        let short = printable(&spaces);
        assert!(short.len() < 3600 && short.contains(" more characters "), "{}", short.len());
        let lines = format!("{}\n{}", "y".repeat(390), "z".repeat(390));
        assert_eq!(printable(&lines), lines, "each line for itself");
        let escapes = "\x1b".repeat(5000);
        assert!(printable(&escapes).len() < 1500);
    }
}
