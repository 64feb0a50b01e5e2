//! The variables of one child, rendered from a [`Roster`].
//!
//! A framework can only render a roster, so nothing is ever written from half-known data.

mod jax;
mod plain;
pub mod server_def;
pub mod tensorflow;
pub(crate) mod torch;

use crate::devices::{self, MASKS};
use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::plan::Member;
use crate::ports::HandOver;
use crate::proxy::no_proxy;
use crate::roster::Roster;
use crate::shell;
use crate::variables::{self as var, MAX_STRING};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;
use thiserror::Error;

/// All frameworks, the first being the default.
pub static FRAMEWORKS: &[&dyn Framework] =
    &[&tensorflow::TensorFlow, &torch::Torch, &jax::Jax, &plain::Plain];

/// Whose words to use: one file per framework, and a line in [`FRAMEWORKS`].
pub trait Framework: Debug + Sync {
    /// As `--framework` takes it.
    fn name(&self) -> &'static str;

    /// As people write it.
    fn title(&self) -> &'static str;

    /// What its members get, in a few words.
    fn about(&self) -> &'static str;

    /// The variables by which a member finds the others, on top of rallypoint's own.
    fn variables(
        &self,
        roster: &Roster,
        member: &Member,
        hand_over: HandOver,
    ) -> Result<Vec<(&'static str, String)>, FrameworkError>;

    /// How many threads it may use, where the slot's CPUs are known.
    fn threads(&self, cpus: u32) -> Vec<(&'static str, u32)> {
        vec![(var::OMP_NUM_THREADS, cpus)]
    }

    /// Its members listen at their addresses, and `rallypoint serve` can serve in their place.
    fn has_servers(&self) -> bool {
        false
    }
}

/// The framework of a name.
pub fn by_name(name: &str) -> Option<&'static dyn Framework> {
    FRAMEWORKS.iter().copied().find(|framework| framework.name() == name)
}

/// What a running agent adds.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// The roster as a JSON file.
    pub roster_file: Option<PathBuf>,
    /// Where the program may leave the reason of its failure.
    pub error_file: Option<PathBuf>,
    /// Turn the slot's CPUs into thread settings.
    pub threads: bool,
    /// How the member gets its port.
    pub hand_over: HandOver,
}

/// What one child gets on top of the environment it inherits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChildEnv {
    /// By name, so that output is stable.
    pub variables: BTreeMap<String, String>,
    /// What a person should know about them.
    pub notes: Vec<String>,
}

/// Why a member's variables cannot be written.
#[derive(Debug, Error)]
pub enum FrameworkError {
    /// A variable of a large cluster is longer than `execve` takes.
    #[error("{variable} of {world} members has {size} bytes, and Linux takes {MAX_STRING} in one variable")]
    TooLarge {
        /// Its name.
        variable: &'static str,
        /// How many members the cluster has.
        world: u32,
        /// How long its value would be, in bytes.
        size: usize,
    },
}

impl Hinted for FrameworkError {
    fn hint(&self) -> Option<Hint> {
        let FrameworkError::TooLarge { .. } = self;
        Some(hint!(
            "use ",
            Setting::Framework.with("plain"),
            " and build the cluster from the file in RALLYPOINT_ROSTER_FILE"
        ))
    }
}

/// Everything a member needs to know.
pub fn child_env(
    framework: &dyn Framework,
    roster: &Roster,
    member: &Member,
    environ: &Environ,
    extras: &Extras,
) -> Result<ChildEnv, FrameworkError> {
    let mut child = ChildEnv::default();
    let mut set = |name: &str, value: String| child.variables.insert(name.to_owned(), value);
    set(var::RALLYPOINT_ROLE, member.role.to_string());
    set(var::RALLYPOINT_INDEX, member.index.to_string());
    set(var::RALLYPOINT_RANK, member.rank.to_string());
    set(var::RALLYPOINT_WORLD, roster.plan().world().to_string());
    set(var::RALLYPOINT_ATTEMPT, roster.plan().attempt().to_string());
    if let Some(end) = roster.plan().deadline().and_then(|end| end.duration_since(UNIX_EPOCH).ok()) {
        set(var::RALLYPOINT_DEADLINE, end.as_secs().to_string());
    }
    set(var::RALLYPOINT_ADDRESS, roster.endpoint(member).to_string());
    if let Some(place) = member.place {
        set(var::RALLYPOINT_LOCAL_RANK, place.local_rank.to_string());
    }
    for (name, file) in
        [(var::RALLYPOINT_ROSTER_FILE, &extras.roster_file), (var::RALLYPOINT_ERROR_FILE, &extras.error_file)]
    {
        if let Some(file) = file {
            set(name, file.display().to_string());
        }
    }
    for (name, value) in framework.variables(roster, member, extras.hand_over)? {
        if name.len() + 1 + value.len() > MAX_STRING {
            let (world, size) = (roster.plan().world(), value.len());
            return Err(FrameworkError::TooLarge { variable: name, world, size });
        }
        set(name, value);
    }
    if let (Some(mask), true) = (&member.devices, roster.plan().binds_gpus()) {
        for variable in masks_to_set(environ, mask.is_empty()) {
            set(variable, devices::join(mask));
        }
    }
    if let (Some(cpus), true) = (member.cpus, extras.threads) {
        for (name, count) in framework.threads(cpus) {
            if environ.get(name).is_none() {
                set(name, count.to_string());
            }
        }
    }
    child.spare_from_proxy(roster, environ);
    Ok(child)
}

/// The mask variables of a child: those that are there already, or CUDA's where GPUs were counted.
fn masks_to_set(environ: &Environ, no_gpu: bool) -> Vec<&'static str> {
    let there: Vec<&'static str> = MASKS.into_iter().filter(|mask| environ.get(mask).is_some()).collect();
    match there.is_empty() {
        true if no_gpu => Vec::new(),
        true => vec![var::CUDA_VISIBLE_DEVICES],
        false => there,
    }
}

impl ChildEnv {
    fn spare_from_proxy(&mut self, roster: &Roster, environ: &Environ) {
        let members = roster.plan().members().iter().map(|member| roster.endpoint(member).address.as_str());
        if let Some((variables, note)) = no_proxy(environ, members) {
            self.variables.extend(variables);
            self.notes.push(note);
        }
    }

    /// `export NAME='value'` lines for a POSIX shell.
    pub fn to_shell(&self) -> String {
        self.variables
            .iter()
            .map(|(name, value)| format!("export {name}={}\n", shell::quote(value)))
            .collect()
    }
}
