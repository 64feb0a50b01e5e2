//! Members without Python: which roles are served, what stands in, and where their TensorFlow is.

use super::mode::Mode;
use super::{Run, RunError};
use crate::environ::Environ;
use crate::plan::Plan;
use crate::roles::{Role, RoleError};
use crate::serve::Options;
use crate::serve::find::{NotFound, find};
use crate::serve::members::{Served, can_be_served};
use crate::supervise::StandInCommand;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A ConfigProto has some hundred bytes.
const MAX_FILE: u64 = 64 << 20;

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    /// Roles that are served, `ps,worker`.
    pub(super) roles: Option<String>,
    pub(super) tensorflow: Option<PathBuf>,
    pub(super) config: Option<PathBuf>,
    pub(super) stand_in: bool,
}

impl Default for Servers {
    fn default() -> Servers {
        Servers { roles: None, tensorflow: None, config: None, stand_in: true }
    }
}

impl Run {
    /// The members that are served. TensorFlow is looked for once, here, and not by each of them; `None` if this agent
    /// runs none of them. `given` is where the user says that TensorFlow is.
    pub(super) fn served(
        &self,
        plan: &Plan,
        environ: &Environ,
        mode: &Mode,
        given: Option<&Path>,
    ) -> Result<Option<Served>, RunError> {
        let Some(roles) = &self.servers.roles else { return Ok(None) };
        // How many members there will be is up to the launcher then; they know, and say what is wrong.
        if mode.is_step() && !self.launcher_options.is_empty() {
            return Ok(None);
        }
        let roles: BTreeSet<Role> =
            roles.split(',').map(|role| role.trim().parse()).collect::<Result<_, RoleError>>()?;
        let members = match &self.task {
            None => plan.members().iter().map(|member| member.role.clone()).collect(),
            Some(task) => task.roles()?,
        };
        can_be_served(&roles, &members, &self.rules, self.framework)?;
        let own = match (plan.members(), self.place.rank.or(plan.me())) {
            ([only], _) => Some(only),
            (_, rank) => rank.and_then(|rank| plan.member(rank)),
        };
        if mode.is_step() || own.is_some_and(|member| !roles.contains(&member.role)) {
            return Ok(None);
        }
        let agent = self.agent.as_ref().ok_or(RunError::NoCommand)?;
        let found = find(given, &self.command, environ)?;
        let mut command = vec![agent.program.clone().into_os_string(), "serve".into()];
        command.extend(["--tensorflow".into(), found.folder.into_os_string()]);
        if let Some(file) = &self.servers.config {
            // What is wrong with it is said once, before anything starts.
            let config = Some((file.display().to_string(), read(file)?));
            Options { config, ..Options::default() }.config_proto()?;
            command.extend(["--config".into(), file.into()]);
        }
        Ok(Some(Served { roles, command }))
    }

    /// Where the user says that TensorFlow is, found now: a mistyped folder would be noticed when a server is needed,
    /// and that may be hours later. `None` if nothing was said, or if others look: the tasks of a step see their own
    /// hosts.
    pub(super) fn given_tensorflow(
        &self,
        environ: &Environ,
        mode: &Mode,
    ) -> Result<Option<PathBuf>, NotFound> {
        let given = self.servers.tensorflow.as_deref().filter(|_| self.framework.has_servers());
        let given = given.filter(|_| !mode.is_step());
        given.map(|folder| Ok(find(Some(folder), &[], environ)?.folder)).transpose()
    }

    /// Whether a server may stand in for a member that has finished.
    pub(super) fn lets_stand_in(&self) -> bool {
        self.framework.has_servers() && self.servers.stand_in && self.agent.is_some()
    }

    /// What stands in for a member that has finished. It looks for TensorFlow itself, so that a start does not wait
    /// for what is seldom needed; two threads are enough for a server that nobody gives work.
    pub(super) fn stand_in_command(&self, given: Option<PathBuf>) -> Option<StandInCommand> {
        let agent = self.agent.as_ref().filter(|_| self.lets_stand_in())?;
        let mut serve = vec![agent.program.clone().into_os_string()];
        serve.extend(["serve", "--intra-op-threads", "1", "--inter-op-threads", "2"].map(OsString::from));
        Some(StandInCommand { serve, tensorflow: given, command: self.command.clone() })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, RunError> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    match opened {
        Ok(_) => Ok(bytes),
        Err(source) => Err(RunError::Unreadable { file: file.to_owned(), source }),
    }
}
