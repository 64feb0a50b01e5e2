//! The one stream of events: whatever happens is written to the events' file, if there is one, and told.

use super::run::Tell;
use crate::clock::Deadline;
use crate::event::RunEvent;
use crate::event_log::EventLog;

/// Who hears what happens in a job that this agent decides.
pub(super) struct Stream<'a> {
    log: EventLog,
    attempt: u32,
    tell: Tell<'a>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(log: EventLog, attempt: u32, tell: Tell<'a>) -> Stream<'a> {
        Stream { log, attempt, tell }
    }

    /// Something has happened.
    pub(super) fn emit(&mut self, event: RunEvent) {
        self.log.write(self.attempt, &event);
        (self.tell)(event);
    }

    /// The last event, which says what became of the file too: it is written first, and told when that is known.
    pub(super) fn write(&mut self, event: &RunEvent) {
        self.log.write(self.attempt, event);
    }

    /// Lets the file's last lines be written, until the deadline at the latest. What comes then is only told.
    pub(super) async fn finish(&mut self, deadline: Deadline) {
        std::mem::take(&mut self.log).finish(deadline).await;
    }
}
