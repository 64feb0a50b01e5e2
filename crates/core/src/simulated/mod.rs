//! A simulated room of machines, for tests alone: what the doors ask instead of this machine, where a simulation runs.
//!
//! Behind the feature `simulation`. One thread has one [`World`], with a clock that is moved on as soon as nobody has
//! anything left to do; whoever runs at the moment is [`here`]. Everything that differs from run to run on a real machine
//! is drawn from a seed here, so the same seed gives the same run. `crate::simulation` says what happens in it, and what
//! must hold.
//!
//! | file | subject |
//! |---|---|
//! | `dice` | numbers from a seed |
//! | `net` | connections between hosts, which can be slow, cut or broken |
//! | `disk` | a directory that all hosts see, which can be slow, full or stale |
//! | `beside` | threads that ask the directory, one step at a time |
//! | `processes` | members, and what becomes of them |

pub(crate) mod beside;
pub(crate) mod dice;
pub(crate) mod disk;
pub(crate) mod net;
pub(crate) mod processes;

use dice::Dice;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// Everything outside of the agents.
pub(crate) struct World {
    start: tokio::time::Instant,
    dice: RefCell<Dice>,
    pub(crate) agents: RefCell<Vec<Agent>>,
    pub(crate) net: RefCell<net::Net>,
    /// Told when hosts can reach each other again.
    healed: Notify,
    pub(crate) disk: RefCell<disk::Disk>,
    pub(crate) processes: RefCell<processes::Processes>,
    schedule: RefCell<BinaryHeap<Due>>,
    scheduled: Cell<u64>,
    sooner: Notify,
    pub(crate) log: RefCell<Vec<String>>,
}

/// An agent's process, as its machine knows it.
#[derive(Default)]
pub(crate) struct Agent {
    pub(crate) host: usize,
    pub(crate) alive: bool,
    /// Its process stands still, for so many reasons.
    pub(crate) frozen: u32,
    /// Who is to be woken when it goes on.
    pub(crate) thawed: Option<std::task::Waker>,
    /// Its threads that ask the directory.
    helpers: Vec<tokio::task::AbortHandle>,
    /// Where signals straight to it go.
    signals: BTreeMap<i32, mpsc::UnboundedSender<()>>,
}

type Happening = Box<dyn FnOnce(&Rc<World>)>;

/// Something that happens at a moment.
struct Due {
    at: tokio::time::Instant,
    number: u64,
    what: Happening,
}

impl Ord for Due {
    /// The soonest is the greatest.
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}
impl Eq for Due {}

/// The process that runs at the moment.
#[derive(Clone)]
pub(crate) struct Here {
    pub(crate) world: Rc<World>,
    pub(crate) agent: usize,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// Who runs at the moment; `None` where nothing is simulated.
pub(crate) fn here() -> Option<Here> {
    HERE.with_borrow(Clone::clone)
}

/// From now on somebody else runs; who did before.
pub(crate) fn enter(next: Option<Here>) -> Option<Here> {
    HERE.replace(next)
}

/// The first number of an agent's process.
const FIRST_PID: u32 = 1000;

/// The number of an agent's process.
pub(crate) fn pid_of(agent: usize) -> u32 {
    FIRST_PID + agent as u32
}

/// The address of a host.
pub(crate) fn address_of(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + host as u8).into()
}

/// An address that every host has, and that leads nowhere else: docker0.
pub(crate) const EVERYWHERE: Ipv4Addr = Ipv4Addr::new(172, 17, 0, 1);

impl World {
    /// Must be called where its clock runs: inside a runtime whose time is paused.
    pub(crate) fn new(seed: u64) -> Rc<World> {
        Rc::new(World {
            start: tokio::time::Instant::now(),
            dice: RefCell::new(Dice::new(seed)),
            agents: RefCell::default(),
            net: RefCell::default(),
            healed: Notify::new(),
            disk: RefCell::default(),
            processes: RefCell::default(),
            schedule: RefCell::default(),
            scheduled: Cell::default(),
            sooner: Notify::new(),
            log: RefCell::default(),
        })
    }

    /// How long it has run.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A number below `limit`.
    pub(crate) fn draw(&self, limit: u64) -> u64 {
        self.dice.borrow_mut().below(limit)
    }

    /// Says what happens, for the log that two runs of a seed must share.
    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        let now = self.now();
        let line = format!("{:>4}.{:03} {what}", now.as_secs(), now.subsec_millis());
        self.log.borrow_mut().push(line);
    }

    /// How much has happened so far.
    pub(crate) fn step(&self) -> usize {
        self.log.borrow().len()
    }

    /// Another agent's process; its number among all.
    pub(crate) fn add_agent(&self, host: usize) -> usize {
        let mut agents = self.agents.borrow_mut();
        agents.push(Agent { host, alive: true, ..Agent::default() });
        agents.len() - 1
    }

    /// Lets something happen later.
    pub(crate) fn later(&self, after: Duration, what: impl FnOnce(&Rc<World>) + 'static) {
        self.scheduled.set(self.scheduled.get() + 1);
        let due = Due {
            at: tokio::time::Instant::now() + after,
            number: self.scheduled.get(),
            what: Box::new(what),
        };
        self.schedule.borrow_mut().push(due);
        self.sooner.notify_one();
    }

    /// Lets everything happen at its moment, for ever.
    pub(crate) async fn turn(self: Rc<World>) {
        loop {
            let next = self.schedule.borrow().peek().map(|due| due.at);
            match next {
                Some(at) if at <= tokio::time::Instant::now() => {
                    let due = self.schedule.borrow_mut().pop();
                    due.into_iter().for_each(|due| (due.what)(&self));
                }
                Some(at) => tokio::select! {
                    biased;
                    () = self.sooner.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.sooner.notified().await,
            }
        }
    }

    /// Sends a signal straight to an agent's process.
    pub(crate) fn signal_agent(&self, agent: usize, number: i32) {
        if let Some(sender) = self.agents.borrow()[agent].signals.get(&number) {
            _ = sender.send(());
        }
    }

    /// An agent's process is gone, and its threads with it.
    pub(crate) fn end_agent(&self, agent: usize) {
        let mut agents = self.agents.borrow_mut();
        agents[agent].alive = false;
        agents[agent].helpers.drain(..).for_each(|helper| helper.abort());
    }

    pub(crate) fn is_frozen(&self, agent: usize) -> bool {
        self.agents.borrow()[agent].frozen > 0
    }

    /// An agent's process stands still, or goes on.
    pub(crate) fn freeze(&self, agent: usize, frozen: bool) {
        let waker = {
            let mut agents = self.agents.borrow_mut();
            let reasons = &mut agents[agent].frozen;
            *reasons = if frozen { *reasons + 1 } else { *reasons - 1 };
            if *reasons > 0 { None } else { agents[agent].thawed.take() }
        };
        waker.into_iter().for_each(std::task::Waker::wake);
    }
}

/// The kernel's clock.
pub(crate) fn now() -> Option<Instant> {
    match beside::now() {
        Some(now) => Some(now),
        None => here().map(|_| tokio::time::Instant::now().into_std()),
    }
}

/// Bytes that are as good as random.
pub(crate) fn random_bytes() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut fill = |dice: &mut Dice| {
        bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&dice.next().to_le_bytes()));
    };
    if beside::with_dice(&mut fill).is_none() {
        fill(&mut here()?.world.dice.borrow_mut());
    }
    Some(bytes)
}

/// The number of the process that runs.
pub(crate) fn own_pid() -> Option<u32> {
    here().map(|here| pid_of(here.agent))
}

/// Whether an agent of this number lives.
pub(crate) fn is_alive(pid: u32) -> Option<bool> {
    let agents = here()?;
    let agents = agents.world.agents.borrow();
    Some(
        pid.checked_sub(FIRST_PID)
            .and_then(|agent| agents.get(agent as usize))
            .is_some_and(|agent| agent.alive),
    )
}

impl Here {
    /// The machine that it runs on.
    pub(crate) fn host(&self) -> usize {
        self.world.agents.borrow()[self.agent].host
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.world.agents.borrow()[self.agent].alive
    }
}

/// What tells this machine from others.
pub(crate) fn machine_id() -> Option<String> {
    let host = beside::host().or_else(|| here().map(|here| here.host()))?;
    Some(format!("machine {host}"))
}

/// Whose process numbers they are.
pub(crate) fn pid_namespace() -> Option<String> {
    here().map(|here| format!("processes of machine {}", here.host()))
}

/// Addresses of this machine.
pub(crate) fn own_addresses() -> Option<Vec<IpAddr>> {
    here().map(|here| vec![address_of(here.host()), EVERYWHERE.into(), Ipv4Addr::LOCALHOST.into()])
}

/// Signals of a number that come straight to this process.
pub(crate) fn signals(number: i32) -> Option<mpsc::UnboundedReceiver<()>> {
    let here = here()?;
    let (sender, receiver) = mpsc::unbounded_channel();
    here.world.agents.borrow_mut()[here.agent].signals.insert(number, sender);
    Some(receiver)
}
