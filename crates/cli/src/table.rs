//! A plain table whose column widths are known beforehand, written row by row.
//!
//! Made for `plan`, which may have a hundred thousand rows: a row begins as a copy of a blank one, and
//! each cell is copied to its place in it.

use std::io::{self, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A column: its head, its alignment, and the width of its widest cell.
pub(crate) type Column<'a> = (&'a str, Align, usize);

/// Output goes out in pieces of this size.
const PIECE: usize = 1 << 16;

pub(crate) struct Table<W> {
    out: W,
    /// Alignment, first and last byte of each column in a row.
    columns: Vec<(Align, usize, usize)>,
    blank: Vec<u8>,
    piece: Vec<u8>,
    row: usize,
    column: usize,
}

impl<W: Write> Table<W> {
    /// Writes the heads.
    pub(crate) fn new(out: W, columns: &[Column<'_>]) -> io::Result<Table<W>> {
        let mut start = 0;
        let places: Vec<_> = columns
            .iter()
            .map(|(head, align, width)| {
                let end = start + head.len().max(*width);
                let place = (*align, start, end);
                start = end + 2;
                place
            })
            .collect();
        let blank = vec![b' '; start];
        let mut table = Table {
            out,
            columns: places,
            blank,
            piece: Vec::with_capacity(PIECE + start),
            row: 0,
            column: 0,
        };
        for (head, ..) in columns {
            table.word(head);
        }
        table.end_row()?;
        Ok(table)
    }

    /// The next cell of the row.
    pub(crate) fn word(&mut self, word: &str) {
        let at = self.cell(word.len());
        self.put(at, word);
    }

    pub(crate) fn number(&mut self, number: u32) {
        self.word(itoa::Buffer::new().format(number));
    }

    /// Words with commas between them.
    pub(crate) fn list<'a>(&mut self, words: impl Iterator<Item = &'a str> + Clone) {
        let mut at = self.cell(joined_width(words.clone()));
        for (i, word) in words.enumerate() {
            if i > 0 {
                at = self.put(at, ",");
            }
            at = self.put(at, word);
        }
    }

    pub(crate) fn end_row(&mut self) -> io::Result<()> {
        let kept = self.piece.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
        self.piece.truncate(kept.max(self.row));
        self.piece.push(b'\n');
        self.row = self.piece.len();
        self.column = 0;
        if self.piece.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) {
        self.piece.push(b'\n');
        self.row = self.piece.len();
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.piece)?;
        self.piece.clear();
        self.row = 0;
        Ok(())
    }

    /// Where a cell of `width` bytes goes.
    fn cell(&mut self, width: usize) -> usize {
        if self.column == 0 {
            self.piece.extend_from_slice(&self.blank);
        }
        let (align, start, end) = self.columns[self.column];
        self.column += 1;
        self.row + if align == Align::Left { start } else { end.saturating_sub(width).max(start) }
    }

    fn put(&mut self, at: usize, word: &str) -> usize {
        let end = at + word.len();
        // A cell wider than announced pushes the rest of the row aside.
        if end > self.piece.len() {
            self.piece.resize(end, b' ');
        }
        self.piece[at..end].copy_from_slice(word.as_bytes());
        end
    }
}

/// Digits of a number.
pub(crate) fn digits(number: u32) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Bytes of words with commas between them.
pub(crate) fn joined_width<'a>(words: impl Iterator<Item = &'a str>) -> usize {
    words.map(|word| word.len() + 1).sum::<usize>().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::{Align, Table};

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let columns = [
            ("host", Align::Left, 6),
            ("rank", Align::Right, 7),
            ("list", Align::Left, 3),
            ("", Align::Left, 0),
        ];
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, &columns).unwrap();
        for (host, rank, list) in [("n1", 7, &["a", "b"][..]), ("longer", 1234567, &[])] {
            table.word(host);
            table.number(rank);
            table.list(list.iter().copied());
            table.word("");
            table.end_row().unwrap();
            table.gap();
        }
        table.flush().unwrap();
        let expected = "host       rank  list\nn1            7  a,b\n\nlonger  1234567\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
