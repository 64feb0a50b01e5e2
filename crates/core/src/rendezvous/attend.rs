//! A whole meeting, for one agent: it leads, or it waits with the leader for the roster. Used by `run` and by
//! [`super::exchange`].

use super::message::Columns;
use super::{JoinRequest, Leader, Link, Part, RendezvousError, Seeker, Wait, meet};
use crate::event::RunEvent;
use crate::outcome::Farewell;
use crate::plan::Plan;

/// What a meeting came to.
#[derive(Debug)]
pub(crate) enum Attended {
    /// This agent is to gather the others.
    Leader(Box<Leader>),
    /// All have come, and the leader has handed out the roster.
    Member { link: Link, roster: Columns },
    /// The attempt that ran when this agent came has ended without it.
    Over { code: u8, farewell: Farewell },
}

/// Finds the leader and waits for its roster, or becomes the leader. A leader that is lost before all had come is
/// replaced: nothing has started yet, so the rest can meet again. One limit holds for all of it.
pub(crate) async fn attend(
    way: &mut Seeker,
    join_request: &mut JoinRequest,
    plan: &Plan,
    wait: Wait,
    say: &mut dyn FnMut(RunEvent),
) -> Result<Attended, RendezvousError> {
    loop {
        let mut link = match meet(way, join_request, wait, say).await? {
            Part::Leader(leader) => return Ok(Attended::Leader(leader)),
            Part::Over { code, farewell } => return Ok(Attended::Over { code, farewell }),
            Part::Member(link) => link,
        };
        match link.roster(plan, wait, &mut *say).await {
            Ok(roster) => return Ok(Attended::Member { link, roster }),
            Err(RendezvousError::Wire(error)) => {
                say(RunEvent::LeaderLost { why: error.to_string() });
                join_request.lost_leader = link.leader;
            }
            Err(error) => return Err(error),
        }
    }
}
