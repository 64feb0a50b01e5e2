"""Processes of one test, and a member that takes a second to save."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import pytest

from waiting import wait_for

# Its work at the end takes a second: one that is asked twice is killed before, and has not saved.
CHECKPOINT = """
import os, signal, sys, time

def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{word}\\n")

def save(number, frame):
    note("asked")
    time.sleep(1)
    note("saved")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
note("ready")
while True:
    signal.pause()
"""


class Marked:
    """Processes of one test, found by a variable that they all inherit, and what its members have noted."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.notes = folder / "notes"
        self.notes.touch()
        self.member = folder / "checkpoint.py"
        self.member.write_text(CHECKPOINT)
        self.env: Dict[str, Optional[str]] = {"RUN_MARK": self.mark, "NOTES": str(self.notes)}

    @property
    def command(self) -> List[str]:
        return [sys.executable, str(self.member)]

    def living(self) -> List[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"RUN_MARK={self.mark}\0".encode() in (process / "environ").read_bytes():
                    found.append(f"{process.name}: {(process / 'cmdline').read_bytes()!r}")
        return found

    def noted(self) -> List[str]:
        return self.notes.read_text().split()

    def wait_until_ready(self, count: int = 1) -> None:
        wait_for("members are ready", lambda: self.noted().count("ready") == count, now=lambda: str(self.noted()))

    def wait_until_gone(self) -> None:
        wait_for("all to have ended", lambda: not self.living(), now=lambda: "\n".join(self.living()))


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    marked = Marked(tmp_path)
    yield marked
    for line in marked.living():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.partition(":")[0]), signal.SIGKILL)


def shell(script: str) -> List[str]:
    return ["sh", "-c", script]
