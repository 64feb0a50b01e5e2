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
//! | [`Roster`](roster::Roster): the plan plus one endpoint a member | [`roster`], [`address`] |
//! | [`ChildEnv`](framework::ChildEnv): the variables of one child | [`framework`] |
//! | [`Outcome`](outcome): how every member ended | [`job`] decides, [`supervise`] does |
//!
//! [`serve`] is a member by itself: a TensorFlow server without Python.
//!
//! Only [`environ`], [`machine`], [`doctor`], [`ports`], [`reach`], [`rendezvous`], [`events`], [`serve`] and [`supervise`]
//! touch the world; everything else is a function of its arguments. The library never exits or panics on input, and
//! prints nothing but what members write.

pub mod address;
pub mod allocation;
pub mod check;
mod descriptor;
pub mod devices;
pub mod doctor;
pub mod environ;
pub mod events;
pub mod framework;
pub mod hostlist;
pub mod job;
pub mod machine;
pub mod outcome;
pub mod plan;
pub mod ports;
pub mod reach;
pub mod rendezvous;
pub mod roles;
pub mod roster;
pub mod scheduler;
pub mod serve;
pub mod signal;
pub mod submit;
pub mod supervise;
pub mod variables;
