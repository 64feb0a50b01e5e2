//! The variables of one child, rendered from a [`Roster`].
//!
//! A framework can only render a roster, so nothing is ever written from half-known data.

mod jax;
pub mod server_def;
pub mod tensorflow;
mod torch;

use crate::devices::{self, MASKS};
use crate::environ::Environ;
use crate::plan::Member;
use crate::ports::HandOver;
use crate::roster::Roster;
use crate::variables as var;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;
use thiserror::Error;

/// Whose words to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framework {
    #[default]
    TensorFlow,
    Torch,
    Jax,
    /// `RALLYPOINT_*` alone.
    Plain,
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

#[derive(Debug, Error)]
pub enum FrameworkError {
    #[error(
        "TF_CONFIG of {world} members has {size} bytes, and Linux takes {MAX_STRING} in one variable; hint: TensorFlow reads it from nowhere else; use --framework plain and build the cluster from the file in RALLYPOINT_ROSTER_FILE"
    )]
    TooLarge { world: u32, size: usize },
}

/// What `execve` takes in one string, with its name and end.
const MAX_STRING: usize = (128 << 10) - 1;

/// Everything a member needs to know.
pub fn child_env(
    framework: Framework,
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
    set(var::RALLYPOINT_WORLD, roster.plan.world().to_string());
    set(var::RALLYPOINT_ATTEMPT, roster.plan.attempt.to_string());
    if let Some(end) = roster.plan.deadline.and_then(|end| end.duration_since(UNIX_EPOCH).ok()) {
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
    match framework {
        Framework::TensorFlow => {
            let text = tensorflow::tf_config(roster, member);
            if var::TF_CONFIG.len() + 1 + text.len() > MAX_STRING {
                return Err(FrameworkError::TooLarge { world: roster.plan.world(), size: text.len() });
            }
            set(var::TF_CONFIG, text);
            if extras.hand_over == HandOver::ReusePort {
                set(var::TF_GRPC_REUSE_PORT, "1".to_owned());
            }
        }
        Framework::Torch => {
            torch::variables(roster, member).into_iter().for_each(|(name, value)| _ = set(name, value))
        }
        Framework::Jax => {
            jax::variables(roster, member).into_iter().for_each(|(name, value)| _ = set(name, value))
        }
        Framework::Plain => {}
    }
    if let (Some(mask), true) = (&member.devices, roster.plan.binds_gpus) {
        for variable in masks_to_set(environ, mask.is_empty()) {
            set(variable, devices::join(mask));
        }
    }
    if let (Some(cpus), true) = (member.cpus, extras.threads) {
        let mut threads = vec![(var::OMP_NUM_THREADS, cpus)];
        if framework == Framework::TensorFlow {
            threads.push((var::TF_NUM_INTRAOP_THREADS, cpus));
            // With one, TensorFlow 2's coordinator waits for ever: its own op fills the only thread.
            threads.push((var::TF_NUM_INTEROP_THREADS, cpus.max(2)));
        }
        for (name, count) in threads {
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
        let members = roster.plan.members.iter().map(|member| roster.endpoint(member).address.as_str());
        if let Some((variables, note)) = no_proxy(environ, members) {
            self.variables.extend(variables);
            self.notes.push(note);
        }
    }

    /// `export NAME='value'` lines for a POSIX shell.
    pub fn to_shell(&self) -> String {
        self.variables.iter().map(|(name, value)| format!("export {name}={}\n", shell_quote(value))).collect()
    }
}

/// gRPC goes through a proxy even to localhost, and hangs: names the members' hosts in `no_proxy`.
/// `None` if there is no proxy, or all of them are named already.
pub(crate) fn no_proxy<'a>(
    environ: &'a Environ,
    hosts: impl Iterator<Item = &'a str>,
) -> Option<(Vec<(String, String)>, String)> {
    let proxies = [var::GRPC_PROXY, var::HTTPS_PROXY_LOWER, var::HTTP_PROXY_LOWER];
    let proxy = proxies.into_iter().find(|proxy| environ.get_nonempty(proxy).is_some())?;
    let lower = environ.get_nonempty(var::NO_PROXY_LOWER);
    let before = lower.or(environ.get_nonempty(var::NO_PROXY_UPPER));
    let mut spared: Vec<&str> =
        before.unwrap_or("").split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
    let known: BTreeSet<&str> = spared.iter().copied().collect();
    let wanted: BTreeSet<&str> = hosts.chain(["localhost", "127.0.0.1"]).collect();
    if lower.is_some() && wanted.is_subset(&known) {
        return None;
    }
    spared.extend(wanted.difference(&known));
    let value = spared.join(",");
    if value.len() + 16 > MAX_STRING {
        let note = format!("{proxy} is set, and the members' hosts are too many for no_proxy: unset it");
        return Some((Vec::new(), note));
    }
    let note =
        format!("{proxy} is set: the members' hosts are added to no_proxy, since gRPC would go through it");
    let names = [var::NO_PROXY_LOWER, var::NO_PROXY_UPPER];
    Some((names.map(|name| (name.to_owned(), value.clone())).into(), note))
}

/// Quotes for a POSIX shell; plain words stay as they are.
pub fn shell_quote(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@%+=".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}
