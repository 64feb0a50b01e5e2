//! A way to meet, asked beside the event loop: a file server or a submit host may take long to answer, and meanwhile
//! signals and heartbeats go on.

use super::{Contact, RendezvousError, WayToMeet};
use crate::beside;
use std::sync::mpsc;
use std::time::Duration;

/// How long taking back what was published may hold up the end.
const RETRACT_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer that nobody waits for any more may hold it up: it may be that this agent leads.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Asks a way to meet. Dropped, it takes back what was published, if that can be done soon.
#[expect(missing_debug_implementations, reason = "a way to meet is a trait object")]
pub struct Seeker {
    /// Away while it is asked; for good, if the one who asked has gone. It then takes back what it has published when it
    /// is dropped.
    way: Option<WayToMeet>,
    /// Closed when what was asked last has been answered.
    asked: Option<mpsc::Receiver<()>>,
    name: String,
    awaited: Option<String>,
    longest_pause: Duration,
    port: u16,
}

impl Seeker {
    /// Asks nothing yet.
    pub fn new(way: WayToMeet) -> Seeker {
        Seeker {
            name: way.name(),
            awaited: way.awaited(),
            longest_pause: way.longest_pause(),
            port: way.port(),
            way: Some(way),
            asked: None,
        }
    }

    /// What to tell people: `directory /shared/job`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is waited for, where this agent cannot lead.
    pub(super) fn awaited(&self) -> Option<&str> {
        self.awaited.as_deref()
    }

    pub(super) fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The leader that is published, if any.
    pub(super) async fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        self.ask(|way| way.look()).await
    }

    pub(super) async fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError> {
        let contact = contact.clone();
        self.ask(move |way| way.claim(&contact)).await
    }

    pub(super) async fn replace(
        &mut self,
        gone: &Contact,
        contact: &Contact,
    ) -> Result<bool, RendezvousError> {
        let (gone, contact) = (gone.clone(), contact.clone());
        self.ask(move |way| way.replace(&gone, &contact)).await
    }

    async fn ask<T: Send + 'static>(
        &mut self,
        question: impl FnOnce(&mut WayToMeet) -> Result<T, RendezvousError> + Send + 'static,
    ) -> Result<T, RendezvousError> {
        let lost = || RendezvousError::Unreachable { reason: format!("{} is not asked any more", self.name) };
        let mut way = self.way.take().ok_or_else(lost)?;
        if !way.may_block() {
            let answer = question(&mut way);
            self.way = Some(way);
            return answer;
        }
        let (end, ended) = mpsc::channel();
        self.asked = Some(ended);
        let (tell, asked) = tokio::sync::oneshot::channel();
        let ask = move || {
            let answer = question(&mut way);
            // In this order they are dropped where nobody waits for the answer any more.
            _ = tell.send((way, end, answer));
        };
        beside::start(ask)?;
        let (way, _, answer) = asked.await.map_err(std::io::Error::other)?;
        self.way = Some(way);
        answer
    }
}

impl Drop for Seeker {
    fn drop(&mut self) {
        let Some(mut way) = self.way.take() else {
            _ = self.asked.take().map(|ended| beside::wait(&ended, ANSWER_LIMIT));
            return;
        };
        if !way.may_block() || !way.has_published() {
            return way.retract();
        }
        let (end, ended) = mpsc::channel::<()>();
        let retract = move || {
            way.retract();
            drop((way, end));
        };
        // Without a thread it was dropped here, and has taken itself back.
        if beside::start(retract).is_ok() {
            _ = beside::wait(&ended, RETRACT_LIMIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Obstacle, RunEvent};
    use crate::rendezvous::{ContestedLeader, JoinRequest, Wait, meet, message::Offer};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    /// A file server that answers when the test says so.
    struct Hung {
        answer: Arc<Mutex<mpsc::Receiver<()>>>,
        retracted: Arc<AtomicBool>,
    }

    impl ContestedLeader for Hung {
        fn name(&self) -> String {
            "a hung file server".to_owned()
        }
        fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
            _ = self.answer.lock().unwrap().recv();
            Ok(None)
        }
        fn claim(&mut self, _: &Contact) -> Result<bool, RendezvousError> {
            Ok(true)
        }
        fn replace(&mut self, _: &Contact, _: &Contact) -> Result<bool, RendezvousError> {
            Ok(false)
        }
        fn retract(&mut self) {
            self.retracted.store(true, Ordering::SeqCst);
        }
    }

    fn join_request() -> JoinRequest {
        JoinRequest {
            offer: Offer::for_tests(0),
            world: 2,
            key: None,
            timeout: Duration::from_secs(60),
            rejoin: Duration::from_secs(1),
            lost_leader: None,
            apart: false,
            listen: None,
        }
    }

    /// The loop goes on, says for whom it waits, and ends as soon as it is told to, while the file server hangs.
    #[test]
    fn a_hung_place_holds_up_neither_the_loop_nor_the_end() {
        let (answer, answers) = mpsc::channel();
        let retracted = Arc::new(AtomicBool::new(false));
        let hung = Hung { answer: Arc::new(Mutex::new(answers)), retracted: retracted.clone() };
        let mut seeker = Seeker::new(WayToMeet::contested(hung));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut said = Vec::new();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(crate::clock::keep());
            let (join_request, mut say) = (join_request(), |event: RunEvent| said.push(event));
            let wait = Wait::begin(join_request.timeout);
            let signal = tokio::time::sleep(Duration::from_secs(6));
            tokio::select! {
                part = meet(&mut seeker, &join_request, wait, &mut say) => panic!("{part:?}"),
                () = signal => {}
            }
        });
        runtime.shutdown_background();
        drop(seeker);
        let Some(RunEvent::Searching { obstacle, waited }) = said.first() else { panic!("{said:?}") };
        assert_eq!(*obstacle, Obstacle::PlaceSilent { place: "a hung file server".to_owned() });
        assert_eq!((waited.waited.as_secs(), waited.limit.as_secs()), (5, 60));
        assert!(!retracted.load(Ordering::SeqCst), "it is still being asked");
        drop(answer);
    }

    #[test]
    fn what_was_published_is_taken_back() {
        let (answer, answers) = mpsc::channel();
        let retracted = Arc::new(AtomicBool::new(false));
        let way = Hung { answer: Arc::new(Mutex::new(answers)), retracted: retracted.clone() };
        answer.send(()).unwrap();
        let mut seeker = Seeker::new(WayToMeet::contested(way));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert!(runtime.block_on(seeker.look()).unwrap().is_none());
        drop(seeker);
        assert!(retracted.load(Ordering::SeqCst));
    }
}
