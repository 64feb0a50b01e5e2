//! Members of a job that are servers without Python: `run --serve ps`.

use crate::framework::Framework;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::job::Rules;
use crate::roles::Role;
use std::collections::BTreeSet;
use std::ffi::OsString;
use thiserror::Error;

/// Which roles are served, and the command that does it in place of the user's.
///
/// A process of its own: what crashes inside TensorFlow ends that member and not its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Their members run no program of the user's.
    pub roles: BTreeSet<Role>,
    /// `rallypoint serve` with its options, word by word.
    pub command: Vec<OsString>,
}

/// Roles that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServedError {
    /// No member has the role.
    #[error("{role} cannot be served: no member of this job has that role, there are {there}")]
    NoSuchRole {
        /// The role that was to be served.
        role: Role,
        /// The roles that there are: `ps, worker`.
        there: String,
    },
    /// It evaluates checkpoints, and nobody connects to it.
    #[error("an evaluator is no server")]
    Evaluator,
    /// The job would end with members of this role, and servers do not end by themselves.
    #[error(
        "{role} cannot be served: its members decide when the job ends, and a server never ends by itself"
    )]
    NeverEnds {
        /// The role that was to be served.
        role: Role,
        /// What to do about it.
        hint: Hint,
    },
    /// The job is of another framework.
    #[error("only TensorFlow has servers that can be served")]
    OtherFramework,
}

impl Hinted for ServedError {
    fn hint(&self) -> Option<Hint> {
        match self {
            ServedError::NoSuchRole { .. } => Some(hint!("serve one of those")),
            ServedError::Evaluator => Some(hint!("it runs the command like the others")),
            ServedError::NeverEnds { hint, .. } => Some(hint.clone()),
            ServedError::OtherFramework => {
                Some(hint!("leave ", Setting::Framework, " out, or ", Setting::Serve))
            }
        }
    }
}

/// Looks whether these roles of a job can be served; `members` has a role per rank.
pub fn can_be_served(
    roles: &BTreeSet<Role>,
    members: &[Role],
    rules: &Rules,
    framework: &dyn Framework,
) -> Result<(), ServedError> {
    if !framework.has_servers() {
        return Err(ServedError::OtherFramework);
    }
    if roles.contains(&Role::Evaluator) {
        return Err(ServedError::Evaluator);
    }
    let there: BTreeSet<&Role> = members.iter().collect();
    if let Some(role) = roles.iter().find(|role| !there.contains(role)) {
        let there = there.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ");
        return Err(ServedError::NoSuchRole { role: role.clone(), there });
    }
    // One server by itself serves until it is told to stop: that is what is wanted.
    if members.len() == 1 {
        return Ok(());
    }
    let deciders = rules.until.deciders(members);
    match members.iter().zip(deciders).find(|(role, decides)| *decides && roles.contains(role)) {
        None => Ok(()),
        Some((role, _)) => {
            let hint = match role {
                Role::Worker if !there.contains(&Role::Chief) => hint!(
                    "workers are served where TF 2's chief hands out the steps: give ",
                    Setting::Chief,
                    "; else serve ps alone"
                ),
                Role::Chief => hint!("the chief is the one that runs the program"),
                _ => hint!("leave ", Setting::Until, " out, or serve other roles"),
            };
            Err(ServedError::NeverEnds { role: role.clone(), hint })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::tensorflow::TensorFlow;
    use crate::job::Until;

    #[test]
    fn what_may_be_served_depends_on_who_decides() {
        let look = |members: &str, roles: &str, until| {
            let parse =
                |text: &str| text.split(' ').map(|role| role.parse::<Role>().unwrap()).collect::<Vec<_>>();
            let rules = Rules { until, ..Rules::default() };
            can_be_served(&parse(roles).into_iter().collect(), &parse(members), &rules, &TensorFlow)
                .map_err(|error| hint::in_full(&error))
        };
        let auto = Until::Auto;
        assert_eq!(look("ps worker worker", "ps", auto), Ok(()));
        assert_eq!(look("chief ps worker", "ps worker", auto), Ok(()));
        assert_eq!(look("ps", "ps", auto), Ok(()));
        for (members, roles, until, says) in [
            (
                "ps worker",
                "ps worker",
                auto,
                "worker cannot be served: its members decide when the job ends, and a server never ends by itself; hint: workers are served where",
            ),
            ("chief worker", "worker", auto, "worker cannot be served: its members decide"),
            ("chief ps worker", "chief", auto, "the chief is the one that runs the program"),
            (
                "ps worker",
                "ps",
                Until::All,
                "ps cannot be served: its members decide when the job ends, and a server never ends by itself; hint: leave --until out",
            ),
            (
                "ps worker",
                "chief",
                auto,
                "chief cannot be served: no member of this job has that role, there are ps, worker",
            ),
            ("ps worker evaluator", "evaluator", auto, "an evaluator is no server"),
        ] {
            let error = look(members, roles, until).unwrap_err();
            assert!(error.contains(says), "{members} / {roles}: {error}");
        }
        let torch = can_be_served(
            &[Role::Ps].into(),
            &[Role::Ps],
            &Rules::default(),
            &crate::framework::torch::Torch,
        );
        assert_eq!(torch, Err(ServedError::OtherFramework));
    }
}
