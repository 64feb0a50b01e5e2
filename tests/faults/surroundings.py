"""Bad surroundings of a job: outputs that nobody reads or that are full, few open files, a busy machine."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from expect import LOG_LOST, MEETING_FAILED, MEMBER_LOST, LEADER_LOST, NOT_STARTED, OUTPUT, USAGE, Expect
from slow_line import SLOWEST
from setup import LOCAL, PLAIN, Ending, Habit, Mode, Moment, Setup, Stream

# What may happen in them, by name.
MILD = ("nothing", "signal to the guard", "kill the agent", "kill the guard", "signal to a member", "suspend the agent")
MOMENTS = (Moment.EARLY, Moment.RUNNING, Moment.STOPPING)


@dataclass(frozen=True)
class Surroundings:
    name: str
    modes: tuple[Mode, ...]
    # Before the start.
    prepare: Callable[[Setup, Random], None]
    # What they allow besides.
    allow: Callable[[Setup, Expect], None]
    strikes: tuple[str, ...] = MILD
    moments: tuple[Moment, ...] = MOMENTS
    root: bool = False


def plainly(_setup: Setup, _draw: Random) -> None:
    pass


def no_more(_setup: Setup, _expect: Expect) -> None:
    pass


PLAINLY = Surroundings("", LOCAL, plainly, no_more)


def output(streams: tuple[str, ...], kind: Stream) -> Surroundings:
    def prepare(setup: Setup, draw: Random) -> None:
        whose = set(range(setup.agents)) if draw.random() < 0.5 else {draw.randrange(setup.agents)}
        for stream in streams:
            getattr(setup, stream).update({index: kind for index in whose})
        if kind in (Stream.UNREAD, Stream.HELD):
            # A member that floods a pipe that nobody reads waits in its write, and never finishes.
            setup.ending = draw.choice([Ending.TERM, Ending.INT])

    def allow(setup: Setup, expect: Expect) -> None:
        expect.limit += OUTPUT
        expect.mute |= set(setup.stderr) if kind is not Stream.TERMINAL else set()
        if kind is Stream.FULL:
            expect.codes.add(LOG_LOST)

    return Surroundings(f"{' and '.join(streams)} {kind.value}", LOCAL, prepare, allow)


def log_full(setup: Setup, draw: Random) -> None:
    """The folder is made by the case; one member at least writes more than fits."""
    setup.log_dir = "full"
    setup.habits[draw.randrange(setup.world)] = Habit("floods", 1)


def log_may_be_lost(_setup: Setup, expect: Expect) -> None:
    expect.limit += OUTPUT
    expect.codes |= {LOG_LOST, NOT_STARTED, MEMBER_LOST}


def log_kept(setup: Setup, draw: Random) -> None:
    setup.log_dir = "logs"
    setup.habits[draw.randrange(setup.world)] = Habit("floods", 5)
    if draw.random() < 0.5:
        setup.options += ["--tee"]


def events_full(setup: Setup, _draw: Random) -> None:
    setup.options += ["--events", "/dev/full"]


def events_may_be_lost(_setup: Setup, expect: Expect) -> None:
    expect.codes.add(LOG_LOST)


def few_files(setup: Setup, draw: Random) -> None:
    setup.open_files[draw.randrange(setup.agents)] = draw.choice([4, 5, 6, 8, 10, 12, 16, 20, 24, 32])
    # It may not even meet.
    setup.moment = Moment.EARLY


def may_not_start(setup: Setup, expect: Expect) -> None:
    """Nothing works with eight open files; but it ends, and says so."""
    expect.limit += setup.meet_timeout + OUTPUT
    expect.codes |= {USAGE, MEETING_FAILED, NOT_STARTED, MEMBER_LOST, LEADER_LOST, LOG_LOST}
    for index in setup.open_files:
        # 127: the loader could not open a library; 128 + SIGKILL and the like are a member's.
        expect.special.setdefault(index, set()).update(expect.codes | {0, 1, 127, 196})
    expect.agree = False
    expect.unsaved = None


def busy(setup: Setup, draw: Random) -> None:
    setup.hogs = draw.choice([2, 4, 6])
    # A save must fit into the grace on a machine that is slow.
    setup.grace += 4


def slow_lines(setup: Setup, draw: Random) -> None:
    """Some are connected through a relay that keeps what it is given for a while, and now and then for longer."""
    setup.slow_lines = set(draw.sample(range(1, setup.agents), draw.randrange(1, setup.agents)))
    setup.ranked = True
    setup.meet_timeout += 10
    setup.grace += 4


def late_by_the_line(_setup: Setup, expect: Expect) -> None:
    # Each word of a stop and of an end is that much later.
    expect.limit += 4 * SLOWEST
    # A killed leader's relay holds the last words too.
    expect.leader_struck = True


def restarts(setup: Setup, draw: Random) -> None:
    """One worker fails again and again; others may be killed, and come back too."""
    setup.options += ["--restart", "worker=2"]
    # What a flood has written can be told for one life alone.
    setup.habits = [Habit("sleeps") if habit.name == "floods" else habit for habit in setup.habits]
    setup.habits[-1] = draw.choice([Habit("dies", 9), Habit("fails", 3)])


SURROUNDINGS = [
    output(("stdout",), Stream.UNREAD),
    output(("stderr",), Stream.UNREAD),
    output(("stdout", "stderr"), Stream.UNREAD),
    output(("stdout",), Stream.CLOSED),
    output(("stderr",), Stream.CLOSED),
    output(("stdout", "stderr"), Stream.CLOSED),
    output(("stdout",), Stream.FULL),
    output(("stderr",), Stream.FULL),
    output(("stdout", "stderr"), Stream.TERMINAL),
    output(("stdout", "stderr"), Stream.HELD),
    Surroundings("logs are written", LOCAL, log_kept, lambda _, expect: setattr(expect, "limit", expect.limit + OUTPUT)),
    Surroundings("logs on a full disk", LOCAL, log_full, log_may_be_lost, root=True),
    Surroundings("events to a full device", LOCAL, events_full, events_may_be_lost),
    Surroundings("members are restarted", LOCAL, restarts, no_more),
    Surroundings("few open files", PLAIN, few_files, may_not_start, ("nothing",), (Moment.EARLY,)),
    Surroundings("slow lines", (Mode.ADDRESS,), slow_lines, late_by_the_line),
    Surroundings("a busy machine", LOCAL, busy, no_more, (*MILD, "suspend the whole job", "signal to all agents")),
]
