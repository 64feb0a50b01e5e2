"""Cases on a real HTCondor pool: vanilla procs and the parallel universe. `testbed/htcondor/with` starts it."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import machine
from cases import Case
from expect import AGENT_LOST, INTERRUPTED, LEADER_LOST, MEMBER_LOST
from play import Result, shorten, slack
from setup import RALLYPOINT, Mode
from testbed import GRACE, LIMIT, Bed

PROCS = 3
FAULTS = [
    "condor-rm",
    "condor-hold",
    "condor-vacate",
    "kill-the-agent",
    "kill-the-guard",
    "kill-a-member",
    "suspend-the-agent",
    "suspend-the-whole-job",
    "workers-are-done",
]


def is_there() -> bool:
    return "POOL" in os.environ and Path(os.environ["POOL"], "up").exists()


def condor(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(Path(os.environ["POOL"], "as")), *command], cwd=cwd, capture_output=True, text=True, timeout=LIMIT
    )
    return done.stdout + done.stderr


def description(bed: Bed, parallel: bool) -> str:
    number = "$(Node)" if parallel else "$(Process)"
    name, _, value = bed.mark.partition("=")
    count = f'machine_count = {PROCS}\n+ParallelShutdownPolicy = "WAIT_FOR_ALL"\nqueue' if parallel else f"queue {PROCS}"
    return f"""universe = {"parallel" if parallel else "vanilla"}
executable = {RALLYPOINT}
arguments = "{" ".join(bed.words())}"
environment = "{name}={value} FAULT_AGENT=0"
transfer_executable = False
should_transfer_files = NO
output = out.{number}
error = err.{number}
log = log
request_memory = 128
{count}
"""


def codes(log: str) -> list[int]:
    """Of all procs that have left the queue by themselves."""
    how = r"(?:Normal termination \(return value (\d+)\)|Abnormal.*signal (\d+))"
    ends = re.findall(rf"^005 \(.*\n\t\(\d\) {how}", log, re.M)
    return [int(code) if code else -int(number) for code, number in ends]


def play(case: Case) -> Result:
    draw = Random(str(case))
    parallel = case.mode is Mode.PARALLEL
    base = Path(os.environ["POOL"], "shared", f"faults-{case.number}-{os.getpid()}")
    bed = Bed(base, f"{case.number}-{os.getpid()}", draw, PROCS)
    result = Result(str(case), "running", members=" ".join(map(str, bed.habits)))
    began = time.monotonic()
    (base / "job.sub").write_text(description(bed, parallel))
    job = ""
    try:
        answer = condor("condor_submit", "-terse", "job.sub", cwd=base)
        job = answer.split(".")[0]
        assert job.isdigit(), answer
        if bed.all_up():
            time.sleep(draw.uniform(0, 1))
            result.note = strike(case, bed, job, draw, result)
        texts = {file.name: file.read_text() for file in sorted(base.glob("[eo][ru][rt].*"))}
        bed.no_panic("".join(texts.values()))
        bed.no_file_is_left()
        if bed.violations:
            log = (base / "log").read_text() if (base / "log").exists() else ""
            every = "".join(f"--- {name}\n{shorten(text)}\n" for name, text in texts.items())
            result.report = f"case       {case}\n{description(bed, parallel)}{every}--- log\n{shorten(log)}"
            result.report += "".join(f"\nVIOLATION  {text}" for text in bed.violations)
    finally:
        condor("condor_rm", job or "-all")
        bed.end()
        condor("condor_rm", "-forcex", job or "-all")
        shutil.rmtree(base, ignore_errors=True)
    result.violations, result.seconds = bed.violations, time.monotonic() - began
    return result


def strike(case: Case, bed: Bed, job: str, draw: Random, result: Result) -> str:
    pairs = bed.rallypoints()
    guard, agent = draw.choice(pairs)
    members = bed.members()
    unsaved: set[int] = set()
    lost = {AGENT_LOST, MEMBER_LOST, LEADER_LOST}
    allowed: set[int] = set()
    fault, note = case.fault, ""
    log = bed.folder / "log"
    if fault in ("condor-rm", "condor-hold"):
        condor(fault.replace("-", "_"), job)
        allowed = {INTERRUPTED, 0}
    elif fault == "condor-vacate":
        # It goes back into the queue; the others end.
        condor("condor_vacate_job", job if case.mode is Mode.PARALLEL else f"{job}.{draw.randrange(PROCS)}")
        time.sleep(GRACE)
        condor("condor_rm", job)
        allowed = {INTERRUPTED, 0}
    elif fault == "kill-the-agent":
        machine.send(agent, signal.SIGKILL)
        unsaved = {rank for rank, (_, parent) in members.items() if parent == agent}
        allowed = lost
    elif fault == "kill-the-guard":
        machine.send(guard, signal.SIGKILL)
        # HTCondor kills what a proc has left as soon as the proc has ended, a leader's agent too.
        bed.meeting_stays = True
        unsaved = {rank for rank, (_, parent) in members.items() if parent == agent}
        allowed = lost | {INTERRUPTED, -signal.SIGKILL}
    elif fault == "kill-a-member":
        rank = draw.choice(sorted(members))
        machine.send(members[rank][0], signal.SIGKILL)
        allowed, unsaved, note = {137}, {rank}, f"member {rank}"
    elif fault == "suspend-the-agent":
        machine.send(agent, signal.SIGSTOP)
        time.sleep(draw.uniform(0.2, 3))
        machine.send(guard, signal.SIGTERM)
        allowed = lost | {INTERRUPTED}
    else:
        if fault == "suspend-the-whole-job":
            # HTCondor's SUSPEND does this to the processes of each proc.
            everyone = bed.processes()
            for pid in everyone:
                machine.send(pid, signal.SIGSTOP)
            time.sleep(draw.choice([3, 20]))
            for pid in everyone:
                machine.send(pid, signal.SIGCONT)
            time.sleep(2)
            if len(bed.rallypoints()) < len(pairs):
                bed.violations.append("goes-on: the job did not outlive its suspension")
        (bed.folder / "finish").touch()
        allowed, unsaved = {0}, set(range(1, PROCS))
    bed.nobody_is_left(GRACE + 35 + slack())
    # Those that HTCondor has taken away have no code.
    expected = 0 if fault.startswith("condor-") else 1 if case.mode is Mode.PARALLEL else PROCS
    bed.wait("the codes of the procs", lambda: log.exists() and len(codes(log.read_text())) >= expected, 30)
    result.codes = codes(log.read_text())
    for code in result.codes:
        bed.code_is_allowed(code, allowed)
    bed.members_have_saved(unsaved)
    return note
