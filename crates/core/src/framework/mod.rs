//! The variables of one child, rendered from a [`Roster`].
//!
//! A framework can only render a roster, so nothing is ever written from half-known data.

pub mod server_def;
pub mod tensorflow;

use crate::devices::{self, MASKS};
use crate::environ::Environ;
use crate::plan::Member;
use crate::roster::Roster;
use crate::variables as var;
use std::collections::BTreeMap;

/// What one child gets on top of the environment it inherits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChildEnv {
    /// By name, so that output is stable.
    pub variables: BTreeMap<String, String>,
}

/// Everything a TensorFlow member needs to know.
pub fn child_env(roster: &Roster, member: &Member, environ: &Environ) -> ChildEnv {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    set(var::RALLYPOINT_ROLE, member.role.to_string());
    set(var::RALLYPOINT_INDEX, member.index.to_string());
    set(var::RALLYPOINT_RANK, member.rank.to_string());
    set(var::RALLYPOINT_WORLD, roster.plan.world().to_string());
    set(var::RALLYPOINT_ATTEMPT, roster.plan.attempt.to_string());
    set(var::RALLYPOINT_ADDRESS, roster.endpoint(member).to_string());
    if let Some(place) = member.place {
        set(var::RALLYPOINT_LOCAL_RANK, place.local_rank.to_string());
    }
    set(var::TF_CONFIG, tensorflow::tf_config(roster, member));
    if let (Some(mask), true) = (&member.devices, roster.plan.binds_gpus) {
        for variable in masks_to_set(environ, mask.is_empty()) {
            set(variable, devices::join(mask));
        }
    }
    ChildEnv { variables }
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
    /// `export NAME='value'` lines for a POSIX shell.
    pub fn to_shell(&self) -> String {
        self.variables.iter().map(|(name, value)| format!("export {name}={}\n", shell_quote(value))).collect()
    }
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
