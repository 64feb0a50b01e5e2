"""What happened in a job: its events as they come, and what follows from all of them.

A line of `rallypoint run --events`, as docs/reference/events.md describes it::

    {"time":1794776571.07722,"attempt":0,"event":"failed","rank":2,"role":"worker","index":1,"end":{"exited":3}, ...}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Collection, Dict, Mapping, Optional, Tuple

# rallypoint's own exit codes: docs/reference/exit-codes.md.
MEETING_FAILED = 193
LEADER_LOST = 194
MEMBER_LOST = 195
INTERRUPTED = 196
AGENT_LOST = 198
OUTPUT_LOST = 199


class Event:
    """Something that happened in a job: `name`, `time`, `attempt`, and the event's own fields as attributes.

    `event.rank` is an `AttributeError` where an event has no rank. Names and fields that are not known here, of a newer
    command, are kept. `fields` has all of them by the names that they have in the file.
    """

    __slots__ = ("attempt", "fields", "name", "time")

    name: str
    time: float
    attempt: int
    fields: Mapping[str, Any]

    if TYPE_CHECKING:
        rank: int
        role: str
        index: int
        host: str
        pid: int
        served: bool
        end: Mapping[str, Any]
        code: int
        seconds: float
        peak_kib: int
        world: int
        members: Tuple[Mapping[str, Any], ...]
        path: str
        bytes: int
        why: str
        from_: str

    def __init__(self, name: str, time: float, attempt: int, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.time = time
        self.attempt = attempt
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        try:
            # `from` is a word of the language.
            return self.fields["from" if name == "from_" else name]
        except KeyError:
            raise AttributeError(f"the event {self.name!r} has no {name!r}") from None

    # Otherwise __getattr__ would be asked for `fields` before there are any.
    def __reduce__(self) -> Tuple[Any, ...]:
        return Event, (self.name, self.time, self.attempt, self.fields)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.fields]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.name, self.time, self.attempt))

    def __repr__(self) -> str:
        fields = "".join(f" {name}={value!r}" for name, value in self.fields.items())
        return f"<{self.name}{fields}>"


def parse_event(line: bytes) -> Optional[Event]:
    """The event of a line; None for one that is none, as a writer that was killed may leave."""
    try:
        fields = json.loads(line)
        return Event(str(fields.pop("event")), float(fields.pop("time")), int(fields.pop("attempt")), fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True)
class MemberOutcome:
    """How a member ended. What is not known is None, or 0 where the command says so."""

    rank: int
    role: str
    index: int
    host: Optional[str] = None
    pid: Optional[int] = None
    end: Optional[str] = None
    """exited, killed, not-started, lost or agent-failed."""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    why: Optional[str] = None
    """Why it could not be started, or how it was lost."""
    seconds: float = 0.0
    peak_kib: int = 0
    restarts: int = 0
    stopped: bool = False
    """It was asked to end, and has not ended with 0."""
    served: bool = False
    """It was a server without Python."""

    @property
    def ok(self) -> bool:
        """It ended with 0, or because it was asked to."""
        return self.exit_code == 0 or self.stopped

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    `verdict` is `success`, `failed` (a member did), `interrupted` (it was asked to end before), `output-lost` (all
    succeeded, but output could not be written) or `lost` (an agent was killed, and nobody knows the rest). `members` are in
    rank order; where another agent has led the meeting, this one does not know them.
    """

    code: int
    verdict: str
    attempt: int
    members: Tuple[MemberOutcome, ...]
    first_failure: Optional[MemberOutcome]

    @property
    def ok(self) -> bool:
        return self.code == 0

    def __str__(self) -> str:
        failure = f", first failure: {self.first_failure}" if self.first_failure else ""
        return f"{self.verdict} (exit code {self.code}{failure})"


class Record:
    """What all events so far come to; as large as the job has members, however long it runs."""

    def __init__(self, tolerated: Collection[str]) -> None:
        self.tolerated = tolerated
        self.members: Dict[int, MemberOutcome] = {}
        self.attempt = 0
        self.begun = False
        """All have come, and the members start."""
        self.over: Optional[Event] = None
        self.failed: Optional[int] = None
        """The rank of the first failure that ends the job."""
        self.failed_at_all: Optional[int] = None

    def add(self, event: Event) -> None:
        self.begun |= event.name in ("roster", "over")
        self.attempt = event.attempt
        fields = event.fields
        for entry in fields.get("members", ()) if event.name == "roster" else ():
            self._update(entry)
        if event.name == "over":
            self.over = event
        elif event.name == "started":
            known = self._update(fields)
            self.members[known.rank] = replace(known, pid=fields.get("pid"), served=bool(fields.get("served")))
        elif event.name == "restarted":
            known = self._update(fields)
            self.members[known.rank] = replace(known, restarts=known.restarts + 1)
        elif event.name in ("finished", "failed", "stopped"):
            self._ended(event.name, fields)

    def _ended(self, name: str, fields: Mapping[str, Any]) -> None:
        known = self._update(fields)
        kind, detail = next(iter(fields.get("end", {"exited": 0}).items()))
        self.members[known.rank] = replace(
            known,
            end=kind,
            exit_code=detail if kind == "exited" else None,
            signal=detail if kind == "killed" else None,
            why=detail.get("why") if isinstance(detail, dict) else detail if isinstance(detail, str) else None,
            seconds=fields.get("seconds", 0.0),
            peak_kib=fields.get("peak_kib", 0),
            stopped=name == "stopped",
        )
        if name == "failed":
            if self.failed_at_all is None:
                self.failed_at_all = known.rank
            if self.failed is None and known.role not in self.tolerated:
                self.failed = known.rank

    def _update(self, fields: Mapping[str, Any]) -> MemberOutcome:
        rank = int(fields["rank"])
        known = self.members.get(rank) or MemberOutcome(rank, fields["role"], fields["index"])
        host = fields.get("host")
        self.members[rank] = replace(known, host=host) if host not in (None, "?") else known
        return self.members[rank]

    def outcome(self, code: int, asked_to_end: bool) -> Outcome:
        """What it all comes to; `code` is the command's exit code, negative for a signal."""
        verdict = self._verdict(code, asked_to_end)
        failed = self.failed
        if failed is None and verdict == "failed":
            failed = self.failed_at_all
        return Outcome(
            code=code if code >= 0 else 128 - code,
            verdict=verdict,
            attempt=self.attempt,
            members=tuple(self.members[rank] for rank in sorted(self.members)),
            first_failure=None if failed is None else self.members[failed],
        )

    def _verdict(self, code: int, asked_to_end: bool) -> str:
        if code == 0:
            return "success"
        by_member = self.over is not None and self.over.fields.get("from") == "member"
        if code == INTERRUPTED and not by_member:
            return "interrupted"
        if code == OUTPUT_LOST and not by_member:
            return "output-lost"
        if self.over is None and (code < 0 or code in (LEADER_LOST, MEMBER_LOST, AGENT_LOST)):
            return "interrupted" if code < 0 and asked_to_end else "lost"
        return "failed"
