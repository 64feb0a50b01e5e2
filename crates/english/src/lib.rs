//! What people read of a run: its events and its outcome, in English.
//!
//! The library tells facts ([`RunEvent`](rallypoint::event::RunEvent), [`Outcome`](rallypoint::outcome::Outcome)); the
//! front ends show them to people. What they say is the same, so it stands here once; how a setting is called is their
//! own, so [`English`] is told how to spell one.
//!
//! | file | subject |
//! |---|---|
//! | `event` | every event as lines |
//! | `ending` | the verdict, the closing table, exit codes |
//! | `advice` | what is known about a failure by the words that it ended with |
//! | `meaning` | what each event means, for its page |

#![warn(missing_docs)]

mod advice;
mod ending;
mod event;
mod meaning;
mod time;

pub use ending::{ClosingRow, end, meaning, watched};
pub use event::Weight;
pub use meaning::event_meaning;

use rallypoint::hint::{Hint, Setting};

/// A voice that spells settings as its front end does.
#[derive(Debug, Clone, Copy)]
pub struct English {
    spell: fn(Setting, Option<&str>) -> String,
}

impl English {
    /// Settings are spelled by `spell`; one may come with a value.
    pub fn new(spell: fn(Setting, Option<&str>) -> String) -> English {
        English { spell }
    }

    /// As one types them for the command: `--until all`.
    pub fn of_the_command() -> English {
        English { spell: Setting::typed }
    }

    fn hint(&self, hint: &Hint) -> String {
        format!("hint: {}", hint.spelled(self.spell))
    }
}
