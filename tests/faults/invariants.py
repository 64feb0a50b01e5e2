"""What must hold after every fault, each with a name and a message that says what was found instead."""

import re
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import machine
from expect import AGENT_LOST, INTERRUPTED, LEADER_LOST, LOG_LOST, MEETING_FAILED, MEMBER_LOST, NOT_STARTED, Expect
from job import SHARED_TMP, Agent, Job
from setup import Ending, Mode, Moment, Stream
from pathlib import Path

# Words by which an agent says why it ended so.
WHY = {
    MEETING_FAILED: "met|meet|come|refuse|leader|key|rank|running already|too many open files|no file descriptors",
    LEADER_LOST: "leader",
    MEMBER_LOST: "lost|gone",
    INTERRUPTED: "SIG|interrupted|asked to end",
    NOT_STARTED: "cannot|could not|not started|error|too many open files|no space",
    AGENT_LOST: "agent",
    LOG_LOST: "lost|space|written",
}
PANIC = re.compile(r"panicked|RUST_BACKTRACE|thread '.*' has overflowed|internal error: entered unreachable")
FIRST_FAILURE = re.compile(
    r"first failure: (?P<role>\w+) (?P<index>\d+) on \S+, pid \d+: (exit code (?P<code>\d+)|killed by (?P<signal>SIG\w+))"
)
# By strikes, and by what ends members.
SIGKILLED, SIGTERMED = 128 + signal.SIGKILL, 128 + signal.SIGTERM
# So many lines of its own may an agent write, whatever is done to it.
TALK = 150


@dataclass
class Seen:
    """A case that is over: what was expected, and what was found."""

    job: Job
    expect: Expect
    # What an agent may end with that the fault was not aimed at.
    normal: set[int]
    # Wall clock: of the fault, or of the harness's ending.
    word: float
    limit: float
    codes: dict[int, int] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    left: set[int] = field(default_factory=set)
    left_text: str = ""


Check = Callable[[Seen], list[str]]
INVARIANTS: dict[str, Check] = {}


def invariant(check: Check) -> Check:
    INVARIANTS[check.__name__.replace("_", "-")] = check
    return check


def violations(seen: Seen) -> list[str]:
    return [f"{name}: {text}" for name, check in INVARIANTS.items() for text in check(seen)]


def killed(seen: Seen, agent: Agent) -> bool:
    return seen.codes.get(agent.index, 0) < 0


@invariant
def ends_in_time(seen: Seen) -> list[str]:
    """Every agent ends within what is promised for this fault, and generous slack."""
    return [f"agent {index} still runs {seen.limit:.0f} s after the last word" for index in seen.late]


@invariant
def stops_as_a_whole(seen: Seen) -> list[str]:
    """Ctrl-Z suspends the members too, and `fg` continues them."""
    return seen.expect.broken


@invariant
def code_is_allowed(seen: Seen) -> list[str]:
    """The exit code is one that this fault may lead to."""
    found = []
    for index, code in seen.codes.items():
        special = seen.expect.special.get(index)
        if index in seen.late:
            continue
        own = seen.job.setup.own_codes() if index not in seen.expect.strangers else set()
        allowed = special | own | (seen.normal & {0}) if special is not None else seen.normal
        if code not in allowed:
            found.append(f"agent {index} ended with {code}, expected one of {sorted(allowed)}")
    return found


@invariant
def first_failure_is_right(seen: Seen) -> list[str]:
    """A member that is named as the first failure with a code of its own has a habit that gives it, or was struck."""
    found = []
    for agent in seen.job.agents:
        named = FIRST_FAILURE.search(agent.said)
        if not named:
            continue
        setup = seen.job.setup
        rank = int(named["index"]) + (1 if setup.ps and named["role"] == "worker" else 0)
        code = int(named["code"]) if named["code"] else 128 + int(getattr(signal, named["signal"], 0))
        own = setup.habits[rank].code if rank < setup.world else None
        struck = {SIGKILLED, SIGTERMED} | seen.expect.codes | seen.normal - setup.own_codes()
        if code != own and code not in struck:
            found.append(f"agent {agent.index} names {named[0]!r}, and that member has the habit {setup.habits[rank]}")
        ended = seen.codes.get(agent.index)
        if ended is not None and ended in setup.own_codes() and ended != code:
            found.append(f"agent {agent.index} ended with {ended}, and names {named[0]!r} as the first failure")
    return found


@invariant
def agents_agree(seen: Seen) -> list[str]:
    """All agents of a meeting end with the same code, but for those that the fault was aimed at."""
    if not seen.expect.agree or seen.job.setup.own_codes():
        return []
    mine = {index: code for index, code in seen.codes.items() if index not in seen.expect.special}
    codes = {code for index, code in mine.items() if code != LEADER_LOST or not seen.expect.leader_struck}
    return [f"agents ended with different codes: {mine}"] if len(codes) > 1 else []


@invariant
def nobody_is_left(seen: Seen) -> list[str]:
    """No process of the job outlives it, whatever its session."""
    marks = [f"FAULT_AGENT={index}" for index in seen.expect.abandoned]
    left = {pid for pid in seen.left if not any(machine.carries(pid, mark) for mark in marks)}
    if not left or seen.late:
        return []
    return [f"{len(left)} processes are left:\n{seen.left_text}"]


@invariant
def no_file_is_left(seen: Seen) -> list[str]:
    """Neither the meeting file nor temporary ones nor private folders."""
    job, expect = seen.job, seen.expect
    found = []
    early = job.setup.moment is Moment.EARLY
    in_meeting = [file.name for file in job.meeting.glob("*")] if job.meeting.is_dir() else []
    left = [name for name in in_meeting if name != "filler" and not (expect.meeting_stays and name.endswith(".meet"))]
    if left and not (early and expect.abandoned) and not seen.late:
        found.append(f"in the meeting directory: {', '.join(sorted(left))}")
    for agent in job.agents:
        # One that died of a signal before it had split had nobody to clean up.
        excused = agent.index in expect.abandoned or (early and killed(seen, agent)) or agent.index in seen.late
        for parent in (*SHARED_TMP, str(job.folder / "tmp")):
            for folder in Path(parent).glob(f"rallypoint-{agent.guard}-*"):
                if not excused:
                    found.append(f"the private folder of agent {agent.index}: {folder}")
    known = "habits|tmp|key|wrong-key|finish|halt|meeting|full|logs|core.*|(\\.?up|asked|saved|flooded|out|err)-.*"
    stray = [file.name for file in job.folder.iterdir() if not re.fullmatch(known, file.name)]
    return found + [f"in the working directory: {', '.join(sorted(stray))}"] * bool(stray)


@invariant
def ports_are_free(seen: Seen) -> list[str]:
    """Neither a member's port nor the leader's is held any more."""
    if seen.job.network or seen.left or seen.late:
        return []
    ports = {int(address.rsplit(":", 1)[1]) for _, address, _, _ in seen.job.ups().values()}
    if seen.job.setup.mode is Mode.ADDRESS:
        ports.add(int(seen.job.address.rsplit(":", 1)[1]))
    found = []
    for port in sorted(ports):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("", port))
            except OSError as error:
                found.append(f"port {port}: {error}")
    return found


@invariant
def members_have_saved(seen: Seen) -> list[str]:
    """A member that saves on SIGTERM has been asked, and had its grace."""
    job, expect = seen.job, seen.expect
    if expect.unsaved is None or seen.late:
        return []
    found = []
    for rank, (_, _, _, since) in job.ups().items():
        if not job.setup.habits[rank].saves or rank in expect.unsaved or since > seen.word:
            continue
        finishes = job.setup.ending is Ending.FINISH and not (job.setup.ps and rank == 0)
        if not (job.folder / f"asked-{rank}").exists():
            if not finishes:
                found.append(f"member {rank} was ended without a SIGTERM")
        elif not (job.folder / f"saved-{rank}").exists():
            found.append(f"member {rank} was killed before it had saved, with a grace of {job.setup.grace} s")
    return found


@invariant
def asked_once(seen: Seen) -> list[str]:
    """Nobody is asked twice: a handler that saves would be interrupted."""
    found = []
    for file in seen.job.folder.glob("asked-*"):
        rank = int(file.name[6:])
        times = len(file.read_text().splitlines())
        if times > 1 and seen.expect.unsaved is not None and rank not in seen.expect.unsaved:
            found.append(f"member {rank} got SIGTERM {times} times")
    return found


@invariant
def says_why(seen: Seen) -> list[str]:
    """Whoever ends with another code than 0 has said why, where anybody can read it."""
    found = []
    for agent in seen.job.agents:
        code = seen.codes.get(agent.index, 0)
        if code <= 0 or agent.index in seen.expect.mute or agent.index in seen.late:
            continue
        words = WHY.get(code, "failed|failure|error|killed by")
        if not re.search(words, agent.said, re.I):
            found.append(f"agent {agent.index} ended with {code}, and its stderr does not say why ({words})")
    return found


@invariant
def no_panic(seen: Seen) -> list[str]:
    """Not one line of a panic."""
    texts = {f"agent {agent.index}": agent.said + agent.text(agent.out) for agent in seen.job.agents}
    return [f"{who}: {match.group()}" for who, text in texts.items() if (match := PANIC.search(text))]


@invariant
def talk_is_bounded(seen: Seen) -> list[str]:
    """Nobody can make an agent write without end."""
    found = []
    for agent in seen.job.agents:
        lines = [line for line in agent.said.splitlines() if line.startswith("rallypoint:")]
        if len(lines) > TALK:
            found.append(f"agent {agent.index} wrote {len(lines)} lines of its own, such as {lines[len(lines) // 2]!r}")
    return found


@invariant
def key_is_kept(seen: Seen) -> list[str]:
    """The key is in nobody's output."""
    job = seen.job
    secrets = [secret for secret in (job.key_seen, "1" * 64, "2" * 64) if secret]
    texts = {agent.index: agent.said + agent.text(agent.out) for agent in job.agents}
    return [f"agent {index} wrote the key" for index, text in texts.items() for key in secrets if key in text]


@invariant
def every_byte(seen: Seen) -> list[str]:
    """What a member has written is kept, or the job says that it is lost; then it does not end with 0."""
    job, expect = seen.job, seen.expect
    if seen.late or expect.unsaved is None:
        return []
    told = any("bytes of output are lost" in agent.said for agent in job.agents)
    found = []
    for rank, (index, *_) in job.ups().items():
        marker = job.folder / f"flooded-{rank}"
        written = int(marker.read_text() or 0) if marker.exists() else 0
        kept = bytes_kept(job, rank, index)
        if not written or kept in (None, written) or rank in expect.unsaved:
            continue
        if not told and index not in expect.mute:
            found.append(f"member {rank} wrote {written} bytes, {kept} were kept, and nobody said so")
        if seen.codes.get(index) == 0:
            found.append(f"member {rank} wrote {written} bytes, {kept} were kept, and agent {index} ended with 0")
    return found


def bytes_kept(job: Job, rank: int, index: int) -> int | None:
    """What stands in a member's log, or else in the output of its agent, if that is one that keeps all."""
    line = b"x" * 99 + b"\n"
    if job.setup.log_dir:
        name = "ps-0" if job.setup.ps and rank == 0 else f"worker-{rank - job.setup.ps}"
        log = job.folder / job.setup.log_dir / "attempt-0" / f"{name}.out"
        return log.read_bytes().count(line) * 100 if log.exists() else 0
    alone = job.setup.mode is not Mode.HERE or sum(habit.name == "floods" for habit in job.setup.habits) == 1
    if not alone or job.setup.stdout.get(index, Stream.FILE) is not Stream.FILE:
        return None
    return job.agents[index].out.read_bytes().count(line) * 100
