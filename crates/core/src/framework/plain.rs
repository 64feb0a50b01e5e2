//! Programs that read `RALLYPOINT_*` alone.

use super::{Framework, FrameworkError};
use crate::plan::Member;
use crate::ports::HandOver;
use crate::roster::Roster;

#[derive(Debug)]
pub(super) struct Plain;

impl Framework for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn title(&self) -> &'static str {
        "Plain programs"
    }

    fn about(&self) -> &'static str {
        "RALLYPOINT_* alone"
    }

    fn variables(
        &self,
        _roster: &Roster,
        _member: &Member,
        _hand_over: HandOver,
    ) -> Result<Vec<(&'static str, String)>, FrameworkError> {
        Ok(Vec::new())
    }
}
