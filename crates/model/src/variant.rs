//! The protocol, and the protocol with one rule taken away.

/// Which protocol is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As the code has it.
    True,
    /// The meeting file is written over whatever stands there.
    NoExclusiveCreate,
    /// The holder of a takeover file does not look again whether it stands in the chain.
    NoSecondLook,
    /// The name of the meeting file does not tell the attempt.
    NoAttemptInName,
    /// A connection that is lost before the roster ends the meeting at once.
    NoGrace,
    /// A process that comes back is not told from another.
    NoProcess,
    /// The leader's stop does not reach the others.
    DroppedStop,
    /// A publication is taken back without the takeover file.
    BareRetract,
    /// The takeover files are removed before the meeting file, and not behind it.
    SweepsFirst,
    /// A roster's attempt is the highest count of runs, and not their sum.
    HighestRun,
    /// A roster that was still on its way is acted on after the leader was declared lost.
    LateRoster,
}

impl Variant {
    /// What is taken away, in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Variant::True => "the protocol",
            Variant::NoExclusiveCreate => "no exclusive create",
            Variant::NoSecondLook => "no second look",
            Variant::NoAttemptInName => "no attempt in the name",
            Variant::NoGrace => "no grace for a seat",
            Variant::NoProcess => "no number of a process",
            Variant::DroppedStop => "a dropped stop",
            Variant::BareRetract => "retract without the takeover file",
            Variant::SweepsFirst => "takeover files removed first",
            Variant::HighestRun => "the highest run for the sum of all",
            Variant::LateRoster => "a roster after the loss",
        }
    }
}
