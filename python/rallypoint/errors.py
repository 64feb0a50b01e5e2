"""What can go wrong. The texts are those of the command: what was found and where; hints name Python's keywords."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

    from ._outcome import Outcome


class RallypointError(RuntimeError):
    """Anything that rallypoint refuses or cannot do.

    `problem` says what is wrong, `hint` what to do about it, where we know. The text has both.
    """

    problem: str
    hint: Optional[str]

    def __init__(self, problem: str = "", *, hint: Optional[str] = None) -> None:
        between = " " if problem.endswith("?") else "; "
        super().__init__(problem if hint is None else f"{problem}{between}hint: {hint}")
        self.problem, self.hint = problem, hint


class AllocationError(RallypointError, ValueError):
    """The scheduler's variables are missing, or contradict each other."""


class MissingVariable(AllocationError, KeyError):
    """A variable that the scheduler sets is not there."""

    # KeyError would print its text in quotes.
    __str__ = RuntimeError.__str__


class RoleError(RallypointError, ValueError):
    """Roles that do not fit the allocation, or are none."""


class PlanError(RallypointError):
    """GPUs that are asked for and not there."""


class HostListError(RallypointError, ValueError):
    """A host list, or a list of counts, that is none."""


class AddressError(RallypointError, ValueError):
    """An interface, a network or a rule for addresses that gives none."""


class PortError(RallypointError):
    """A port that cannot be had."""


class RosterError(RallypointError):
    """Addresses that are not known without a meeting."""


class MeetingError(RallypointError):
    """The members could not meet."""


class MeetingTimeout(MeetingError, TimeoutError):
    """Not all members came in time; the text names the missing."""


class WorkersLost(RallypointError):
    """Workers went away without a word; the text names them."""


class RunError(RallypointError):
    """The job was not started; `code` is the command's exit code."""

    def __init__(self, text: str, code: int) -> None:
        # The command has written both on lines of their own; they come as one text.
        problem, found, hint = text.partition("; hint: ")
        super().__init__(problem, hint=hint if found else None)
        self.code = code

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (str(self), self.code)


class JobFailed(RallypointError):
    """A job that was to succeed (`check=True`) did not; `outcome` tells how it ended."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"the job has not succeeded: {outcome}")
        self.outcome = outcome

    @property
    def code(self) -> int:
        return self.outcome.code

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.outcome,)
