"""Strikes from outside of the job: at its meeting place, by strangers, at the network."""

import shutil
import signal
import subprocess
import sys
import time
from random import Random

from expect import LAST_REPORT, LEADER_LOST, MEETING_FAILED, MEMBER_LOST, NOT_STARTED, SILENCE, USAGE, Expect, Fate, goes_on
from job import HERE, Job
from places import fill, make_read_only, unmount
from setup import MEETING, Mode, Moment
from stranger import HABITS
from strikes import TOGETHER, strike, victim, while_meeting, who


def disturbed(job: Job, moment: Moment, note: str) -> Expect:
    """The meeting place is spoiled: those who have met go on, those who come find nobody."""
    if moment is Moment.RUNNING:
        return goes_on(job.setup.grace, note)
    expect = Expect(Fate.MAY_END, while_meeting(job), {MEETING_FAILED, NOT_STARTED, USAGE}, note=note)
    return expect


@strike("the meeting directory is removed", (Mode.DIRECTORY,), TOGETHER)
def directory_removed(job: Job, _draw: Random, moment: Moment) -> Expect:
    job.look_for_key()
    shutil.rmtree(job.meeting, ignore_errors=True)
    return disturbed(job, moment, "removed")


@strike("the meeting directory is read-only", (Mode.DIRECTORY,), TOGETHER, root=True)
def directory_read_only(job: Job, _draw: Random, moment: Moment) -> Expect:
    job.look_for_key()
    job.undo.append(lambda: unmount(job.meeting))
    make_read_only(job.meeting)
    expect = disturbed(job, moment, "read-only")
    expect.meeting_stays = True
    return expect


@strike("the meeting directory is full", (Mode.DIRECTORY,), (Moment.EARLY, *TOGETHER), root=True, small_meeting=True)
def directory_full(job: Job, _draw: Random, moment: Moment) -> Expect:
    fill(job.meeting)
    return disturbed(job, moment, "full")


@strike("strangers at the leader's port", MEETING, TOGETHER)
def strangers(job: Job, draw: Random, moment: Moment) -> Expect:
    port = job.port()
    habits = draw.sample(HABITS, 2)
    if port is None:
        return goes_on(job.setup.grace, "no port was found")
    host, prefix = "127.0.0.1", []
    if job.network:
        host, prefix = job.network.address(0), job.network.inside(job.setup.world)
    commands = [
        [*prefix, sys.executable, str(HERE / "stranger.py"), host, str(port), habit, str(draw.random())] for habit in habits
    ]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    if draw.random() < 0.5:
        for one in running:
            one.wait(timeout=60)
    else:
        job.undo += [lambda one=one: (one.kill(), one.wait()) for one in running]  # type: ignore[misc]
    return goes_on(job.setup.grace, f"{' and '.join(habits)} at port {port}")


@strike("a second agent of a rank", MEETING, TOGETHER)
def second_agent(job: Job, draw: Random, moment: Moment) -> Expect:
    """It is refused, and the job does not notice. Without ranks it is only one too many."""
    if moment is Moment.WAITING and not job.setup.ranked:
        return goes_on(job.setup.grace, "not without ranks")
    agent = job.start(draw.randrange(len(job.agents)))
    expect = goes_on(job.setup.grace, "refused")
    expect.special[agent.index] = {MEETING_FAILED}
    expect.strangers = {agent.index}
    until = time.monotonic() + 20
    while agent.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    return expect


@strike("an agent with a wrong key", (Mode.ADDRESS,), TOGETHER)
def wrong_key(job: Job, draw: Random, moment: Moment) -> Expect:
    job.setup.wrong_key.add(len(job.agents))
    agent = job.start(draw.randrange(len(job.agents)))
    expect = goes_on(job.setup.grace, "turned away")
    # It may hope for another leader at this address, as long as its own time lasts.
    expect.limit = while_meeting(job)
    expect.special[agent.index] = {MEETING_FAILED}
    expect.strangers = {agent.index}
    time.sleep(draw.uniform(0.5, 2))
    return expect


@strike("a cable is pulled for a moment", (Mode.NETWORK,), TOGETHER, root=True)
def short_cut(job: Job, draw: Random, moment: Moment) -> Expect:
    agent = victim(job, draw)
    assert job.network
    job.network.cut(agent.index)
    seconds = draw.uniform(0.5, 2.5)
    time.sleep(seconds)
    job.network.heal(agent.index)
    return goes_on(job.setup.grace, f"{who(job, agent, moment)} was cut off for {seconds:.1f} s")


@strike("a cable is pulled", (Mode.NETWORK,), TOGETHER, root=True)
def long_cut(job: Job, draw: Random, moment: Moment) -> Expect:
    """Both sides end, each for itself."""
    agent = victim(job, draw)
    network = job.network
    assert network
    network.cut(agent.index)
    leads = agent.index == 0
    expect = Expect(Fate.ENDS, SILENCE + job.setup.grace + LAST_REPORT, note=f"{who(job, agent, moment)} is cut off")
    if moment is Moment.WAITING:
        expect.codes, expect.limit = {MEETING_FAILED}, while_meeting(job) + SILENCE
        expect.special = {agent.index: {MEETING_FAILED}}
    else:
        expect.codes = {LEADER_LOST} if leads else {MEMBER_LOST}
        expect.special = {agent.index: {MEMBER_LOST} if leads else {LEADER_LOST}}
        expect.agree = True
    if draw.random() < 0.5:
        time.sleep(SILENCE + draw.uniform(3, 6))
        network.heal(agent.index)
        expect.note += ", and back after all is lost"
    return expect


@strike("a line carries one way only", (Mode.NETWORK,), (Moment.RUNNING,), root=True)
def one_way(job: Job, draw: Random, moment: Moment) -> Expect:
    """Between the leader and one other, in either direction. For a moment nobody minds; for good, that one is lost."""
    agent = draw.choice(job.agents[1:])
    network = job.network
    assert network
    pair = draw.choice([(0, agent.index), (agent.index, 0)])
    network.cut_one_way(*pair)
    note = f"nothing arrives from agent {pair[0]} at agent {pair[1]}"
    if draw.random() < 0.4:
        seconds = draw.uniform(0.5, 4)
        time.sleep(seconds)
        network.heal_one_way(*pair)
        return goes_on(job.setup.grace, f"{note} for {seconds:.1f} s")
    # The other end may notice a silence of its own after that.
    expect = Expect(Fate.ENDS, 2 * SILENCE + job.setup.grace + LAST_REPORT, {MEMBER_LOST}, agree=True, note=note)
    expect.special = {agent.index: {LEADER_LOST, MEMBER_LOST}}
    return expect


@strike("the end comes while a cable is pulled", (Mode.NETWORK,), (Moment.RUNNING,), root=True)
def end_while_cut(job: Job, draw: Random, moment: Moment) -> Expect:
    agent, told = draw.sample(job.agents, 2)
    network = job.network
    assert network
    network.cut(agent.index)
    job.tell(told, signal.SIGTERM)
    leads = agent.index == 0
    lost = {LEADER_LOST} if leads else {MEMBER_LOST}
    expect = Expect(Fate.ENDS, SILENCE + job.setup.grace + LAST_REPORT, lost | {196}, leader_struck=True)
    expect.special = {agent.index: {LEADER_LOST, MEMBER_LOST, 196}, told.index: lost | {196}}
    expect.note = f"{who(job, agent, moment)} is cut off, SIGTERM to {who(job, told, moment)}"
    return expect
