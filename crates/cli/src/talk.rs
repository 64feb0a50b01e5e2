//! What `run` tells a person, on stderr: lines, a progress bar on a terminal, the closing table.

use crate::caller;
use crate::log;
use crate::printable::printable;
use crate::table::{Align, Table, digits};
use crate::voice::Voice;
use rallypoint::event::{RunEvent, Waited};
use rallypoint::hint::Hinted;
use rallypoint::outcome::Whole;
use rallypoint_english::{ClosingRow, English, Weight};
use std::io::IsTerminal;

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
    english: English,
    voice: Voice,
}

impl Talk {
    pub(crate) fn new(loudness: Loudness) -> Talk {
        let mut voice = Voice::default();
        if log::is_on() {
            log::through(voice.queue());
        }
        Talk {
            loudness,
            terminal: std::io::stderr().is_terminal(),
            bar: false,
            english: English::of_the_command(),
            voice,
        }
    }

    /// Says what there is to say of an event.
    pub(crate) fn hear(&mut self, event: &RunEvent) {
        let weight = Weight::of(event);
        let is_heard = match self.loudness {
            Loudness::Everything => true,
            Loudness::Failures => weight != Weight::Progress,
            Loudness::OwnFailures => weight == Weight::Failure,
        };
        if !is_heard {
            return;
        }
        match event {
            RunEvent::Waiting { come, world, missing, waited } if self.terminal => {
                let missing = self.english.missing(missing.as_ref());
                let line = bar(columns(), *come, *world, &printable(&missing), &times(waited));
                self.write(format!("\r\x1b[K{line}"));
                self.bar = true;
                return;
            }
            RunEvent::Over(whole) if self.loudness == Loudness::Everything => self.closing_table(whole),
            _ => {}
        }
        for line in self.english.lines(event) {
            self.line(&line);
        }
    }

    fn closing_table(&mut self, whole: &Whole) {
        self.end_bar();
        let mut rows: Vec<ClosingRow> = whole.members.iter().map(ClosingRow::of).collect();
        rows.iter_mut().for_each(clean);
        let mut out = Vec::new();
        if write_closing(&mut out, &rows).is_ok() {
            self.write(String::from_utf8_lossy(&out).into_owned());
        }
    }

    /// Something went wrong here, and no event tells it.
    pub(crate) fn failure(&mut self, line: &str) {
        self.line(line);
    }

    fn line(&mut self, line: &str) {
        self.end_bar();
        // What a member or another agent wrote may have more lines: none of them is to look like one of ours.
        self.write(format!("rallypoint: {}\n", printable(line).replace('\n', "\n  | ")));
    }

    /// Leaves the line of the progress bar, for whatever is printed next.
    fn end_bar(&mut self) {
        if std::mem::take(&mut self.bar) {
            self.write("\n".to_owned());
        }
    }

    /// One write a line, so that members' lines do not come in between.
    fn write(&mut self, text: String) {
        self.voice.say(text);
    }

    /// An error that ends the job, and then nothing more.
    pub(crate) fn error(&mut self, error: &dyn Hinted) {
        self.end_bar();
        let text = crate::exit::error_text(error);
        caller::tell(&text);
        self.write(text);
    }

    /// Lets all be said, but not for ever.
    pub(crate) fn finish(self) {
        log::through(None);
        self.voice.finish();
    }
}

/// The terminal's width; it may change at any time.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(80)
}

/// `rallypoint: [#####.....] 8/16 (12 s of 600 s) missing: worker 3, worker 9, ...`, on one line of the terminal.
///
/// The last column stays free, where some terminals begin the next line. What has no room is left out: first names,
/// each of them as a whole; before the last name goes, the bar, then the times.
fn bar(columns: usize, come: u32, world: u32, missing: &str, times: &str) -> String {
    let room = columns.saturating_sub(1);
    let width: u64 = if columns < 100 { 10 } else { 20 };
    let full = (width * u64::from(come.min(world)) / u64::from(world.max(1))) as usize;
    let drawn = format!("[{}{}] ", "#".repeat(full), ".".repeat(width as usize - full));
    let count = format!("{come}/{world}");
    let long = format!("rallypoint: {drawn}{count}{times}");
    let (short, shortest) = (format!("rallypoint: {count}{times}"), format!("rallypoint: {count}"));
    let lines = [
        with_names(&long, missing, room),
        with_names(&short, missing, room),
        with_names(&shortest, missing, room),
        Some(long),
        Some(short),
        Some(shortest),
    ];
    let fits = |line: &String| line.chars().count() <= room;
    lines.into_iter().flatten().find(fits).unwrap_or_else(|| count.chars().take(room).collect())
}

/// The line with as many of the missing as fit; `None` if not even one does.
fn with_names(line: &str, missing: &str, room: usize) -> Option<String> {
    let names: Vec<&str> = missing.split(", ").collect();
    (1..=names.len()).rev().find_map(|count| {
        let more = if count < names.len() { ", ..." } else { "" };
        let text = format!("{line} missing: {}{more}", names[..count].join(", "));
        (text.chars().count() <= room).then_some(text)
    })
}

fn times(waited: &Waited) -> String {
    format!(" ({} s of {} s)", waited.waited.as_secs(), waited.limit.as_secs())
}

/// Each cell on one line.
fn clean(row: &mut ClosingRow) {
    for cell in [&mut row.member, &mut row.host, &mut row.end] {
        *cell = printable(cell).replace('\n', " ");
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

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn the_bar_fits_into_any_terminal() {
        let missing = "worker 3 (rank 4), worker 9 (rank 10), workers 12-14 (ranks 13-15)";
        let times = " (12 s of 600 s)";
        let at = |columns| bar(columns, 8, 16, missing, times);
        let long = "rallypoint: [##########..........] 8/16 (12 s of 600 s)";
        let short = "rallypoint: [#####.....] 8/16 (12 s of 600 s)";
        assert_eq!(at(200), format!("{long} missing: {missing}"));
        assert_eq!(at(100), format!("{long} missing: worker 3 (rank 4), ..."));
        assert_eq!(at(80), format!("{short} missing: worker 3 (rank 4), ..."));
        assert_eq!(at(70), "rallypoint: 8/16 (12 s of 600 s) missing: worker 3 (rank 4), ...");
        assert_eq!(at(60), "rallypoint: 8/16 missing: worker 3 (rank 4), ...");
        assert_eq!(
            bar(60, 2, 3, "worker 1 (rank 2)", times),
            "rallypoint: 2/3 (12 s of 600 s) missing: worker 1 (rank 2)"
        );
        assert_eq!(bar(47, 8, 16, "a-very-long-name-of-a-role", times), short);
        assert_eq!(at(40), "rallypoint: 8/16 (12 s of 600 s)");
        assert_eq!(at(20), "rallypoint: 8/16");
        assert_eq!(at(3), "8/");
        for columns in 0..250 {
            assert!(at(columns).chars().count() <= columns.saturating_sub(1), "{columns}");
        }
        assert_eq!(bar(80, 0, 0, "", ""), "rallypoint: [..........] 0/0 missing: ");
    }
}
