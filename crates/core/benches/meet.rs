//! Simulated members over loopback: from the first connect to the last roster, with authentication on.
//!
//! `cargo bench -p rallypoint --bench meet`. The leader is one process with one thread, as in life; all
//! members are tasks of a second one.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use rallypoint::plan::{JobSpec, Plan};
use rallypoint::rendezvous::message::{Offer, VERSION};
use rallypoint::rendezvous::{
    self, Contact, ContestedLeader, JoinRequest, Part, RendezvousError, Seeker, Wait, WayToMeet,
};
use rallypoint::roles::RoleRequest;
use rallypoint::scheduler::hypothetical::{self, Hypothesis};
use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--join") {
        return join_all(args[at + 1].parse()?);
    }
    for (world, runs) in [(1000, 10), (10_000, 5)] {
        let mut times: Vec<Duration> = (0..runs).map(|_| gather(world)).collect::<Result<_>>()?;
        times.sort();
        let ms = |time: &Duration| time.as_millis();
        println!(
            "{world:>6} members: median {} ms, from {} to {} ms ({runs} runs)",
            ms(&times[runs / 2]),
            ms(&times[0]),
            ms(&times[runs - 1])
        );
    }
    Ok(())
}

/// A place that one process knows.
struct Known {
    contact: Arc<Mutex<Option<Contact>>>,
}

impl ContestedLeader for Known {
    fn name(&self) -> String {
        "benchmark".to_owned()
    }
    fn look(&mut self) -> std::result::Result<Option<Contact>, RendezvousError> {
        Ok(self.contact.lock().ok().and_then(|contact| contact.clone()))
    }
    fn claim(&mut self, contact: &Contact) -> std::result::Result<bool, RendezvousError> {
        if let Ok(mut known) = self.contact.lock() {
            *known = Some(contact.clone());
        }
        Ok(true)
    }
    fn replace(&mut self, _: &Contact, _: &Contact) -> std::result::Result<bool, RendezvousError> {
        Ok(false)
    }
    fn retract(&mut self) {}
    fn may_block(&self) -> bool {
        false
    }
}

fn known(contact: &Arc<Mutex<Option<Contact>>>) -> Seeker {
    Seeker::new(WayToMeet::contested(Known { contact: contact.clone() }))
}

fn join_request(world: u32, rank: u32) -> JoinRequest {
    JoinRequest {
        offer: Offer {
            version: VERSION,
            rank: Some(rank),
            job: None,
            attempt: 0,
            runs: 0,
            roles: format!("worker*{world}"),
            host: format!("n{:05}", rank / 8),
            machine: format!("machine {}", rank / 8),
            addresses: vec![format!("10.0.{}.{}", rank / 8 / 250, rank / 8 % 250)],
            chosen: false,
            port: 20000 + (rank % 8) as u16,
            pid: 1,
            process: Some(rank.into()),
        },
        world,
        key: None,
        timeout: LIMIT,
        rejoin: Duration::from_secs(10),
        lost_leader: None,
        apart: false,
        listen: None,
    }
}

fn event_loop<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

fn plan(world: u32) -> Result<Plan> {
    let roles = RoleRequest::List(format!("worker*{world}").parse()?);
    let hypothesis =
        Hypothesis { nodes: "n1".to_owned(), tasks_per_node: None, gpus_per_node: 0, cpus_per_task: None };
    let allocation = hypothetical::allocation(&hypothesis, &roles)?;
    Ok(Plan::new(allocation, &JobSpec { roles, ..JobSpec::default() })?)
}

/// Leads; the members' process tells its time.
fn gather(world: u32) -> Result<Duration> {
    let plan = plan(world)?;
    event_loop(async {
        let published = Arc::new(Mutex::new(None));
        let mut way = known(&published);
        let Part::Leader(mut leader) =
            rendezvous::meet(&mut way, &join_request(world, 0), Wait::begin(LIMIT), &mut |_| {}).await?
        else {
            return Err("somebody else leads".into());
        };
        let mut members = Command::new(std::env::current_exe()?)
            .args(["--join", &world.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let contact = serde_json::to_string(&published.lock().map_err(|_| "a panic")?.clone())?;
        members.stdin.take().ok_or("no stdin")?.write_all(contact.as_bytes())?;
        let met = leader.gather(&plan, |_| {}).await?.met;
        met.roster.hand_out(&met.remotes);
        // The writers are tasks of this loop: let them work until all have read.
        let output = tokio::task::spawn_blocking(move || members.wait_with_output()).await??;
        let micros: u64 = String::from_utf8(output.stdout)?.trim().parse()?;
        Ok(Duration::from_micros(micros))
    })
}

/// All members but the leader; prints microseconds from the first connect to the last roster.
fn join_all(world: u32) -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all)?;
    let contact: Contact = serde_json::from_reader(std::io::stdin())?;
    let plan = Rc::new(plan(world)?);
    let started = Instant::now();
    event_loop(async {
        let contact = Arc::new(Mutex::new(Some(contact)));
        let tasks: Vec<_> = (1..world)
            .map(|rank| {
                let (contact, plan) = (contact.clone(), plan.clone());
                tokio::task::spawn_local(async move {
                    let mut way = known(&contact);
                    let wait = Wait::begin(LIMIT);
                    let part =
                        rendezvous::meet(&mut way, &join_request(world, rank), wait, &mut |_| {}).await;
                    match part {
                        Ok(Part::Member(mut link)) => link
                            .roster(&plan, wait, |_| {})
                            .await
                            .map(|columns| (link, columns))
                            .map_err(|e| e.to_string()),
                        Ok(Part::Leader(_) | Part::Over { .. }) => Err("it does not follow".to_owned()),
                        Err(error) => Err(error.to_string()),
                    }
                })
            })
            .collect();
        let mut met = Vec::new();
        for task in tasks {
            met.push(task.await??);
        }
        let micros = started.elapsed().as_micros();
        if met.first().and_then(|(_, columns)| columns.members(world)).is_none() {
            return Err("the roster does not fit".into());
        }
        println!("{micros}");
        Ok(())
    })
}
