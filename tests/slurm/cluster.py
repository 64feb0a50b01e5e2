"""A job on the real Slurm of `testbed/slurm`: started, watched, and looked for afterwards."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from waiting import LIMIT, wait_for

ROOT = Path(__file__).resolve().parents[2]
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
TESTBED = ROOT / "testbed/slurm"


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"

    def told(self, word: str) -> list[list[str]]:
        """Lines of members that begin with a word, behind rallypoint's prefix: what follows the word."""
        return [m.split() for m in re.findall(rf"^\[\w+ \d+\] {word} ?(.*)$", self.out, re.M)]


@dataclass
class Cluster:
    """Commands of Slurm, in a folder of the test's own."""

    folder: Path
    environ: dict[str, str] = field(default_factory=lambda: without_slurm(os.environ))

    def call(self, *command: str, limit: float = LIMIT, **environ: str) -> Done:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ | environ, capture_output=True, text=True, timeout=limit
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *command: str, **environ: str) -> "Running":
        """In the background, with its output in a file."""
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}"
        with log.open("w") as out:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environ | environ, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        return Running(process, log)

    def sbatch(self, script: str, *options: str) -> "Job":
        """A batch script, submitted."""
        file = self.folder / "job.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        done = self.call("sbatch", "--parsable", "--output=%j.out", "--open-mode=append", *options, str(file))
        assert done.code == 0, done.text
        return Job(self, done.out.strip())

    def jobs(self) -> list[str]:
        return self.call("squeue", "-h", "-o", "%A").out.split()


@dataclass
class Running:
    process: "subprocess.Popen[bytes]"
    log: Path

    def wait(self, limit: float = LIMIT) -> int:
        return self.process.wait(timeout=limit)

    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, limit: float = LIMIT) -> None:
        def found() -> bool:
            assert self.process.poll() is None or text in self.text(), f"ended before {text!r}:\n{self.text()}"
            return text in self.text()

        wait_for(repr(text), found, limit, self.text)


@dataclass
class Job:
    cluster: Cluster
    id: str

    def show(self) -> dict[str, str]:
        done = self.cluster.call("scontrol", "--oneliner", "show", "job", self.id)
        return dict(word.split("=", 1) for word in done.out.split() if "=" in word)

    def state(self) -> str:
        return self.show().get("JobState", "?")

    def log(self) -> str:
        file = self.cluster.folder / f"{self.id}.out"
        return file.read_text() if file.exists() else ""

    def wait_for(self, text: str, limit: float = LIMIT) -> None:
        def found() -> bool:
            assert self.state() not in ENDED or text in self.log(), f"{self.state()} before {text!r}:\n{self.log()}"
            return text in self.log()

        wait_for(f"{text!r} from job {self.id}", found, limit, self.log)

    def wait_until(self, *states: str, limit: float = LIMIT) -> str:
        state = "?"

        def reached() -> bool:
            nonlocal state
            state = self.state()
            return state in states

        wait_for(f"job {self.id} to be {states}", reached, limit, lambda: f"{state}\n{self.log()}")
        return state

    def wait(self, limit: float = LIMIT) -> str:
        return self.wait_until(*ENDED, limit=limit)

    def processes(self) -> list[int]:
        return processes_of(self.id)

    def leaves_nothing(self, limit: float = 15) -> None:
        leaves_nothing(self.id, limit)


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def without_slurm(environ: "os._Environ[str]") -> dict[str, str]:
    kept = {k: v for k, v in environ.items() if not k.startswith(("SLURM_", "PMI_", "RALLYPOINT"))}
    return kept | {"SLURM_CONF": environ["SLURM_CONF"]}


def processes_of(job: str) -> list[int]:
    """All processes of a job on all nodes, which are all on this machine, by the variable that each has."""
    found = []
    mark = f"SLURM_JOB_ID={job}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def command_of(pid: int) -> list[str]:
    """A process's words; empty ones if it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return [""]


def leaves_nothing(job: str, limit: float = 15) -> None:
    def describe() -> str:
        return "\n".join(" ".join(command_of(pid)) for pid in processes_of(job))

    wait_for(f"the end of all processes of job {job}", lambda: processes_of(job) == [], limit, describe)


# What a member prints of itself: its rank, the host Slurm has put it on, and what the roster says of everyone.
WHO = 'echo "me $RALLYPOINT_RANK $RALLYPOINT_ROLE $RALLYPOINT_INDEX $SLURMD_NODENAME $RALLYPOINT_ADDRESS"; echo "roster $(tr -d " \\n" < $RALLYPOINT_ROSTER_FILE)"'
# The same from a member of a cluster with a ps, which waits to be stopped.
SERVE_OR_WORK = f'{WHO}; [ $RALLYPOINT_ROLE = ps ] && exec sleep 1000; exit 0'


def run(*options: str, script: str = SERVE_OR_WORK) -> list[str]:
    return [RALLYPOINT, "run", *options, "--", "sh", "-c", script]


def line(*options: str, script: str = SERVE_OR_WORK) -> str:
    """The same, as a line of a batch script."""
    return shlex.join(run(*options, script=script))


def everyone_is_where_they_are(text: str, world: int) -> dict[int, str]:
    """Every member's roster names every member's true host. Returns the hosts by rank."""
    me = re.findall(r"^(?:\[\w+ \d+\] )?me (\d+) (\w+) (\d+) (\w+) (\S+)$", text, re.M)
    rosters = re.findall(r"^(?:\[\w+ \d+\] )?roster (.*)$", text, re.M)
    assert len(me) == len(rosters) == world, text
    hosts = {int(rank): host for rank, _, _, host, _ in me}
    assert sorted(hosts) == list(range(world)), text
    for roster in rosters:
        members = json.loads(roster)["members"]
        assert {member["rank"]: member["host"] for member in members} == hosts, text
        addresses = {member["rank"]: member["address"] for member in members}
        assert addresses == {int(rank): address for rank, _, _, _, address in me}, text
    return hosts


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
