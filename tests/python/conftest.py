"""Captured jobs, clean environments and processes that must end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
LIMIT = 240


@dataclass(frozen=True)
class Task:
    """One task of a captured step, and where it really ran."""

    case: str
    step: int
    rank: int
    host: str
    variables: Dict[str, str]


def captured_steps() -> Iterator[List[Task]]:
    """The tasks of every captured step that was captured whole."""
    for file in sorted((FIXTURES / "slurm").glob("*/*.txt")):
        common: Dict[str, str] = {}
        steps: Dict[int, List[Task]] = {}
        for part in re.split(r"^== ", file.read_text(), flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition("\n")
            variables = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
            if heading == "every task":
                common = variables
            # Steps with numbers of ten digits are Slurm's own: interactive shells, say.
            elif found := re.fullmatch(r"step(\d{1,5})-r(\d+)-(\w+)", heading):
                step, rank, host = int(found[1]), int(found[2]), found[3]
                case = f"{file.parent.name}/{file.stem}"
                steps.setdefault(step, []).append(Task(case, step, rank, host, {**common, **variables}))
        for tasks in steps.values():
            world = int(tasks[0].variables.get("SLURM_STEP_NUM_TASKS", "0"))
            if sorted(task.rank for task in tasks) == list(range(world)):
                yield sorted(tasks, key=lambda task: task.rank)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the schedulers' variables of this process to exactly these."""
    belongs = ("SLURM", "_CONDOR", "CUDA_", "ROCR_", "HIP_", "ZE_", "GPU_", "RALLYPOINT", "TF_CONFIG", "PMI_")

    def become(variables: Dict[str, str]) -> None:
        for name in list(os.environ):
            if name.startswith(belongs):
                monkeypatch.delenv(name)
        for name, value in variables.items():
            if name.startswith(belongs):
                monkeypatch.setenv(name, value)

    return become


class Programs:
    """Python processes of one test; none of them outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: List[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
        file = self.folder / f"program-{len(self.running)}.py"
        file.write_text(textwrap.dedent(script))
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(
            [sys.executable, str(file), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **quiet, **variables},
            cwd=self.folder,
        )
        self.running.append(process)
        return process

    def end(self, limit: float = LIMIT) -> List[str]:
        """What each of them wrote, after all have ended by themselves."""
        return [process.communicate(timeout=limit)[0] for process in self.running]

    @property
    def codes(self) -> List[int]:
        return [process.wait(timeout=LIMIT) for process in self.running]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    for process in programs.running:
        if process.poll() is None:
            process.kill()
            process.communicate()
