"""Cases on a real Slurm: tasks of srun, and the launcher in a batch script. `testbed/slurm/with` starts it."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from random import Random

import machine
from cases import Case
from expect import AGENT_LOST, INTERRUPTED, LEADER_LOST, MEMBER_LOST
from play import Result, shorten, slack
from setup import RALLYPOINT, Mode
from testbed import LIMIT, Bed, variables

KILL_WAIT = 5
# Well below it, or Slurm kills those who are about to end.
GRACE = 2
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
FAULTS = [
    "scancel",
    "scancel-with-a-signal",
    "scontrol-suspend",
    "kill-the-agent",
    "kill-the-guard",
    "kill-a-member",
    "kill-srun",
    "suspend-the-agent",
    "workers-are-done",
]
LAUNCHER_FAULTS = ["kill-the-launcher", "signal-to-the-launcher", "suspend-the-launcher"]


def faults(mode: Mode) -> list[str]:
    return FAULTS + (LAUNCHER_FAULTS if mode is Mode.SLURM_LAUNCHER else [])


def is_there() -> bool:
    if "SLURM_CONF" not in os.environ or not shutil.which("sinfo"):
        return False
    return "idle" in slurm("sinfo", "-h", "-o", "%T").stdout


def slurm(*command: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=os.environ | more)


def state(job: str) -> tuple[str, int]:
    """The job's state and its exit code."""
    shown = slurm("scontrol", "--oneliner", "show", "job", job).stdout
    words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
    return words.get("JobState", "?"), int(words.get("ExitCode", "0:0").split(":")[0])


def play(case: Case) -> Result:
    draw = Random(str(case))
    base = Path(tempfile.mkdtemp(prefix="rallypoint-faults-"))
    bed = Bed(base / "job", f"{case.number}-{os.getpid()}", draw, grace=GRACE)
    result = Result(str(case), "running", members=" ".join(map(str, bed.habits)))
    began = time.monotonic()
    way = [] if case.mode is Mode.SLURM_LAUNCHER else ["srun", *draw.choice([[], ["--mpi=pmi2"]])]
    script = f"#!/bin/bash\n{shlex.join([*way, RALLYPOINT, *bed.words()])}\n"
    (base / "job.sh").write_text(script)
    options = ["--parsable", "-N2", "--ntasks-per-node=2", f"--output={base}/log", f"--chdir={bed.folder}"]
    submitted = subprocess.run(
        ["sbatch", *options, str(base / "job.sh")], capture_output=True, text=True, timeout=LIMIT, env=variables(bed)
    )
    job = submitted.stdout.strip()
    try:
        assert job.isdigit(), f"sbatch: {submitted.stdout}{submitted.stderr}"
        if bed.all_up():
            time.sleep(draw.uniform(0, 1))
            result.note = strike(case, bed, job, draw)
        log = (base / "log").read_text() if (base / "log").exists() else ""
        result.codes = [state(job)[1]]
        bed.no_panic(log)
        bed.no_file_is_left()
        if bed.violations:
            result.report = f"case       {case}\njob        {job} {state(job)}\n{script}{shorten(log)}"
            result.report += "".join(f"\nVIOLATION  {text}" for text in bed.violations)
    finally:
        slurm("scancel", job)
        bed.end()
        until = time.monotonic() + 30
        while job in slurm("squeue", "-h", "-o", "%A").stdout.split() and time.monotonic() < until:
            time.sleep(0.2)
        shutil.rmtree(base, ignore_errors=True)
    result.violations, result.seconds = bed.violations, time.monotonic() - began
    return result


def strike(case: Case, bed: Bed, job: str, draw: Random) -> str:
    """Does it, waits for the end, and checks what is to be checked; what was done."""
    task = case.mode is Mode.SLURM_TASK
    # The launcher's own pair is not below slurmstepd's task; its agents carry --launched.
    pairs = [pair for pair in bed.rallypoints() if task or "--launched" in machine.command(pair[0])]
    launcher = next((pair for pair in bed.rallypoints() if pair not in pairs), None)
    guard, agent = launcher if launcher and case.fault.endswith("the-launcher") else draw.choice(pairs)
    members = bed.members()
    mine = {rank for rank, (_, parent) in members.items() if parent == agent}
    limit = GRACE + 15 + KILL_WAIT + slack() + 15
    unsaved: set[int] = set()
    allowed = {INTERRUPTED}
    fault = case.fault
    note = ""
    if fault == "scancel":
        slurm("scancel", *draw.choice([[], ["--full"]]), job)
        allowed = {0, INTERRUPTED, 143 - 128, 143}
    elif fault == "scancel-with-a-signal":
        note = draw.choice(["TERM", "INT", "KILL"])
        slurm("scancel", f"--signal={note}", job)
        allowed |= {0, 1, 130, 137, 9, 143, AGENT_LOST, LEADER_LOST, MEMBER_LOST}
        # Slurm signals the members themselves too, and they die of it.
        unsaved = set(range(4)) if note != "TERM" else set()
        bed.meeting_stays = note == "KILL"
    elif fault == "scontrol-suspend":
        slurm("scontrol", "suspend", job)
        seconds = draw.choice([3, 20])
        time.sleep(seconds)
        slurm("scontrol", "resume", job)
        note = f"for {seconds} s"
        time.sleep(3)
        if len(bed.rallypoints()) < len(pairs):
            bed.violations.append("goes-on: the job did not outlive its suspension")
        (bed.folder / "finish").touch()
        allowed = {0}
        unsaved = set(range(1, 4))
    elif fault == "kill-the-agent":
        machine.send(agent, signal.SIGKILL)
        # srun ends with the highest code of its tasks.
        allowed = {AGENT_LOST, MEMBER_LOST, LEADER_LOST}
        unsaved = mine
    elif fault == "kill-the-guard":
        machine.send(guard, signal.SIGKILL)
        allowed |= {137, AGENT_LOST, MEMBER_LOST, LEADER_LOST}
    elif fault == "kill-a-member":
        rank = draw.choice(sorted(members))
        machine.send(members[rank][0], signal.SIGKILL)
        allowed, unsaved, note = {137}, {rank}, f"member {rank}"
    elif fault == "kill-srun":
        sruns = [pid for pid in bed.processes() if machine.command(pid).split(" ")[0].split("/")[-1] == "srun"]
        for pid in sruns:
            machine.send(pid, signal.SIGKILL)
        allowed |= {137, 0, AGENT_LOST, MEMBER_LOST, LEADER_LOST}
        # Slurm itself ends what srun has left, with no promise of a grace.
        unsaved = set(range(4))
        bed.meeting_stays = True
    elif fault in ("suspend-the-agent", "suspend-the-launcher"):
        machine.send(agent, signal.SIGSTOP)
        time.sleep(draw.uniform(0.2, 3))
        machine.send(guard, signal.SIGTERM)
        allowed |= {AGENT_LOST, MEMBER_LOST, LEADER_LOST}
    elif fault == "kill-the-launcher":
        # srun dies with it, the agents lose their leader; Slurm may be faster than their grace.
        which = draw.choice([[guard], [agent], [guard, agent]])
        for pid in which:
            machine.send(pid, signal.SIGKILL)
        allowed |= {137, AGENT_LOST, LEADER_LOST}
        unsaved, note = set(range(4)), f"{len(which)} of its two processes"
    elif fault == "signal-to-the-launcher":
        stop = draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        for pid in draw.choice([[guard], [guard, agent]]):
            machine.send(pid, stop)
        note = stop.name
    else:
        (bed.folder / "finish").touch()
        allowed, unsaved = {0}, set(range(1, 4))
    ended = bed.wait(f"the end of the job, which is {state(job)}", lambda: state(job)[0] in ENDED, limit)
    bed.nobody_is_left(15 + slack())
    if ended and state(job)[0] != "CANCELLED":
        bed.code_is_allowed(state(job)[1], allowed)
    bed.members_have_saved(unsaved)
    return note


