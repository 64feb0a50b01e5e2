//! A whole meeting, for one agent: it leads, or it waits with the leader for the roster. Used by `run` and by
//! [`super::exchange`].

use super::message::Columns;
use super::search::search;
use super::{JoinRequest, Leader, Link, Part, RendezvousError, Seeker, Wait};
use crate::clock;
use crate::event::RunEvent;
use crate::outcome::Farewell;
use crate::plan::Plan;
use crate::signal;
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

/// How long one that is told to end waits for the answer to its offer, so as to say that it leaves.
const ANSWER: Duration = Duration::from_secs(1);

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
///
/// `stopped` gives the signal that ends the wait. The leader is told, since it may have handed out the roster already.
pub(crate) async fn attend(
    way: &mut Seeker,
    join_request: &mut JoinRequest,
    plan: &Plan,
    wait: Wait,
    stopped: impl Future<Output = i32>,
    say: &mut dyn FnMut(RunEvent),
) -> Result<Attended, RendezvousError> {
    let mut stopped = pin!(stopped);
    loop {
        let mut link = match find(way, join_request, wait, stopped.as_mut(), say).await? {
            Part::Leader(leader) => return Ok(Attended::Leader(leader)),
            Part::Over { code, farewell } => return Ok(Attended::Over { code, farewell }),
            Part::Member(link) => link,
        };
        let roster = tokio::select! {
            roster = link.roster(plan, wait, &mut *say) => roster,
            number = &mut stopped => {
                link.leave(number).await;
                return Err(interrupted(number));
            }
        };
        match roster {
            Ok(roster) => return Ok(Attended::Member { link, roster }),
            Err(RendezvousError::Wire(error)) => {
                say(RunEvent::LeaderLost { why: error.to_string() });
                join_request.lost_leader = link.leader;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Finds the leader or becomes it, unless a signal comes before.
async fn find(
    way: &mut Seeker,
    join_request: &JoinRequest,
    wait: Wait,
    stopped: Pin<&mut impl Future<Output = i32>>,
    say: &mut dyn FnMut(RunEvent),
) -> Result<Part, RendezvousError> {
    let offered = Cell::new(false);
    let mut search = pin!(search(way, join_request, wait, &offered, say));
    let number = tokio::select! {
        part = &mut search => return part,
        number = stopped => number,
    };
    if offered.get()
        && let Some(Ok(Part::Member(link))) = clock::timeout(ANSWER, search).await
    {
        link.leave(number).await;
    }
    Err(interrupted(number))
}

fn interrupted(number: i32) -> RendezvousError {
    RendezvousError::Interrupted(signal::name(number))
}
