//! What a seed chooses: who there is, what the members do, and what goes wrong when.

use crate::simulated::dice::Dice;
pub use crate::simulated::processes::{Child, Exit, Habit};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A job and its misfortunes. All times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// What all else is drawn from: how long each word takes, who is first.
    pub seed: u64,
    /// `ps,worker*2`
    pub roles: String,
    /// The host of each agent; each has one member.
    pub hosts: Vec<usize>,
    /// When each agent is started.
    pub starts: Vec<u64>,
    /// Whether each agent is told its rank.
    pub ranked: bool,
    /// A scheduler starts members again apart from each other, and counts.
    pub apart: bool,
    /// How long members have after SIGTERM.
    pub grace: u64,
    /// How long all may take to come.
    pub meet: u64,
    /// How often a worker may come back.
    pub restarts: u32,
    /// What the members of each rank do, one process after the other; the last one for ever.
    pub habits: Vec<Vec<Habit>>,
    /// What goes wrong.
    pub faults: Vec<(u64, Fault)>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// An agent is killed; its guard ends the members and cleans up. It is started again after a while, perhaps.
    Kill { agent: usize, back: Option<u64> },
    /// A host falls silent for ever, with all that runs there.
    LoseHost { host: usize },
    /// Nothing comes through between two hosts, for so long or for ever; one way or both.
    Cut { from: usize, to: usize, both: bool, lasts: Option<u64> },
    /// All connections between two hosts are reset.
    Break { a: usize, b: usize },
    /// Each word takes up to so long, for a while.
    SlowNet { ms: u64, lasts: u64 },
    /// A signal by the guard, straight, or both.
    Signal { agent: usize, number: i32, guard: bool, straight: bool },
    /// The same to all agents.
    SignalAll { number: i32 },
    /// The guard is killed.
    GuardGone { agent: usize },
    /// An agent's process stands still for a while.
    Freeze { agent: usize, lasts: u64 },
    /// The whole job is suspended for a while, as by `scontrol suspend`.
    FreezeAll { lasts: u64 },
    /// Each request to the directory takes up to so long, for a while.
    SlowDisk { ms: u64, lasts: u64 },
    /// Looks may be so old, for a while.
    StaleDisk { ms: u64, lasts: u64 },
    /// Nothing can be made in the directory, for a while.
    FullDisk { lasts: u64 },
    /// The file server's clock jumps ahead.
    DiskClock { ms: u64 },
}

impl Scenario {
    /// What a seed chooses.
    pub fn draw(seed: u64) -> Scenario {
        let mut dice = Dice::new(seed);
        let world = 2 + dice.below(4) as usize;
        let shape = dice.below(4);
        let (roles, is_server): (String, Vec<bool>) = match shape {
            0 => (format!("worker*{world}"), vec![false; world]),
            1 => ("chief,".to_owned() + &format!("worker*{}", world - 1), vec![false; world]),
            _ => {
                let mut roles = "ps".to_owned();
                _ = write!(roles, ",worker*{}", world - 1);
                (roles, (0..world).map(|rank| rank == 0).collect())
            }
        };
        let hosts: Vec<usize> = match dice.chance(25) {
            // Some share a machine.
            true => (0..world).map(|agent| agent / 2).collect(),
            false => (0..world).collect(),
        };
        let spread = dice.one_of(&[0, 20, 500, 4000]);
        let starts: Vec<u64> = (0..world).map(|_| dice.below(spread + 1)).collect();
        let last = starts.iter().copied().max().unwrap_or(0);
        let grace = dice.one_of(&[500, 2000, 10_000]);
        let habits = is_server.iter().map(|&server| habits(&mut dice, server)).collect();
        let count = dice.one_of(&[0, 1, 1, 1, 1, 2, 2, 3]);
        let mut faults = Vec::new();
        for _ in 0..count {
            // Around the meeting, or at any moment of the job.
            let at = match dice.below(4) {
                0 => dice.below(last + 50),
                1 => last + dice.below(60),
                2 => last + dice.below(1500),
                _ => dice.below(last + 14_000),
            };
            faults.push((at, fault(&mut dice, &hosts)));
        }
        faults.sort_by_key(|(at, _)| *at);
        Scenario {
            seed,
            roles,
            hosts,
            starts,
            ranked: dice.chance(70),
            apart: dice.chance(20),
            grace,
            meet: dice.one_of(&[20_000, 40_000]),
            restarts: if dice.chance(20) { 1 + dice.below(2) as u32 } else { 0 },
            habits,
            faults,
        }
    }

    /// In a line, to be kept.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// One that was kept.
    pub fn from_json(text: &str) -> Result<Scenario, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// What does not go wrong by itself.
    pub fn calm(seed: u64) -> Scenario {
        Scenario { faults: Vec::new(), ..Scenario::draw(seed) }
    }
}

/// What the processes of a rank do.
fn habits(dice: &mut Dice, server: bool) -> Vec<Habit> {
    let count = 1 + dice.below(2);
    (0..count)
        .map(|_| {
            let exit = match dice.below(10) {
                0 => Exit::Code(1 + dice.below(120) as u8),
                1 => Exit::Signal(dice.one_of(&[libc::SIGKILL, libc::SIGSEGV])),
                _ => Exit::Code(0),
            };
            let at = match dice.below(3) {
                0 => dice.below(200),
                _ => 500 + dice.below(12_000),
            };
            // A server ends only if it fails.
            let ends = match server {
                true if exit == Exit::Code(0) => None,
                _ => Some((at, exit)),
            };
            let asked = match dice.below(5) {
                0 => None,
                1 => Some((dice.below(3000), Exit::Code(0))),
                _ => Some((dice.below(50), Exit::Signal(libc::SIGTERM))),
            };
            Habit {
                ends,
                asked,
                listens: dice.chance(60).then(|| dice.below(4000)),
                writes: dice.chance(40).then(|| 50 + dice.below(3000)),
                child: dice.chance(10).then(|| Child { asked: dice.chance(60).then(|| dice.below(3000)) }),
            }
        })
        .collect()
}

fn fault(dice: &mut Dice, hosts: &[usize]) -> Fault {
    let agent = dice.below(hosts.len() as u64) as usize;
    let (from, to) = (dice.one_of(hosts), dice.one_of(hosts));
    let lasts = dice.one_of(&[100, 3000, 8000, 20_000, 60_000]);
    match dice.below(17) {
        0 | 1 => {
            let back = dice.chance(50).then(|| dice.below(6000));
            Fault::Kill { agent, back }
        }
        2 => Fault::LoseHost { host: from },
        3 | 4 => Fault::Cut { from, to, both: dice.chance(50), lasts: dice.chance(60).then_some(lasts) },
        5 => Fault::Break { a: from, b: to },
        6 => Fault::SlowNet { ms: dice.one_of(&[50, 400, 2500]), lasts },
        7 | 8 => {
            let number =
                dice.one_of(&[libc::SIGTERM, libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGHUP]);
            let (guard, straight) = dice.one_of(&[(true, false), (true, true), (false, true)]);
            Fault::Signal { agent, number, guard, straight }
        }
        9 => Fault::SignalAll { number: dice.one_of(&[libc::SIGTERM, libc::SIGINT]) },
        10 => Fault::GuardGone { agent },
        11 => Fault::Freeze { agent, lasts },
        12 => Fault::SlowDisk { ms: dice.one_of(&[300, 1500, 6000]), lasts },
        13 => Fault::StaleDisk { ms: dice.one_of(&[200, 2000]), lasts },
        14 => Fault::FullDisk { lasts },
        15 => Fault::FreezeAll { lasts },
        _ => Fault::DiskClock { ms: dice.one_of(&[5000, 60_000]) },
    }
}
