"""This machine's processes: who is below whom, who belongs to a job, and signals to them, always by pid."""

import contextlib
import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    state: str
    session: int

    @property
    def is_running(self) -> bool:
        return self.state not in "ZX"


def adopt_orphans() -> None:
    """Whatever escapes from a job becomes a child of this process, and is found."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def look(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name may hold blanks and brackets; what follows the last one does not.
    state, parent, _group, session, *_ = text.rsplit(")", 1)[1].split()
    return Process(pid, int(parent), state, int(session))


def processes() -> dict[int, Process]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := look(pid))}


def is_running(pid: int) -> bool:
    found = look(pid)
    return found is not None and found.is_running


def below(root: int) -> list[Process]:
    """All that run below a process."""
    every = processes()
    children: dict[int, list[Process]] = {}
    for process in every.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            todo.append(child.pid)
            found.append(child)
    return [process for process in found if process.is_running]


def environ(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def carries(pid: int, mark: str) -> bool:
    """Whether a process has this variable, as all of a job have."""
    return mark in environ(pid)


def variable(pid: int, name: str) -> str | None:
    return next((line[len(name) + 1 :] for line in environ(pid) if line.startswith(f"{name}=")), None)


def marked(mark: str) -> set[int]:
    return {pid for pid, process in processes().items() if process.is_running and carries(pid, mark)}


def command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()
    except OSError:
        return ""


def send(pid: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def tree(pids: set[int]) -> str:
    """As ps shows it: pid, parent, state, session, command."""
    lines = []
    for pid in sorted(pids):
        if process := look(pid):
            lines.append(f"{pid:>8} {process.parent:>8} {process.state} {process.session:>8} {command(pid)[:150]}")
    return "\n".join(lines)


def signal_name(number: int) -> str:
    return signal.Signals(number).name


def end(pids: set[int]) -> None:
    """For good: whoever is suspended dies of SIGKILL too."""
    for pid in pids:
        send(pid, signal.SIGKILL)
