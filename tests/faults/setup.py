"""What a job of the campaign is: its mode, its members and their habits, where its output goes. Drawn, not yet started."""

import os
from dataclasses import dataclass, field
from enum import Enum
from random import Random

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RALLYPOINT = os.environ.get("RALLYPOINT", f"{ROOT}/target/release/rallypoint")


class Mode(str, Enum):
    """How the members of a job find each other."""

    HERE = "here"
    DIRECTORY = "directory"
    ADDRESS = "address"
    NETWORK = "network"
    SLURM_TASK = "slurm-task"
    SLURM_LAUNCHER = "slurm-launcher"
    HTCONDOR = "htcondor"
    PARALLEL = "htcondor-parallel"


PLAIN = (Mode.HERE, Mode.DIRECTORY, Mode.ADDRESS)
MEETING = (Mode.DIRECTORY, Mode.ADDRESS, Mode.NETWORK)
LOCAL = (*PLAIN, Mode.NETWORK)
SLURM = (Mode.SLURM_TASK, Mode.SLURM_LAUNCHER)
CONDOR = (Mode.HTCONDOR, Mode.PARALLEL)


class Moment(str, Enum):
    """When the fault comes."""

    EARLY = "early"  # right after the start of all agents
    WAITING = "waiting"  # all but the last agent have come
    STARTING = "starting"  # the last agent has just been started
    RUNNING = "running"  # every member runs
    STOPPING = "stopping"  # the job was asked to end


class Ending(str, Enum):
    """How the harness ends a job that goes on."""

    FINISH = "finish"  # the workers are done
    TERM = "term"  # SIGTERM to the guard of one agent
    INT = "int"  # SIGINT, as Ctrl-C


class Stream(str, Enum):
    """Where an agent's stdout or stderr goes."""

    FILE = "file"
    UNREAD = "unread"  # a full pipe that nobody reads
    CLOSED = "closed"
    FULL = "full"  # /dev/full
    TERMINAL = "terminal"  # a terminal that stops background writers (stty tostop)
    HELD = "held"  # a terminal after Ctrl-S: nothing comes out


@dataclass(frozen=True)
class Habit:
    name: str
    number: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}({self.number:g})" if self.number else self.name

    @property
    def code(self) -> int | None:
        """What the job ends with because of it, if nothing else comes first."""
        if self.name == "fails":
            return int(self.number)
        return 128 + int(self.number) if self.name == "dies" else None

    @property
    def saves(self) -> bool:
        return self.name in ("saves", "wrapped")


@dataclass
class Setup:
    """One job. A fault may change it before the start."""

    mode: Mode
    moment: Moment
    ending: Ending
    habits: list[Habit]
    ps: bool
    grace: int
    ranked: bool
    own_tmp: bool
    meet_timeout: int = 10
    options: list[str] = field(default_factory=list)
    # By agent; the rest is plain.
    stdout: dict[int, Stream] = field(default_factory=dict)
    stderr: dict[int, Stream] = field(default_factory=dict)
    open_files: dict[int, int] = field(default_factory=dict)
    wrong_key: set[int] = field(default_factory=set)
    log_dir: str = ""
    hogs: int = 0
    # Agents whose line to the leader is slow.
    slow_lines: set[int] = field(default_factory=set)
    # The meeting directory is a small file system of its own.
    small_meeting: bool = False

    @property
    def world(self) -> int:
        return len(self.habits)

    @property
    def agents(self) -> int:
        return 1 if self.mode is Mode.HERE else self.world

    @property
    def roles(self) -> list[str]:
        return ["--ps", "1", "--workers", str(self.world - 1)] if self.ps else ["--workers", str(self.world)]

    def own_codes(self) -> set[int]:
        """What members may end the job with by themselves."""
        return {habit.code for habit in self.habits if habit.code is not None}


def habit(draw: Random, grace: int) -> Habit:
    name = draw.choice(
        ["sleeps", "sleeps", "finishes", "fails", "dies", "deaf", "saves", "saves", "saves", "wrapped"]
        + ["floods", "forks", "forks", "daemon", "quiet", "listens"]
    )
    numbers: dict[str, list[float]] = {
        "finishes": [0.5, 1.0, 2.0],
        "fails": [1, 3, 42, 64, 77, 100, 128, 255],
        "dies": [4, 6, 8, 9, 11, 15],
        # Well inside of the grace, also on a busy machine.
        "saves": [0.0, 0.3, min(1.0, grace / 4)],
        "wrapped": [0.0, 0.3, min(1.0, grace / 4)],
        "floods": [1, 5],
        "forks": [0, 1],
        "daemon": [0, 1.5],
    }
    return Habit(name, draw.choice(numbers.get(name, [0.0])))


def draw_setup(draw: Random, mode: Mode, moment: Moment) -> Setup:
    grace = draw.choice([3, 4, 5])
    ps = draw.random() < 0.4
    # One alone only where nobody has to be met.
    count = draw.choice([2, 3, 3, 4, 4, 7, 12, 1 if mode is Mode.HERE else 2])
    ps = ps and count > 1
    habits = [habit(draw, grace) for _ in range(count)]
    # One that fails by itself is enough: the fault is what the case is about.
    failing = [rank for rank, one in enumerate(habits) if one.code is not None]
    for rank in failing if draw.random() < 0.6 else failing[1:]:
        habits[rank] = Habit("saves", 0.3)
    return Setup(
        mode=mode,
        moment=moment,
        ending=draw.choice(list(Ending)),
        habits=habits,
        ps=ps,
        grace=grace,
        ranked=draw.random() < 0.5,
        own_tmp=draw.random() < 0.5,
    )
