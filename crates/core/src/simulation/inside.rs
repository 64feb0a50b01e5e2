//! An agent among others on one thread: while it runs, the doors answer for its machine, and its clock is in place.

use crate::clock::{self, Clock};
use crate::simulated::{Here, enter};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Runs a future as the process of an agent.
pub(super) struct Inside<T> {
    here: Here,
    clock: Option<Clock>,
    /// Gone when it has ended, or was killed.
    future: Option<Pin<Box<dyn Future<Output = T>>>>,
}

impl<T> Inside<T> {
    pub(super) fn new(here: Here, future: impl Future<Output = T> + 'static) -> Inside<T> {
        Inside { here, clock: None, future: Some(Box::pin(future)) }
    }

    fn enter<R>(&mut self, act: impl FnOnce(&mut Option<Pin<Box<dyn Future<Output = T>>>>) -> R) -> R {
        let before = enter(Some(self.here.clone()));
        let clock = clock::exchange(self.clock.take());
        let result = act(&mut self.future);
        self.clock = clock::exchange(clock);
        enter(before);
        result
    }
}

impl<T> Future for Inside<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        {
            let mut agents = self.here.world.agents.borrow_mut();
            let agent = &mut agents[self.here.agent];
            if agent.frozen > 0 {
                agent.thawed = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.enter(|future| match future {
            Some(future) => future.as_mut().poll(context),
            None => Poll::Pending,
        })
    }
}

impl<T> Drop for Inside<T> {
    /// What a process had is closed as its own.
    fn drop(&mut self) {
        self.enter(|future| drop(future.take()));
    }
}
