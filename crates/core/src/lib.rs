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
//! | [`Environ`](environ::Environ): variables, host name, named files, a snapshot | [`environ`], and [`machine`] for what it probes |
//! | [`Allocation`](allocation::Allocation): the scheduler's whole answer, checked | [`scheduler`] |
//! | [`Plan`](plan::Plan): members with roles, devices, CPUs; no address | [`plan`], [`roles`], [`devices`] |
//! | [`Roster`](roster::Roster): the plan plus one endpoint per member | [`roster`], [`address`] |
//! | [`ChildEnv`](framework::ChildEnv): the variables of one child | [`framework`] |
//! | [`Outcome`](outcome::Outcome): how every member ended, and the verdict | [`job`] decides, [`supervise`] does |
//!
//! # Layers
//!
//! A module uses what stands above it or beside it in this list, never what stands below; read it from the top to learn
//! the crate. `tests/layers.rs` compares it with every `use` line, and with who touches the world: files, variables,
//! the clock, the network, processes.
//!
//! | layer | modules | touches the world |
//! |---|---|---|
//! | words | `hint` `variables` `signal` `hostlist` `address` `shell` `trace` | no |
//! | doors to this machine | `clock` `lane` `process` `network` `ports` | yes |
//! | a snapshot: words | `devices` `roles` | no |
//! | a snapshot: taken | `machine` `environ` | yes |
//! | values | `allocation` `plan` `names` `roster` `proxy` `framework` `check` | no |
//! | what happened, and what to do about it | `outcome` `event` `job` | no |
//! | what is written about it | `event_log` | yes |
//! | members find each other | `rendezvous` | yes |
//! | servers without Python | `serve` | yes |
//! | members are started, watched and ended | `supervise` | yes |
//! | one room per scheduler | `scheduler` | yes |
//! | the front doors | `run` `doctor` | yes |
//!
//! The library never exits or panics on input, and prints nothing but what members write.

pub mod address;
pub mod allocation;
pub mod check;
mod clock;
pub mod devices;
pub mod doctor;
pub mod environ;
pub mod event;
mod event_log;
pub mod framework;
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
pub mod rendezvous;
pub mod roles;
pub mod roster;
pub mod run;
pub mod scheduler;
pub mod serve;
pub mod shell;
pub mod signal;
pub mod supervise;
mod trace;
pub mod variables;

pub use event::RunEvent;
pub use hint::{Hint, Hinted};
pub use outcome::Outcome;
pub use run::{Run, RunError};
