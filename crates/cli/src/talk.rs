//! What `run` tells a person, on stderr: lines, a progress bar on a terminal, the closing table.

use crate::table::{Align, Table, digits};
use rallypoint::supervise::{ClosingRow, Notice};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loudness {
    Everything,
    /// What went wrong, here and with the job.
    Failures,
    /// What went wrong here: a launcher tells all else.
    OwnFailures,
}

pub(crate) struct Talk {
    loudness: Loudness,
    terminal: bool,
    /// A progress bar stands on the current line.
    bar: bool,
}

impl Talk {
    pub(crate) fn new(loudness: Loudness) -> Talk {
        Talk { loudness, terminal: std::io::stderr().is_terminal(), bar: false }
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        let heard = match self.loudness {
            Loudness::Everything => true,
            Loudness::Failures => matches!(notice, Notice::Failure(_) | Notice::Verdict(_)),
            Loudness::OwnFailures => matches!(notice, Notice::Failure(_)),
        };
        if !heard {
            return;
        }
        match notice {
            Notice::Waiting { come, world, missing, waited } if self.terminal => {
                let width = 20u32;
                let full = (width * come / world.max(1)) as usize;
                let bar = format!("{}{}", "#".repeat(full), ".".repeat(width as usize - full));
                let missing: String = missing.chars().take(60).collect();
                let text =
                    format!("\r\x1b[Krallypoint: [{bar}] {come}/{world}{} missing: {missing}", times(waited));
                self.write(&text);
                self.bar = true;
            }
            Notice::Waiting { come, world, missing, waited } => {
                self.line(&format!(
                    "{come} of {world} members have come{}; missing: {missing}",
                    times(waited)
                ));
            }
            Notice::Line(line) | Notice::Start(line) | Notice::Failure(line) | Notice::Verdict(line) => {
                self.line(&line);
            }
            Notice::Closing(rows) => {
                self.end_bar();
                let mut out = Vec::new();
                if write_closing(&mut out, &rows).is_ok() {
                    self.write(&String::from_utf8_lossy(&out));
                }
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.end_bar();
        self.write(&format!("rallypoint: {line}\n"));
    }

    /// Leaves the line of the progress bar, for whatever is printed next.
    pub(crate) fn end_bar(&mut self) {
        if std::mem::take(&mut self.bar) {
            self.write("\n");
        }
    }

    /// One write a line, so that members' lines do not come in between.
    fn write(&self, text: &str) {
        _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

fn times(waited: Option<(Duration, Duration)>) -> String {
    match waited {
        Some((waited, limit)) => format!(" ({} s of {} s)", waited.as_secs(), limit.as_secs()),
        None => String::new(),
    }
}

fn write_closing(out: &mut Vec<u8>, rows: &[ClosingRow]) -> std::io::Result<()> {
    let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0);
    let columns = [
        ("MEMBER", Align::Left, widest(&mut rows.iter().map(|row| row.member.len()))),
        ("HOST", Align::Left, widest(&mut rows.iter().map(|row| row.host.len()))),
        ("PID", Align::Right, widest(&mut rows.iter().map(|row| row.pid.map_or(1, digits)))),
        ("END", Align::Left, widest(&mut rows.iter().map(|row| row.end.len()))),
        ("TIME", Align::Right, widest(&mut rows.iter().map(|row| time(row.seconds).len()))),
        ("PEAK MEMORY", Align::Right, widest(&mut rows.iter().map(|row| memory(row.peak_kib).len()))),
    ];
    out.push(b'\n');
    let mut table = Table::new(&mut *out, &columns)?;
    for row in rows {
        table.word(&row.member);
        table.word(&row.host);
        match row.pid {
            Some(pid) => table.number(pid),
            None => table.word("-"),
        }
        table.word(&row.end);
        table.word(&time(row.seconds));
        table.word(&memory(row.peak_kib));
        table.end_row()?;
    }
    table.flush()
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 60.0 => format!("{seconds:.1} s"),
        Some(seconds) => format!("{}:{:02} min", seconds as u64 / 60, seconds as u64 % 60),
    }
}

fn memory(kib: Option<u64>) -> String {
    match kib {
        None | Some(0) => "-".to_owned(),
        Some(kib) if kib < 10 << 10 => format!("{:.1} MiB", kib as f64 / 1024.0),
        Some(kib) => format!("{} MiB", kib >> 10),
    }
}
