"""Plays one case on this machine: brings a job to the moment, strikes, ends it, looks what is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import machine
from cases import Case, Drawn, draw_fault
from expect import INTERRUPTED, Expect, Fate
from invariants import Seen, violations
from job import LIMIT, Job
from setup import Ending, Moment, draw_setup

# On top of every promise; a loaded machine gets more.
SLACK = 15.0


@dataclass
class Result:
    case: str
    moment: str = ""
    note: str = ""
    members: str = ""
    seconds: float = 0.0
    codes: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    report: str = ""


def slack() -> float:
    return SLACK * min(3.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / 1.5))


def play(case: Case) -> Result:
    draw = Random(str(case))
    drawn = draw_fault(case, draw)
    setup = draw_setup(draw, case.mode, drawn.moment)
    drawn.surroundings.prepare(setup, draw)
    setup.small_meeting = drawn.strike.small_meeting
    result = Result(str(case), members=" ".join(map(str, setup.habits)))
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="rallypoint-faults-"))
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", HOG]) for _ in range(setup.hogs)]
    job = Job(setup, folder / "job", f"{case.number}-{os.getpid()}")
    try:
        seen = run(job, drawn, draw)
        result.moment, result.note = setup.moment.value, " / ".join(filter(None, [drawn.strike.name, seen.expect.note]))
        result.codes = [seen.codes[index] for index in sorted(seen.codes)]
        result.violations = violations(seen)
        if result.violations:
            result.report = report(job, result, seen)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        job.end()
        job.remove()
        folder.rmdir()
        result.seconds = time.monotonic() - began
    return result


HOG = "import time\nuntil = time.time() + 120\nwhile time.time() < until: pass"


def bring(job: Job, moment: Moment, draw: Random) -> bool:
    """To the moment of the fault; false if the job did not come so far."""
    count = job.setup.agents
    if moment is Moment.EARLY:
        for rank in range(count):
            job.start(rank)
        time.sleep(draw.uniform(0, 0.2))
        return True
    job.start(0)
    if not job.wait(job.is_led):
        return False
    job.look_for_key()
    if moment in (Moment.WAITING, Moment.STARTING):
        for rank in range(1, count - 1):
            job.start(rank)
        if not job.wait(lambda: job.has_come(count - 1)):
            return False
        if moment is Moment.STARTING:
            job.start(count - 1)
        time.sleep(draw.uniform(0, 0.4))
        return True
    for rank in range(1, count):
        job.start(rank)
    if not job.wait(lambda: len(job.ups()) == job.setup.world):
        return False
    time.sleep(draw.uniform(0, 0.5))
    if moment is Moment.STOPPING:
        job.tell(draw.choice(job.agents), signal.SIGTERM)
        time.sleep(draw.uniform(0, 0.8))
    return True


def run(job: Job, drawn: Drawn, draw: Random) -> Seen:
    setup = job.setup
    moment = setup.moment
    reached = bring(job, moment, draw)
    for agent in job.agents:
        agent.agent()
    word = time.time()
    expect = drawn.strike.act(job, draw, moment)
    drawn.surroundings.allow(setup, expect)
    if not reached:
        expect.note += " (the job did not come so far)"
    if expect.fate is not Fate.ENDS:
        carry_on(job, expect, draw)
        word = time.time() if moment is not Moment.STOPPING else word
    limit = expect.limit + slack()
    late = job.wait_for_all(time.monotonic() + limit)
    seen = Seen(job, expect, normal(job, expect), word, limit)
    seen.late = [agent.index for agent in late]
    wait_for_processes(job, seen)
    job.read_on()
    seen.codes = {agent.index: code for agent in job.agents if (code := agent.poll()) is not None}
    return seen


def carry_on(job: Job, expect: Expect, draw: Random) -> None:
    """The job goes on after the fault: whoever is missing comes, it runs for a while, and then it is ended."""
    setup = job.setup
    if setup.moment is Moment.WAITING:
        job.start(setup.agents - 1)
    ordinary = [agent for agent in job.agents if agent.index not in expect.special] or job.agents

    def some_ended() -> bool:
        return any([agent.poll() is not None for agent in ordinary])

    until = time.monotonic() + LIMIT
    while len(job.ups()) < setup.world and not some_ended() and time.monotonic() < until:
        time.sleep(0.05)
    until = time.monotonic() + draw.uniform(0.3, 2.0)
    while not some_ended() and time.monotonic() < until:
        time.sleep(0.05)
    if setup.moment is Moment.STOPPING:
        return
    if setup.ending is Ending.FINISH:
        (job.folder / "finish").touch()
    else:
        alive = [agent for agent in ordinary if agent.poll() is None]
        number = signal.SIGTERM if setup.ending is Ending.TERM else signal.SIGINT
        if alive:
            job.tell(draw.choice(alive), number)


def normal(job: Job, expect: Expect) -> set[int]:
    """What an agent may end with that the fault was not aimed at."""
    setup = job.setup
    codes = set(expect.codes)
    if setup.moment is Moment.STOPPING:
        codes.add(INTERRUPTED)
    elif expect.fate is not Fate.ENDS:
        codes.add(0 if setup.ending is Ending.FINISH else INTERRUPTED)
    deciders = setup.habits[1:] if setup.ps else setup.habits
    if expect.fate is Fate.MAY_END or all(one.name in ("finishes", "daemon") and one.number for one in deciders):
        codes.add(0)
    if not (setup.moment is Moment.WAITING and expect.fate is Fate.ENDS):
        codes |= setup.own_codes()
    return codes


def wait_for_processes(job: Job, seen: Seen) -> None:
    """An agent that has lost its guard ends by itself, in the same time; else the guard ends last."""
    alone = any(agent.poll() in (-signal.SIGKILL, -signal.SIGTERM) for agent in job.agents)
    until = time.monotonic() + (seen.limit if alone and not seen.late else 2.0)
    while (left := job.processes()) and time.monotonic() < until and not seen.late:
        if not left - abandoned(seen, left):
            break
        time.sleep(0.1)
    seen.left, seen.left_text = left, machine.tree(left)


def abandoned(seen: Seen, left: set[int]) -> set[int]:
    marks = [f"FAULT_AGENT={index}" for index in seen.expect.abandoned]
    return {pid for pid in left if any(machine.carries(pid, mark) for mark in marks)}


def report(job: Job, result: Result, seen: Seen) -> str:
    """All that is needed to understand a violation."""
    setup = job.setup
    lines = [
        f"case       {result.case}",
        f"repeat     make faults CASE={result.case}",
        f"mode       {setup.mode.value}, moment {setup.moment.value}, ending {setup.ending.value}, {setup.grace} s grace",
        f"members    {result.members}",
        f"fault      {result.note}",
        f"expected   {seen.expect.fate.value}; codes {sorted(seen.normal)}; of those aimed at {seen.expect.special}",
        f"codes      {seen.codes}",
        f"command    {' '.join(job.command(0))}",
        *[f"VIOLATION  {text}" for text in result.violations],
    ]
    if seen.left_text:
        lines += ["processes (pid, parent, state, session, command):", seen.left_text]
    for agent in job.agents:
        took = f"{agent.ended - agent.started:.1f} s" if agent.ended else "has not ended"
        lines += [f"--- stderr of agent {agent.index} (guard {agent.guard}, agent {agent.inner}, {took})", shorten(agent.said)]
    return "\n".join(lines)


def shorten(text: str, limit: int = 6000) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]}\n... {len(text) - limit} characters ...\n{text[-limit // 2 :]}"

