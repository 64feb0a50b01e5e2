"""What is done to a job at a chosen moment, and what may follow from it."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import machine
from expect import (
    AGENT_LOST,
    INTERRUPTED,
    LAST_REPORT,
    LEADER_LOST,
    MEETING_FAILED,
    MEMBER_LOST,
    SILENCE,
    TAKEOVER,
    Expect,
    Fate,
    goes_on,
)
from job import STOPS, Agent, Job
from setup import LOCAL, MEETING, Mode, Moment

Act = Callable[[Job, Random, Moment], Expect]
AFTER = (Moment.RUNNING, Moment.STOPPING)
ALWAYS = tuple(Moment)
TOGETHER = (Moment.WAITING, Moment.RUNNING)


@dataclass(frozen=True)
class Strike:
    name: str
    modes: tuple[Mode, ...]
    moments: tuple[Moment, ...]
    act: Act
    # Needs mounts or namespaces.
    root: bool = False
    # The meeting directory is a file system of its own, so that it can be filled.
    small_meeting: bool = False

    def moments_in(self, mode: Mode) -> list[Moment]:
        met = (Moment.WAITING, Moment.STARTING)
        return [moment for moment in self.moments if mode is not Mode.HERE or moment not in met]


STRIKES: list[Strike] = []


def strike(
    name: str,
    modes: tuple[Mode, ...] = LOCAL,
    moments: tuple[Moment, ...] = ALWAYS,
    root: bool = False,
    small_meeting: bool = False,
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        STRIKES.append(Strike(name, modes, moments, act, root, small_meeting))
        return act

    return add


def victim(job: Job, draw: Random) -> Agent:
    """One that still runs, if there is one."""
    return draw.choice([agent for agent in job.agents if agent.poll() is None] or job.agents)


def has_ended(job: Job, agent: Agent, expect: Expect) -> Expect:
    """It may have ended with what all end with, the moment before."""
    if agent.index in expect.special and (job.setup.moment is Moment.STOPPING or agent.poll() is not None):
        expect.special[agent.index] |= {INTERRUPTED}
    return expect


def who(job: Job, agent: Agent, moment: Moment) -> str:
    if job.setup.mode is Mode.HERE:
        return "the only one"
    if moment is Moment.EARLY:
        return f"agent {agent.index}"
    return "the leader" if agent.index == 0 else f"follower {agent.index}"


def ranks_of(job: Job, agent: Agent) -> set[int]:
    """Also those that are about to start: nobody knows their ranks, so none of the job's need have saved."""
    ups = job.ups()
    if len(ups) < job.setup.world:
        return set(range(job.setup.world))
    return {rank for rank, (index, *_) in ups.items() if index == agent.index}


def while_meeting(job: Job) -> float:
    """How long those that are left may look for the others."""
    return job.setup.meet_timeout + job.setup.grace + TAKEOVER + LAST_REPORT


def interrupted(job: Job, agent: Agent, moment: Moment, code: set[int]) -> Expect:
    """The job of an agent is asked to end. `code` is what its guard may end with besides."""
    grace = job.setup.grace
    expect = Expect(Fate.ENDS, grace + LAST_REPORT, {INTERRUPTED}, {agent.index: {INTERRUPTED} | code}, agree=True)
    if job.setup.mode is Mode.HERE:
        return expect
    if moment is Moment.WAITING:
        expect.codes = {MEETING_FAILED, INTERRUPTED} if agent.index == 0 else {MEETING_FAILED}
        expect.limit, expect.agree = while_meeting(job), False
    elif moment in (Moment.EARLY, Moment.STARTING):
        expect.codes = {INTERRUPTED, MEETING_FAILED}
        expect.limit, expect.agree = while_meeting(job), False
    return expect


def lost(job: Job, agent: Agent, moment: Moment, code: set[int]) -> Expect:
    """An agent is gone without a word."""
    expect = Expect(Fate.ENDS, SILENCE + job.setup.grace + LAST_REPORT, special={agent.index: code})
    expect.unsaved = ranks_of(job, agent)
    if job.setup.mode is Mode.HERE:
        return expect
    leads = agent.index == 0
    before, after = {MEETING_FAILED}, {LEADER_LOST} if leads else {MEMBER_LOST}
    if moment is Moment.WAITING:
        expect.codes, expect.limit = before, while_meeting(job)
    elif moment is Moment.EARLY:
        expect.codes, expect.limit = {MEETING_FAILED, LEADER_LOST, MEMBER_LOST}, while_meeting(job) + SILENCE
    elif moment is Moment.STARTING:
        expect.codes, expect.limit = before | after, while_meeting(job) + SILENCE
    elif moment is Moment.STOPPING:
        expect.codes = after | {INTERRUPTED}
    else:
        expect.codes, expect.agree = after, True
    expect.leader_struck = leads
    return expect


@strike("nothing")
def nothing(job: Job, _draw: Random, _moment: Moment) -> Expect:
    return goes_on(job.setup.grace)


# Signals to guard and agent


def second_word(expect: Expect, moment: Moment) -> Expect:
    """A job that ends already takes a signal for the second one, which kills."""
    if moment is Moment.STOPPING:
        expect.unsaved = None
    return expect


@strike("signal to the guard")
def signal_guard(job: Job, draw: Random, moment: Moment) -> Expect:
    agent, number = victim(job, draw), draw.choice(STOPS)
    expect = interrupted(job, agent, moment, {-number} if moment is Moment.EARLY else set())
    expect.note = f"{number.name} to the guard of {who(job, agent, moment)}"
    job.tell(agent, number)
    return second_word(expect, moment)


@strike("signal to guard and agent", moments=(Moment.WAITING, Moment.STARTING, *AFTER))
def signal_both(job: Job, draw: Random, moment: Moment) -> Expect:
    agent, number = victim(job, draw), draw.choice(STOPS)
    expect = interrupted(job, agent, moment, set())
    expect.note = f"{number.name} to guard and agent of {who(job, agent, moment)}"
    both = [agent.guard, agent.agent() or agent.guard]
    draw.shuffle(both)
    for pid in both:
        machine.send(pid, number)
    return second_word(expect, moment)


@strike("signal to all agents", moments=AFTER)
def signal_all(job: Job, draw: Random, moment: Moment) -> Expect:
    """As a scheduler does."""
    number = draw.choice(STOPS)
    pids = [pid for agent in job.agents for pid in (agent.guard, agent.agent()) if pid]
    draw.shuffle(pids)
    expect = interrupted(job, job.agents[0], moment, set())
    expect.note = f"{number.name} to {len(pids)} guards and agents"
    for pid in pids:
        machine.send(pid, number)
    return second_word(expect, moment)


@strike("warning and SIGTERM together", moments=(Moment.RUNNING,))
def warning_and_end(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    pids = [agent.guard, *([agent.agent() or agent.guard] if draw.random() < 0.7 else [])]
    warning = draw.choice([signal.SIGUSR1, signal.SIGUSR2])
    expect = interrupted(job, agent, moment, set())
    expect.note = f"{warning.name} and SIGTERM to {len(pids)} of {who(job, agent, moment)}"
    for number in (warning, signal.SIGTERM):
        for pid in dict.fromkeys(pids):
            machine.send(pid, number)
    return expect


@strike("warning alone", moments=(Moment.RUNNING, Moment.WAITING))
def warning(job: Job, draw: Random, moment: Moment) -> Expect:
    agent, number = victim(job, draw), draw.choice([signal.SIGUSR1, signal.SIGUSR2])
    job.tell(agent, number)
    return goes_on(job.setup.grace, f"{number.name} to the guard of {who(job, agent, moment)}")


@strike("signal twice", moments=(Moment.RUNNING,))
def signal_twice(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    expect = interrupted(job, agent, moment, set())
    expect.unsaved = None
    first, second = draw.choice(STOPS), draw.choice(STOPS)
    expect.note = f"{first.name} and {second.name} to the guard of {who(job, agent, moment)}"
    job.tell(agent, first)
    time.sleep(draw.uniform(0, 0.5))
    job.tell(agent, second)
    return expect


# SIGKILL


@strike("kill the guard")
def kill_guard(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    agent.agent()
    expect = interrupted(job, agent, moment, {-signal.SIGKILL})
    expect.special[agent.index] = {-signal.SIGKILL}
    expect.mute = {agent.index}
    expect.note = f"SIGKILL to the guard of {who(job, agent, moment)}"
    if moment is Moment.EARLY and agent.inner is None:
        # It may not have split yet: then nobody is left to say anything, and what it has made stays.
        expect.abandoned = {agent.index}
        expect.codes |= {MEMBER_LOST, LEADER_LOST}
    job.tell(agent, signal.SIGKILL)
    return has_ended(job, agent, expect)


@strike("kill the agent")
def kill_agent(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    pid = agent.agent()
    if pid is None:
        return goes_on(job.setup.grace, f"no agent yet at {who(job, agent, moment)}")
    expect = lost(job, agent, moment, {AGENT_LOST})
    expect.note = f"SIGKILL to the agent of {who(job, agent, moment)}"
    machine.send(pid, signal.SIGKILL)
    return has_ended(job, agent, expect)


@strike("kill guard and agent", moments=(Moment.WAITING, Moment.STARTING, *AFTER))
def kill_both(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    pid = agent.agent() or agent.guard
    expect = lost(job, agent, moment, {-signal.SIGKILL})
    expect.mute = expect.abandoned = {agent.index}
    # Before all have come the next leader removes it, if there is another agent.
    expect.meeting_stays = agent.index == 0 and (moment is not Moment.WAITING or len(job.agents) == 1)
    # Two signals are never one: the agent may notice its guard's end, and say so, before its own.
    expect.codes |= {INTERRUPTED}
    expect.note = f"SIGKILL to guard and agent of {who(job, agent, moment)}"
    for one in draw.sample([agent.guard, pid], 2):
        machine.send(one, signal.SIGKILL)
    return has_ended(job, agent, expect)


@strike("kill one that comes back", MEETING, (Moment.WAITING,))
def kill_and_return(job: Job, draw: Random, moment: Moment) -> Expect:
    """Before the roster nothing is lost: another takes the seat, or the lead."""
    agent = victim(job, draw)
    pid = agent.agent() or agent.guard
    both = draw.random() < 0.5
    expect = goes_on(job.setup.grace, f"SIGKILL to {who(job, agent, moment)}, which comes back")
    expect.special[agent.index] = {-signal.SIGKILL} if both else {AGENT_LOST}
    expect.mute = expect.abandoned = {agent.index} if both else set()
    for one in [agent.guard, pid] if both else [pid]:
        machine.send(one, signal.SIGKILL)
    time.sleep(draw.uniform(0, 0.3))
    job.start(agent.index)
    return expect


def some_member(job: Job, draw: Random) -> tuple[int, int] | None:
    """A rank that runs and its process, which is the first of its session."""
    alive = [(rank, session) for rank, (_, _, session, _) in job.ups().items() if machine.is_running(session)]
    return draw.choice(sorted(alive)) if alive else None


@strike("signal to a member", moments=AFTER)
def signal_member(job: Job, draw: Random, moment: Moment) -> Expect:
    found = some_member(job, draw)
    number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT])
    if found is None:
        return goes_on(job.setup.grace, "no member is left")
    rank, pid = found
    expect = Expect(Fate.MAY_END, job.setup.grace + LAST_REPORT, {128 + number}, agree=True)
    # Python makes an exit code of Ctrl-C, and a member that saves on SIGTERM ends with 0.
    expect.codes |= {1} if number == signal.SIGINT else set()
    expect.unsaved = {rank}
    expect.note = f"{number.name} to member {rank} ({job.setup.habits[rank]})"
    machine.send(pid, number)
    return expect


@strike("kill a grandchild", moments=AFTER)
def kill_grandchild(job: Job, draw: Random, moment: Moment) -> Expect:
    sessions = {session for _, _, session, _ in job.ups().values()}
    known = sessions | {pid for agent in job.agents for pid in (agent.guard, agent.agent()) if pid}
    expect = Expect(Fate.MAY_END, job.setup.grace + LAST_REPORT, {137, 1}, agree=True, unsaved=None)
    killed = 0
    # Some of them live for 10 ms only.
    until = time.monotonic() + 1
    while killed < 3 and time.monotonic() < until:
        below = sorted({process.pid for agent in job.agents for process in machine.below(agent.guard)} - known)
        killed += sum(machine.send(pid, signal.SIGKILL) for pid in draw.sample(below, min(len(below), 3 - killed)))
    expect.note = f"SIGKILL to {killed} grandchildren"
    return expect


@strike("several at once", moments=(Moment.WAITING, Moment.STARTING, *AFTER))
def several(job: Job, draw: Random, moment: Moment) -> Expect:
    """Anything may follow, but in time, and nothing may be left."""
    numbers = [signal.SIGKILL, signal.SIGKILL, *STOPS, signal.SIGUSR1, signal.SIGSTOP]
    targets: list[tuple[str, int, int]] = []
    for agent in job.agents:
        targets += [(f"guard {agent.index}", agent.guard, agent.index)]
        targets += [(f"agent {agent.index}", pid, agent.index) for pid in [agent.agent()] if pid]
    targets += [(f"member {rank}", session, -1) for rank, (_, _, session, _) in job.ups().items()]
    chosen = draw.sample(targets, min(len(targets), draw.choice([2, 3, 4])))
    expect = Expect(Fate.ENDS, while_meeting(job) + SILENCE, unsaved=None, leader_struck=True)
    expect.codes = {MEETING_FAILED, LEADER_LOST, MEMBER_LOST, INTERRUPTED, AGENT_LOST, 1}
    words = []
    killed: dict[int, int] = {}
    for name, pid, index in chosen:
        number = draw.choice(numbers)
        expect.codes |= {128 + number, 0}
        if number == signal.SIGKILL and index >= 0:
            killed[index] = killed.get(index, 0) + 1
            if name.startswith("guard"):
                expect.special[index] = {-signal.SIGKILL}
                expect.mute |= {index}
        if machine.is_running(pid):
            machine.send(pid, number)
        words.append(f"{number.name} to {name}")
    expect.abandoned = {index for index, times in killed.items() if times == 2}
    expect.meeting_stays = 0 in expect.abandoned
    # What was suspended goes on again; then the job is told to end, whatever is left of it.
    time.sleep(draw.uniform(0.2, 2))
    for name, pid, _ in chosen:
        if machine.is_running(pid):
            machine.send(pid, signal.SIGCONT)
    for agent in job.agents:
        job.tell(agent, signal.SIGTERM)
    expect.note = ", ".join(words)
    return expect
