"""Strikes by SIGSTOP: whoever is suspended goes on afterwards, or is continued by its guard in order to end."""

import signal
import time
from random import Random

import machine
from expect import AGENT_LOST, LEADER_LOST, MEMBER_LOST, Expect, goes_on
from job import STOPS, Job
from setup import Ending, Mode, Moment
from strikes import interrupted, lost, some_member, strike, victim, who


@strike("suspend the agent", moments=(Moment.RUNNING, Moment.WAITING))
def suspend_agent(job: Job, draw: Random, moment: Moment) -> Expect:
    """Its guard is told to end, and must continue it."""
    agent = victim(job, draw)
    pid = agent.agent()
    if pid is None:
        return goes_on(job.setup.grace, "no agent")
    machine.send(pid, signal.SIGSTOP)
    time.sleep(draw.choice([0.1, 1.0, 3.0]))
    number = draw.choice(STOPS)
    expect = interrupted(job, agent, moment, {AGENT_LOST})
    expect.note = f"SIGSTOP to the agent of {who(job, agent, moment)}, then {number.name} to its guard"
    job.tell(agent, number)
    return expect


@strike("suspend the agent for a while", moments=(Moment.RUNNING, Moment.WAITING))
def suspend_and_continue(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    pid = agent.agent()
    if pid is None:
        return goes_on(job.setup.grace, "no agent")
    long = moment is Moment.RUNNING and draw.random() < 0.3
    seconds = draw.uniform(19, 23) if long else draw.uniform(0.5, 4)
    machine.send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    machine.send(pid, signal.SIGCONT)
    note = f"SIGSTOP to the agent of {who(job, agent, moment)} for {seconds:.0f} s"
    if not long or job.setup.mode is Mode.HERE:
        return goes_on(job.setup.grace, note)
    # The others take it for lost, and it finds them gone.
    expect = lost(job, agent, moment, {LEADER_LOST, MEMBER_LOST})
    expect.unsaved, expect.note = set(), note
    return expect


@strike("suspend the guard", moments=(Moment.RUNNING, Moment.WAITING))
def suspend_guard(job: Job, draw: Random, moment: Moment) -> Expect:
    """The job does not need it."""
    agent = victim(job, draw)
    job.tell(agent, signal.SIGSTOP)
    time.sleep(draw.choice([0.5, 2.0]))
    job.tell(agent, signal.SIGCONT)
    return goes_on(job.setup.grace, f"SIGSTOP to the guard of {who(job, agent, moment)} for a while")


@strike("suspend a member", moments=(Moment.RUNNING,))
def suspend_member(job: Job, draw: Random, moment: Moment) -> Expect:
    found = some_member(job, draw)
    if found is None:
        return goes_on(job.setup.grace, "no member is left")
    rank, pid = found
    machine.send(pid, signal.SIGSTOP)
    note = f"SIGSTOP to member {rank} ({job.setup.habits[rank]})"
    if draw.random() < 0.5:
        time.sleep(draw.uniform(0.2, 2))
        machine.send(pid, signal.SIGCONT)
        return goes_on(job.setup.grace, f"{note} for a while")
    # It cannot finish; but it must hear the word that ends the job.
    job.setup.ending = Ending.TERM
    return goes_on(job.setup.grace, note)


@strike("suspend the whole job", moments=(Moment.RUNNING, Moment.WAITING))
def suspend_job(job: Job, draw: Random, moment: Moment) -> Expect:
    """As `scontrol suspend`, gang scheduling or a closed laptop: it goes on as if nothing had happened."""
    seconds = draw.choice([2.0, 17.0, 20.0, 22.0])
    everyone: set[int] = set()
    until = time.monotonic() + 5
    # Some of them fork all the time.
    while time.monotonic() < until:
        awake = {pid for pid in job.processes() if (one := machine.look(pid)) and one.state != "T"}
        everyone |= awake
        if not awake:
            break
        for pid in awake:
            machine.send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    awake_again = list(everyone)
    draw.shuffle(awake_again)
    for pid in awake_again:
        machine.send(pid, signal.SIGCONT)
    return goes_on(job.setup.grace, f"SIGSTOP to all {len(everyone)} processes for {seconds:.0f} s")


@strike("ctrl-z and fg", moments=(Moment.RUNNING,))
def ctrl_z(job: Job, draw: Random, moment: Moment) -> Expect:
    """The terminal stops the guard alone; the guard sees to it that the members stop with it."""
    agent = victim(job, draw)
    seconds = draw.choice([0.2, 2.0, 17.0])
    expect = goes_on(job.setup.grace, f"SIGTSTP to the guard of {who(job, agent, moment)} for {seconds:.0f} s")
    mine = [session for index, _, session, _ in job.ups().values() if index == agent.index]

    def awake() -> list[int]:
        found = [machine.look(pid) for pid in mine]
        return [one.pid for one in found if one and one.is_running and one.state != "T"]

    job.tell(agent, signal.SIGTSTP)
    until = time.monotonic() + 10
    while awake() and agent.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    # A member that dies by itself ends the job meanwhile; then there is nothing to see.
    if awake() and agent.poll() is None and not job.setup.own_codes():
        expect.broken.append(f"10 s after Ctrl-Z members still run: {awake()}")
    time.sleep(seconds)
    job.tell(agent, signal.SIGCONT)
    return expect
