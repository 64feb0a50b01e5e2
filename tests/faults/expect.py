"""What a fault may lead to: how a job may end, when, and what it may leave."""

from dataclasses import dataclass, field
from enum import Enum

MEETING_FAILED, LEADER_LOST, MEMBER_LOST, INTERRUPTED, NOT_STARTED, AGENT_LOST, LOG_LOST = range(193, 200)
USAGE = 2

# The promises, in seconds. See docs/design/supervision.md and rendezvous.md.
LAST_REPORT = 5  # a leader waits the grace and this for the others
SILENCE = 15  # until an agent that says nothing is lost
TAKEOVER = 3  # until a leader that cannot be reached is gone
OUTPUT = 12  # for files and the terminal at the end


class Fate(Enum):
    """What becomes of the job."""

    GOES_ON = "goes on"  # as if nothing had happened; the harness ends it
    MAY_END = "may end"
    ENDS = "ends"


@dataclass
class Expect:
    fate: Fate
    # From the fault, or from the harness's ending, until all agents have ended; slack comes on top.
    limit: float
    # Besides what a job that goes on ends with, and what its members fail with by themselves.
    codes: set[int] = field(default_factory=set)
    # Instead of all that: agents that the fault was aimed at.
    special: dict[int, set[int]] = field(default_factory=dict)
    # All agents but the special ones end with the same code.
    agree: bool = False
    # Agents whose members need not have saved; None: nobody need.
    unsaved: set[int] | None = field(default_factory=set)
    # Agents that cannot say why.
    mute: set[int] = field(default_factory=set)
    # Agents of which processes and private folders may be left: both halves were killed at once.
    abandoned: set[int] = field(default_factory=set)
    # The meeting file may stay.
    meeting_stays: bool = False
    # A follower may see its leader's end before the leader's word.
    leader_struck: bool = False
    # Agents that were there for the fault alone, and are none of the job's.
    strangers: set[int] = field(default_factory=set)
    # What the strike itself has found wrong.
    broken: list[str] = field(default_factory=list)
    # What was done, for the line of the case.
    note: str = ""


def goes_on(grace: int, note: str = "") -> Expect:
    return Expect(Fate.GOES_ON, grace + LAST_REPORT, agree=True, note=note)
