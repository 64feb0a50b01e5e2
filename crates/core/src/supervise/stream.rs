//! The one stream of events: whatever happens is written to the events' file, if there is one, and told.

use super::losses::Hearing;
use super::run::{AgentError, RunSpec, Tell};
use crate::clock::Deadline;
use crate::event::RunEvent;
use crate::event_log::EventLog;

/// Who hears what happens in a job that this agent decides.
pub(super) struct Stream<'a> {
    log: EventLog,
    pub(super) attempt: u32,
    tell: Tell<'a>,
    /// Why the file could not be opened. Whoever waits for this agent hears it when all have come.
    failure: Option<AgentError>,
    /// Where losses are heard of, until somebody listens.
    hearing: Option<Hearing>,
}

impl<'a> Stream<'a> {
    /// Opens the file, if one is wanted.
    pub(super) fn open(spec: &RunSpec, attempt: u32, tell: Tell<'a>) -> Stream<'a> {
        let hearing = Hearing::new();
        let (log, failure) = match EventLog::create(spec.events.as_deref(), &hearing.losses) {
            Ok(log) => (log, None),
            Err(source) => {
                let file = spec.events.clone().unwrap_or_default();
                (EventLog::default(), Some(AgentError::Events { file, source }))
            }
        };
        Stream { log, attempt, tell, failure, hearing: Some(hearing) }
    }

    /// Where losses are heard of; the error that there was before, if any. To be asked once.
    pub(super) fn hearing(&mut self) -> Result<Hearing, AgentError> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(self.hearing.take().unwrap_or_else(Hearing::new)),
        }
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
