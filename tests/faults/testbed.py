"""What the cases on real schedulers share: a job of four members in a folder, and the same invariants."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import machine
from invariants import PANIC
from job import HERE
from setup import RALLYPOINT, Habit

WORLD = 4
GRACE = 4
LIMIT = 90.0


class Bed:
    """A job on a real scheduler."""

    def __init__(self, folder: Path, tag: str, draw: Random, world: int = WORLD, grace: int = GRACE) -> None:
        self.folder = folder
        self.grace = grace
        # The scheduler itself kills all at once: nobody is left to remove it.
        self.meeting_stays = False
        self.mark = f"FAULT_MARK={tag}"
        self.draw = draw
        names = ["saves", "saves", "wrapped", "sleeps", "forks", "daemon", "deaf", "listens"]
        self.habits = [Habit(name, 0.3 if name in ("saves", "wrapped") else 0.0) for name in draw.choices(names, k=world)]
        folder.mkdir(parents=True)
        lines = [f"{rank} {habit.name} {habit.number}\n" for rank, habit in enumerate(self.habits)]
        (folder / "habits").write_text("".join(lines))
        self.violations: list[str] = []

    def words(self, *options: str) -> list[str]:
        """`run` and what follows, as the scheduler is given it."""
        member = [sys.executable, "-S", "-E", str(HERE / "member.py"), str(self.folder)]
        roles = ["--ps", "1", "--workers", str(len(self.habits) - 1)]
        return ["run", *roles, "--grace", f"{self.grace}s", "--meet-timeout", "30s", *options, "--", *member]

    # Looking

    def ups(self) -> set[int]:
        return {int(file.name[3:]) for file in self.folder.glob("up-*")}

    def processes(self) -> set[int]:
        return machine.marked(self.mark)

    def rallypoints(self) -> list[tuple[int, int]]:
        """Guards with their agents."""
        mine = {pid for pid in self.processes() if machine.command(pid).startswith(f"{RALLYPOINT} run")}
        every = {pid: machine.look(pid) for pid in mine}
        return sorted((one.parent, pid) for pid, one in every.items() if one and one.parent in mine)

    def members(self) -> dict[int, tuple[int, int]]:
        """By rank: a member's process, the first of its session, and its agent. Pids as this machine counts them."""
        agents = {agent for _, agent in self.rallypoints()}
        every = [machine.look(pid) for pid in self.processes()]
        firsts = [one for one in every if one and one.parent in agents and one.session == one.pid]
        ranks = [(machine.variable(one.pid, "RALLYPOINT_RANK"), one) for one in firsts]
        return {int(rank): (one.pid, one.parent) for rank, one in ranks if rank}

    def wait(self, what: str, found: Callable[[], object], limit: float = LIMIT) -> bool:
        until = time.monotonic() + limit
        while not found():
            if time.monotonic() > until:
                self.violations.append(f"ends-in-time: waited {limit:.0f} s for {what}")
                return False
            time.sleep(0.1)
        return True

    def all_up(self) -> bool:
        return self.wait("all members", lambda: len(self.ups()) == len(self.habits))

    # Checking

    def nobody_is_left(self, limit: float) -> None:
        if not self.wait("the end of all processes", lambda: not self.processes(), limit):
            self.violations[-1] = f"nobody-is-left: after {limit:.0f} s there are\n{machine.tree(self.processes())}"

    def no_file_is_left(self) -> None:
        left = [file.name for file in self.folder.glob("*rallypoint*")] + [file.name for file in self.folder.glob(".rally*")]
        left = [name for name in left if not (self.meeting_stays and name.endswith(".meet"))]
        if left:
            self.violations.append(f"no-file-is-left: in the working directory: {', '.join(sorted(left))}")

    def members_have_saved(self, but: set[int]) -> None:
        for rank, habit in enumerate(self.habits):
            if habit.saves and rank not in but and not (self.folder / f"saved-{rank}").exists():
                asked = (self.folder / f"asked-{rank}").exists()
                why = "was killed before it had saved" if asked else "was ended without a SIGTERM"
                self.violations.append(f"members-have-saved: member {rank} {why}")

    def no_panic(self, text: str) -> None:
        if match := PANIC.search(text):
            self.violations.append(f"no-panic: {match.group()}")

    def code_is_allowed(self, code: object, allowed: set[int]) -> None:
        if code not in allowed:
            self.violations.append(f"code-is-allowed: the job ended with {code}, expected one of {sorted(allowed)}")

    def end(self) -> None:
        (self.folder / "halt").touch()
        until = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                machine.send(pid, signal.SIGKILL)
            time.sleep(0.1)


def variables(bed: Bed) -> dict[str, str]:
    foreign = ("SLURM_", "PMI_", "RALLYPOINT", "_CONDOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign) or name == "SLURM_CONF"}
    name, _, value = bed.mark.partition("=")
    return kept | {name: value, "FAULT_AGENT": "0"}

