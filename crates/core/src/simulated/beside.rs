//! Threads that ask the directory beside an agent's event loop. In a simulation only one of all threads runs at a time: the
//! one that asks stands still until its answer has come, and everybody else while it thinks about it. So what it does
//! between two requests takes no time, and what others do meanwhile is up to the seed.

use super::dice::Dice;
use super::disk::{Answer, Request};
use super::{Here, here};
use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How often one looks whether another has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A thread that asks.
struct Asking {
    to: Sender<Request>,
    answers: Receiver<(Instant, io::Result<Answer>)>,
    now: Instant,
    dice: Dice,
    host: usize,
}

thread_local! {
    static ASKING: RefCell<Option<Asking>> = const { RefCell::new(None) };
}

/// The time, on a thread that asks.
pub(super) fn now() -> Option<Instant> {
    ASKING.with_borrow(|asking| asking.as_ref().map(|asking| asking.now))
}

/// The machine of a thread that asks.
pub(super) fn host() -> Option<usize> {
    ASKING.with_borrow(|asking| asking.as_ref().map(|asking| asking.host))
}

pub(super) fn with_dice(use_it: impl FnOnce(&mut Dice)) -> Option<()> {
    ASKING.with_borrow_mut(|asking| asking.as_mut().map(|asking| use_it(&mut asking.dice)))
}

/// Asks the directory. Whoever is not simulated, or dead, gets no answer.
pub(crate) fn ask(request: Request) -> io::Result<Answer> {
    let dead = || io::Error::other("nobody asks any more");
    ASKING.with_borrow_mut(|asking| {
        let asking = asking.as_mut().ok_or_else(dead)?;
        asking.to.send(request).map_err(|_| dead())?;
        let (now, answer) = asking.answers.recv().map_err(|_| dead())?;
        asking.now = now;
        answer
    })
}

/// Does something on a thread of its own, as one of this process; it ends with it. A thread that asks does it itself. The
/// work is given back where nothing is simulated.
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(work: F) -> Result<io::Result<()>, F> {
    if now().is_some() {
        work();
        return Ok(Ok(()));
    }
    let Some(here) = here() else { return Err(work) };
    if !here.is_alive() {
        // A process that was killed does nothing more; what it had is dropped without effect.
        drop(work);
        return Ok(Err(io::Error::other("this process is dead")));
    }
    // It outlives the event loop that has started it, but not its process.
    let world = here.world.clone();
    world.later(Duration::ZERO, move |world| {
        if here.is_alive() {
            let agent = here.agent;
            let asked = start(&here, work);
            let task = tokio::task::spawn_local(serve(here, asked));
            world.agents.borrow_mut()[agent].helpers.push(task.abort_handle());
        }
    });
    Ok(Ok(()))
}

/// Does something on a thread of its own, and waits for it.
pub(crate) async fn run(here: Here, work: impl FnOnce() + Send + 'static) {
    let asked = start(&here, work);
    serve(here, asked).await;
}

type Asked = (Receiver<Request>, Sender<(Instant, io::Result<Answer>)>);

fn start(here: &Here, work: impl FnOnce() + Send + 'static) -> Asked {
    let (to, requests) = channel();
    let (answer, answers) = channel();
    let asking = Asking {
        to,
        answers,
        now: tokio::time::Instant::now().into_std(),
        dice: Dice::new(here.world.draw(u64::MAX)),
        host: here.host(),
    };
    std::thread::spawn(move || {
        ASKING.set(Some(asking));
        work();
        ASKING.set(None);
    });
    (requests, answer)
}

/// Answers all requests of a thread, each at its time.
async fn serve(here: Here, (requests, answers): Asked) {
    // Nobody else runs until it has asked for something, or has ended.
    while let Ok(request) = requests.recv() {
        let latency = match &request {
            Request::Pause(time) => *time,
            _ => here.world.disk_latency(),
        };
        tokio::time::sleep(latency).await;
        while here.world.is_frozen(here.agent) {
            tokio::time::sleep(LOOK).await;
        }
        let answer = here.world.do_on_disk(here.host(), &request);
        if !matches!(request, Request::Pause(_) | Request::Read(_)) {
            let short = match &request {
                Request::Create(name, _) => format!("create {name}"),
                other => format!("{other:?}"),
            };
            let result = answer.as_ref().map(|_| "done").map_err(io::Error::kind);
            here.world.note(format_args!("agent {} directory: {short}: {result:?}", here.agent));
        }
        if answers.send((tokio::time::Instant::now().into_std(), answer)).is_err() {
            return;
        }
    }
}

/// Waits for the end of a thread, on one that asks.
pub(crate) fn wait(ended: &Receiver<()>, limit: Duration) -> Option<Result<(), RecvTimeoutError>> {
    let until = now()? + limit;
    loop {
        match ended.try_recv() {
            Ok(()) => return Some(Ok(())),
            Err(TryRecvError::Disconnected) => return Some(Err(RecvTimeoutError::Disconnected)),
            Err(TryRecvError::Empty) if now()? >= until || ask(Request::Pause(LOOK)).is_err() => {
                return Some(Err(RecvTimeoutError::Timeout));
            }
            Err(TryRecvError::Empty) => {}
        }
    }
}
