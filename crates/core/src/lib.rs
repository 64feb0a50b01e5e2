//! rallypoint turns an allocation on a batch system into a running distributed-training cluster.
//!
//! The types are the architecture; each stage takes the value before it and knows more:
//!
//! ```text
//! Environ  ->  Allocation  ->  Plan  ->  Roster  ->  ChildEnv  ->  Outcome
//! ```
//!
//! | stage | room |
//! |---|---|
//! | [`Environ`]: variables, host name, named files, a snapshot | [`environ`], and [`machine`] for what it probes |
//! | [`Allocation`]: the scheduler's whole answer, checked | [`scheduler`] |
//! | [`Plan`]: members with roles, devices, CPUs; no address | [`plan`], [`roles`], [`devices`] |
//! | [`Roster`]: the plan plus one endpoint per member | [`roster`], [`address`] |
//! | [`ChildEnv`]: the variables of one child | [`framework`] |
//! | [`Outcome`]: how every member ended, and the verdict | [`job`] decides, [`supervise`] does |
//!
//! # Examples
//!
//! Run a job, and hear what happens:
//!
//! ```no_run
//! use rallypoint::Run;
//!
//! let outcome = Run::new(["python", "train.py"])
//!     .roles("ps,worker*2".parse()?)
//!     .start(|event| println!("{event:?}"))?;
//! std::process::exit(outcome.code().into());
//! # #[expect(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Or stop at any stage. Who would run where in this step of a captured Slurm job, and what would its third task be?
//!
//! ```
//! use rallypoint::scheduler::{self, On};
//! use rallypoint::{Environ, JobSpec, Plan};
//!
//! let environ = Environ::from_variables([
//!     ("SLURM_JOB_ID", "7"),
//!     ("SLURM_STEP_ID", "0"),
//!     ("SLURM_STEP_NODELIST", "n[1-2]"),
//!     ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
//!     ("SLURM_PROCID", "2"),
//! ]);
//! let job = JobSpec::default();
//! let allocation = scheduler::allocation(&environ, On::Auto, &job.roles)?;
//! let plan = Plan::new(allocation, &job)?;
//! let me = plan.me().and_then(|rank| plan.member(rank)).expect("a task of a step has a rank");
//! assert_eq!((me.to_string().as_str(), plan.host(me)), ("worker 2", Some("n2")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! A module uses what stands above it or beside it in this list, never what stands below; read it from the top to learn
//! the crate. `tests/layers.rs` compares it with every `use` line, and with who touches the world: files, variables,
//! the clock, the network, processes.
//!
//! | layer | modules | touches the world |
//! |---|---|---|
//! | words | `hint` `variables` `signal` `duration` `hostlist` `address` `shell` `trace` | no |
//! | a room of simulated machines, for tests alone | `simulated` | yes |
//! | doors to this machine | `clock` `beside` `lane` `process` `network` `ports` | yes |
//! | a snapshot: words | `devices` `roles` | no |
//! | a snapshot: taken | `machine` `environ` | yes |
//! | values | `allocation` `plan` `names` `rehearsal` `roster` `proxy` `framework` `check` | no |
//! | what happened, and what to do about it | `outcome` `event` `job` | no |
//! | what is written about it | `event_log` | yes |
//! | members find each other | `rendezvous` | yes |
//! | servers without Python | `serve` | yes |
//! | members are started, watched and ended | `supervise` | yes |
//! | one room per scheduler | `scheduler` | yes |
//! | the front doors | `run` `doctor` | yes |
//! | what must hold in that room, whatever happens, for tests alone | `simulation` | yes |
//!
//! The library never exits or panics on input, and prints nothing but what members write.

#![warn(missing_docs)]

// By this name what tests share is found in `fuzzing` too.
#[cfg(feature = "fuzzing")]
extern crate self as rallypoint;

pub mod address;
pub mod allocation;
mod beside;
pub mod check;
mod clock;
pub mod devices;
pub mod doctor;
pub mod duration;
pub mod environ;
pub mod event;
mod event_log;
pub mod framework;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hint;
pub mod hostlist;
pub mod job;
mod lane;
pub mod machine;
pub mod names;
pub mod network;
pub mod outcome;
pub mod plan;
pub mod ports;
pub mod process;
mod proxy;
pub mod rehearsal;
pub mod rendezvous;
pub mod roles;
pub mod roster;
pub mod run;
pub mod scheduler;
pub mod serve;
pub mod shell;
pub mod signal;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
pub mod supervise;
mod trace;
pub mod variables;

pub use allocation::Allocation;
pub use environ::Environ;
pub use event::RunEvent;
pub use framework::ChildEnv;
pub use hint::{Hint, Hinted};
pub use outcome::Outcome;
pub use plan::{JobSpec, Member, Plan};
pub use roster::Roster;
pub use run::{Run, RunError};
