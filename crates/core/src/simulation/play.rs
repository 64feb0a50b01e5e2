//! A scenario, from the first agent to the last: starts the agents, lets go wrong what is to go wrong, and takes down what
//! happens.

use super::folder::Folder;
use super::inside::Inside;
use super::scenario::{Fault, Scenario};
use crate::allocation::IndependentRestarts;
use crate::clock;
use crate::environ::Environ;
use crate::event::RunEvent;
use crate::framework::FRAMEWORKS;
use crate::job::Rules;
use crate::outcome::Outcome;
use crate::plan::{JobSpec, Plan};
use crate::ports::{HandOver, PortChoice};
use crate::process::Pipe;
use crate::rehearsal::Rehearsal;
use crate::rendezvous::directory::Directory;
use crate::rendezvous::{Meeting, Seeker, WayToMeet};
use crate::roles::{Role, RoleRequest};
use crate::roster::Addressing;
use crate::scheduler::local;
use crate::simulated::net::WriteEnd;
use crate::simulated::processes::Fate;
use crate::simulated::{Here, World, beside, pid_of};
use crate::supervise::{AgentError, LogErrors, OutputStyle, Prepared, RunSpec, simulate_member};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{AbortHandle, LocalSet};

/// When it is over, whatever happens.
const LIMIT: Duration = Duration::from_secs(400);
/// How long an agent waits for what it has published to be taken back, as `Seeker` does at its end.
const RETRACT: Duration = Duration::from_secs(5);
/// How often one that waits for that looks up.
const LOOK: Duration = Duration::from_millis(100);
/// How long a guard takes to notice that its agent is gone.
const GUARD: Duration = Duration::from_millis(5);

/// What happened.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) log: Vec<String>,
    /// Each process of an agent, in the order of their starts.
    pub(super) agents: Vec<Life>,
    /// Each process of a member.
    pub(super) fates: Vec<Fate>,
    /// What is left in the directory.
    pub(super) files: Vec<String>,
}

/// A process of an agent.
#[derive(Debug, Clone)]
pub(super) struct Life {
    /// Which agent of the scenario it is.
    pub(super) slot: usize,
    pub(super) started: Duration,
    /// When it was killed, or lost with its host.
    pub(super) killed: Option<Duration>,
    pub(super) ended: Option<(Duration, u8)>,
    /// What it told.
    pub(super) events: Vec<(Duration, RunEvent)>,
    /// What had happened before each of these.
    pub(super) steps: Vec<usize>,
    /// Members that were left when it had ended.
    pub(super) left: usize,
}

struct Stage {
    world: Rc<World>,
    scenario: Scenario,
    lives: RefCell<Vec<Life>>,
    guards: RefCell<Vec<Option<WriteEnd>>>,
    tasks: RefCell<Vec<Option<AbortHandle>>>,
    /// Agents that are to be started again.
    coming: RefCell<usize>,
    private: PathBuf,
}

/// Plays it to its end, on this thread.
pub(super) fn play(scenario: &Scenario) -> Played {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&scenario.seed.to_le_bytes()));
    let runtime = builder.build().expect("a runtime");
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
    let private = std::env::temp_dir().join(format!("rallypoint-simulation-{}-{thread}", std::process::id()));
    std::fs::create_dir_all(&private).expect("a folder for rosters");
    let local = LocalSet::new();
    let played = local.block_on(&runtime, async {
        let world = World::new(scenario.seed);
        tokio::task::spawn_local(world.clone().turn());
        let stage = Rc::new(Stage {
            world: world.clone(),
            scenario: scenario.clone(),
            lives: RefCell::default(),
            guards: RefCell::default(),
            tasks: RefCell::default(),
            coming: RefCell::new(scenario.starts.len()),
            private: private.clone(),
        });
        let habits = scenario.habits.iter().cloned().enumerate().map(|(rank, habits)| (rank as u32, habits));
        world.processes.borrow_mut().habits = habits.collect();
        for (slot, &at) in scenario.starts.iter().enumerate() {
            let stage = stage.clone();
            world.later(Duration::from_millis(at), move |_| stage.start(slot, 0));
        }
        for (at, fault) in scenario.faults.clone() {
            let stage = stage.clone();
            world.later(Duration::from_millis(at), move |_| stage.strike(&fault));
        }
        let over = || {
            let lives = stage.lives.borrow();
            *stage.coming.borrow() == 0
                && lives.iter().all(|life| life.ended.is_some() || life.killed.is_some())
        };
        while !over() && world.now() < LIMIT {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // A guard may still be cleaning up.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let played = Played {
            log: std::mem::take(&mut world.log.borrow_mut()),
            agents: stage.lives.borrow().clone(),
            fates: world.processes.borrow().fates.values().cloned().collect(),
            files: world.disk.borrow().names(),
        };
        stage.tasks.borrow_mut().drain(..).flatten().for_each(|task| task.abort());
        played
    });
    drop(local);
    _ = std::fs::remove_dir_all(&private);
    played
}

impl Stage {
    /// Starts a process of an agent.
    fn start(self: &Rc<Stage>, slot: usize, runs: u32) {
        let world = &self.world;
        *self.coming.borrow_mut() -= 1;
        let host = self.scenario.hosts[slot];
        let agent = world.add_agent(host);
        world.note(format_args!("agent {agent} is started: slot {slot} on host {host}, run {runs}"));
        self.lives.borrow_mut().push(Life {
            slot,
            started: world.now(),
            killed: None,
            ended: None,
            events: Vec::new(),
            steps: Vec::new(),
            left: 0,
        });
        let (guard, from_guard) = world.flow(host, host);
        self.guards.borrow_mut().push(Some(guard));
        let here = Here { world: world.clone(), agent };
        let task = tokio::task::spawn_local(self.clone().live(here, slot, runs, from_guard));
        self.tasks.borrow_mut().push(Some(task.abort_handle()));
    }

    /// From its first step to its exit code.
    async fn live(
        self: Rc<Stage>,
        here: Here,
        slot: usize,
        runs: u32,
        from_guard: crate::simulated::net::ReadEnd,
    ) {
        let agent = here.agent;
        let stage = self.clone();
        let work = async move {
            let mut seeker = Seeker::new(WayToMeet::contested(directory(agent)));
            let meeting = stage.meeting(slot);
            let prepared = stage.prepared(slot, runs, agent);
            let local = LocalSet::new();
            let told = stage.clone();
            let mut tell = move |event: RunEvent| {
                let world = &told.world;
                world.note(format_args!("agent {agent} tells {event:?}"));
                let mut lives = told.lives.borrow_mut();
                lives[agent].steps.push(world.step());
                lives[agent].events.push((world.now(), event));
            };
            let result = local
                .run_until(async {
                    tokio::task::spawn_local(clock::keep());
                    simulate_member(prepared, &meeting, &mut seeker, Pipe::simulated(from_guard), &mut tell)
                        .await
                })
                .await;
            // The event loop is gone, and with it all connections; then what was published is taken back.
            drop(local);
            (result, seeker)
        };
        let (result, seeker) = Inside::new(here.clone(), work).await;
        let code = code_of(&result);
        if let Err(error) = &result {
            self.world.note(format_args!("agent {agent} has failed: {error}"));
        }
        let retract = beside::run(here.clone(), move || drop(seeker));
        within(RETRACT, &self.world, agent, Inside::new(here, retract)).await;
        let world = &self.world;
        world.note(format_args!("agent {agent} ends with {code}"));
        let left = world.living(agent).len();
        world.end_agent(agent);
        world.end_members_of(agent);
        let mut lives = self.lives.borrow_mut();
        lives[agent].ended = Some((world.now(), code));
        lives[agent].left = left;
    }

    fn meeting(&self, slot: usize) -> Meeting {
        Meeting {
            rank: self.scenario.ranked.then_some(slot as u32),
            key: None,
            timeout: Duration::from_millis(self.scenario.meet),
            job: None,
            listen: None,
        }
    }

    fn prepared(&self, slot: usize, runs: u32, agent: usize) -> Prepared {
        let mut environ = Environ::from_variables::<String, String>([]);
        environ.hostname = Some(format!("n{}", self.scenario.hosts[slot]));
        let roles = RoleRequest::List(self.scenario.roles.parse().expect("roles"));
        let mut allocation = local::allocation(&environ, &roles).expect("an allocation");
        if self.scenario.apart {
            allocation.restarts = Some(IndependentRestarts { previous_runs: runs, others_retry: false });
        }
        let plan = Plan::new(allocation, &JobSpec { roles, ..JobSpec::default() }).expect("a plan");
        let restarts = match self.scenario.restarts {
            0 => BTreeMap::new(),
            count => BTreeMap::from([(Role::Worker, count)]),
        };
        let private = self.private.join(agent.to_string());
        std::fs::create_dir_all(&private).expect("a folder for a roster");
        let spec = RunSpec {
            command: vec!["train".into()],
            served: None,
            stand_in: None,
            rules: Rules { restarts, ..Rules::default() },
            grace: Duration::from_millis(self.scenario.grace),
            framework: FRAMEWORKS[0],
            ports: PortChoice::Any,
            hand_over: HandOver::ReuseAddr,
            style: OutputStyle::default(),
            rehearsal: Rehearsal::default(),
            log_dir: None,
            events: None,
            log_errors: LogErrors::Fail,
            threads: false,
            addressing: Addressing::default(),
            extra: Vec::new(),
            withheld: &[],
            requeue: None,
            ask_deadline: None,
            private,
        };
        Prepared { plan, environ, spec }
    }

    /// The living process of an agent, if it has one.
    fn living(&self, slot: usize) -> Option<usize> {
        let lives = self.lives.borrow();
        lives.iter().rposition(|life| life.slot == slot && life.ended.is_none() && life.killed.is_none())
    }

    fn strike(self: &Rc<Stage>, fault: &Fault) {
        let world = &self.world;
        world.note(format_args!("FAULT {fault:?}"));
        let after = |lasts: u64, what: fn(&World)| {
            world.later(Duration::from_millis(lasts), move |world| what(world))
        };
        match *fault {
            Fault::Kill { agent: slot, back } => {
                let Some(agent) = self.living(slot) else { return };
                self.kill(agent);
                let guard = self.clone().clean_up_after(agent);
                tokio::task::spawn_local(guard);
                if let Some(back) = back {
                    let stage = self.clone();
                    let earlier = self.lives.borrow().iter().filter(|life| life.slot == slot).count() as u32;
                    *self.coming.borrow_mut() += 1;
                    world.later(Duration::from_millis(back), move |_| stage.start(slot, earlier));
                }
            }
            Fault::LoseHost { host } => {
                world.lose_host(host);
                for (slot, _) in self.scenario.hosts.iter().enumerate().filter(|(_, there)| **there == host) {
                    if let Some(agent) = self.living(slot) {
                        self.kill(agent);
                    }
                }
            }
            Fault::Cut { from, to, both, lasts } => {
                if from == to {
                    return;
                }
                world.block(from, to);
                if both {
                    world.block(to, from);
                }
                if let Some(lasts) = lasts {
                    world.later(Duration::from_millis(lasts), move |world| {
                        world.note("the cut is over");
                        world.unblock(from, to);
                        world.unblock(to, from);
                    });
                }
            }
            Fault::Break { a, b } if a == b => {}
            Fault::Break { a, b } => world.break_connections(a, b),
            Fault::SlowNet { ms, lasts } => {
                world.net.borrow_mut().slowness = ms;
                after(lasts, |world| world.net.borrow_mut().slowness = 0);
            }
            Fault::Signal { agent: slot, number, guard, straight } => {
                self.living(slot).into_iter().for_each(|agent| self.signal(agent, number, guard, straight));
            }
            Fault::SignalAll { number } => {
                for slot in 0..self.scenario.hosts.len() {
                    self.living(slot).into_iter().for_each(|agent| self.signal(agent, number, true, true));
                }
            }
            Fault::GuardGone { agent: slot } => {
                if let Some(agent) = self.living(slot) {
                    self.guards.borrow_mut()[agent] = None;
                }
            }
            Fault::Freeze { agent: slot, lasts } => {
                if let Some(agent) = self.living(slot) {
                    world.freeze(agent, true);
                    world.later(Duration::from_millis(lasts), move |world| world.freeze(agent, false));
                }
            }
            Fault::FreezeAll { lasts } => {
                let all: Vec<usize> =
                    (0..self.scenario.hosts.len()).filter_map(|slot| self.living(slot)).collect();
                all.iter().for_each(|&agent| world.freeze(agent, true));
                world.suspend_members(true);
                world.later(Duration::from_millis(lasts), move |world| {
                    world.note("all go on");
                    world.suspend_members(false);
                    all.iter().for_each(|&agent| world.freeze(agent, false));
                });
            }
            Fault::SlowDisk { ms, lasts } => {
                world.disk.borrow_mut().slowness = ms;
                after(lasts, |world| world.disk.borrow_mut().slowness = 0);
            }
            Fault::StaleDisk { ms, lasts } => {
                world.disk.borrow_mut().staleness = ms;
                after(lasts, |world| world.disk.borrow_mut().staleness = 0);
            }
            Fault::FullDisk { lasts } => {
                world.disk.borrow_mut().is_full = true;
                after(lasts, |world| world.disk.borrow_mut().is_full = false);
            }
            Fault::DiskClock { ms } => world.disk.borrow_mut().ahead += Duration::from_millis(ms),
        }
    }

    fn signal(&self, agent: usize, number: i32, guard: bool, straight: bool) {
        if let (true, Some(to_agent)) = (guard, &self.guards.borrow()[agent]) {
            to_agent.push(&[number as u8]);
        }
        if straight {
            self.world.signal_agent(agent, number);
        }
    }

    /// Its process is gone in the middle of whatever it did, and its members with it.
    fn kill(&self, agent: usize) {
        let world = &self.world;
        self.lives.borrow_mut()[agent].killed = Some(world.now());
        world.end_agent(agent);
        let task = self.tasks.borrow_mut()[agent].take();
        task.into_iter().for_each(|task| task.abort());
        world.end_members_of(agent);
    }

    /// What a guard does when its agent is gone.
    async fn clean_up_after(self: Rc<Stage>, agent: usize) {
        tokio::time::sleep(GUARD).await;
        let here = Here { world: self.world.clone(), agent };
        let clean_up = beside::run(here.clone(), move || {
            WayToMeet::contested(directory(agent)).clean_up_after(pid_of(agent));
        });
        within(RETRACT, &self.world.clone(), agent, Inside::new(here, clean_up)).await;
    }
}

/// Waits for something, as `beside::wait` does: a time in which the process is stopped does not count.
async fn within(limit: Duration, world: &World, agent: usize, work: impl Future<Output = ()>) {
    let over = async {
        let mut left = limit;
        while !left.is_zero() {
            tokio::time::sleep(LOOK).await;
            if !world.is_frozen(agent) {
                left = left.saturating_sub(LOOK);
            }
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = over => {}
    }
}

fn directory(agent: usize) -> Directory {
    let own_file = format!(".rallypoint-{agent}.tmp");
    Directory::in_folder(Box::new(Folder { own_file }), 0o40_700, Some("simulated"), 0)
        .expect("a private folder")
}

fn code_of(result: &Result<Outcome, AgentError>) -> u8 {
    match result {
        Ok(outcome) => outcome.code(),
        Err(error) => error.code(),
    }
}
