//! The event loop of an agent, and the signals that end it.

use super::run::{AgentError, io};
use super::signals::{Sensed, Signals};
use crate::clock;
use crate::signal;

/// Runs a job to its end, on this thread.
pub(super) fn in_event_loop<T>(future: impl Future<Output = Result<T, AgentError>>) -> Result<T, AgentError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("event loop"))?;
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(clock::keep());
        future.await
    });
    runtime.shutdown_background();
    outcome
}

/// The next signal that ends the job.
pub(super) async fn ending(signals: &mut Signals) -> i32 {
    loop {
        match signals.next().await {
            Sensed::Signal(number) if signal::ends_the_job(number) => return number,
            _ => {}
        }
    }
}
