//! Signals to this process, as they arrive in the event loop.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals of one number.
#[derive(Debug)]
pub(crate) struct Arrivals(Inner);

#[derive(Debug)]
enum Inner {
    Real(Signal),
    #[cfg(feature = "simulation")]
    Simulated(tokio::sync::mpsc::UnboundedReceiver<()>),
}

impl Arrivals {
    /// From now on a signal of this number arrives here, and has no other effect. Must be called in an event loop.
    pub(crate) fn new(number: i32) -> io::Result<Arrivals> {
        #[cfg(feature = "simulation")]
        if let Some(signals) = crate::simulated::signals(number) {
            return Ok(Arrivals(Inner::Simulated(signals)));
        }
        signal(SignalKind::from_raw(number)).map(|signals| Arrivals(Inner::Real(signals)))
    }

    /// The next one.
    pub(crate) async fn recv(&mut self) -> Option<()> {
        match &mut self.0 {
            Inner::Real(signals) => signals.recv().await,
            #[cfg(feature = "simulation")]
            Inner::Simulated(signals) => signals.recv().await,
        }
    }
}
