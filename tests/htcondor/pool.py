"""A pool that runs: submit to it, look at it, wait for what happens in it."""

import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from waiting import LIMIT, wait_for

ROOT = Path(__file__).resolve().parents[2]
TESTBED = ROOT / "testbed/htcondor"
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
# Inside a job, a path through a link may not exist.
PYTHON = str(ROOT / "build/venv/bin/python")


@dataclass
class Pool:
    folder: Path
    # Hosts of their own; a personal pool has none.
    hosts: list[str] = field(default_factory=list)

    def run(
        self, *command: str, cwd: Path | None = None, check: bool = True, limit: float = LIMIT
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self.folder / "as"), *command], cwd=cwd, capture_output=True, text=True, timeout=limit
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def submit(self, folder: Path, description: str) -> "Cluster":
        (folder / "job.sub").write_text(description)
        answer = self.run("condor_submit", "-terse", "job.sub", cwd=folder).stdout
        return Cluster(self, folder, int(answer.split(".")[0]))

    def idle_claims(self) -> set[str]:
        """Hosts with slots that somebody has claimed and nobody uses."""
        idle = 'State == "Claimed" && Activity == "Idle"'
        return set(self.run("condor_status", "-constraint", idle, "-af", "Machine", check=False).stdout.split())

    def release_idle_claims(self) -> None:
        """Gives the next test the whole pool.

        HTCondor's dedicated scheduler lets go of a finished job's slots after UNUSED_CLAIM_TIMEOUT, 3 s here. One that it has
        taken from another job it may keep for good (seen with 23.9); that host's startd is told to begin anew then.
        """
        for _ in range(30):
            if not self.idle_claims():
                return
            time.sleep(0.5)
        kept = self.idle_claims()
        for name in kept:
            self.run("condor_restart", "-startd", name, check=False)
        what = f"the end of claims on {sorted(kept)}"
        wait_for(what, lambda: not kept & self.idle_claims(), LIMIT, lambda: self.run("condor_status").stdout)

    def host(self, what: str, *names: str) -> None:
        subprocess.run([TESTBED / "host", what, *names], check=True, timeout=LIMIT)


@dataclass
class Cluster:
    """The procs of one submission. Their log is `log`, their output `out.N` and `err.N`."""

    pool: Pool
    folder: Path
    id: int

    def text(self, *, only: str = "*") -> str:
        return "".join(f"== {p.name}\n{p.read_text()}" for p in sorted(self.folder.glob(f"[eo][ru][rt].{only}")))

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    def codes(self) -> dict[int, int]:
        """The exit code of every proc that has left the queue."""
        how = r"(?:Normal termination \(return value (\d+)\)|Abnormal.*signal (\d+))"
        ends = re.findall(rf"^005 \(0*{self.id}\.(\d+)\.\d+\).*\n\t\(\d\) {how}", self.log(), re.M)
        return {int(proc): int(code) if code else -int(signal) for proc, code, signal in ends}

    def happened(self, event: str, proc: int | None = None) -> int:
        """How often an event of the user log came: 001 executing, 004 evicted, 009 removed, 012 held."""
        which = r"\d+" if proc is None else f"{proc:03d}"
        return len(re.findall(rf"^{event} \(0*{self.id}\.{which}\.", self.log(), re.M))

    def wait(self, procs: int, limit: float = LIMIT) -> dict[int, int]:
        """Until so many procs have ended; their exit codes."""
        wait_for(f"the end of {procs} procs", lambda: len(self.codes()) >= procs, limit, self.everything)
        return self.codes()

    def says(self, text: str, *, only: str = "*", limit: float = LIMIT) -> None:
        wait_for(f"{text!r}", lambda: text in self.text(only=only), limit, self.everything)

    def everything(self) -> str:
        queue = self.pool.run("condor_q", "-af:j", "JobStatus", "HoldReason", "JobRunCount").stdout
        return f"{queue}\n{self.text()}\n{self.log()}"

    def act(self, tool: str, proc: int | None = None, *options: str) -> None:
        self.pool.run(tool, *options, str(self.id) if proc is None else f"{self.id}.{proc}")


def description(
    arguments: str, *, universe: str = "vanilla", count: int = 3, shared: bool = True, more: str = ""
) -> str:
    """A submit description as a person writes it: rallypoint with these arguments, so many times."""
    number = "$(Node)" if universe == "parallel" else "$(Process)"
    lines = [
        f"universe = {universe}",
        f"executable = {RALLYPOINT}",
        f"""arguments = "{arguments.replace('"', '""')}\"""",
        f"transfer_executable = {not shared}",
        f"should_transfer_files = {'NO' if shared else 'YES'}",
        f"output = out.{number}",
        f"error = err.{number}",
        "log = log",
        "request_memory = 128",
        "+WantIOProxy = true",
    ]
    if not shared:
        lines += ["stream_output = True", "stream_error = True"]
    if universe == "parallel":
        lines += [f"machine_count = {count}", '+ParallelShutdownPolicy = "WAIT_FOR_ALL"', more, "queue"]
    else:
        lines += [more, f"queue {count}"]
    return "\n".join(lines) + "\n"
