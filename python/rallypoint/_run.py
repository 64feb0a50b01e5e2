"""Jobs of this process: the command `rallypoint run` as a child, its events, its output, its end.

Why a child: the command splits into guard and agent by a fork, which is safe in a process without threads alone, and a
notebook's kernel has many. It also keeps its promises when this process is gone.

The child has a session of its own. Ctrl-C reaches this process alone then, by a terminal (which signals its foreground
group) or by Jupyter (which signals the kernel's group), and is passed on once. A session and not only a group: a
background group that writes to a terminal with `stty tostop` is stopped, one of another session is not. It can write to
the terminal and ask for its size all the same.

It is given three things: a pipe for its events (`--events /dev/fd/N`), one end of a socket (`--caller`), and this
process's stdout and stderr. The socket closes with this process, even with SIGKILL: then the job is asked to end.
"""

from __future__ import annotations

import atexit
import codecs
import inspect
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterator, List, Mapping, Optional, Sequence, Set, TextIO, Tuple, Union

from .__main__ import find_command
from ._options import Options, Path, arguments, each
from ._outcome import AGENT_LOST, INTERRUPTED, LEADER_LOST, MEMBER_LOST, Event, MemberOutcome, Outcome, Record, parse_event
from .errors import JobFailed, RunError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

__all__ = ["Event", "Job", "MemberOutcome", "Outcome", "run", "start"]

# Events that are kept for those who have not read them: some 10 MB at the most.
KEPT = 10_000
# How much of a line without an end is kept before it is shown in pieces.
LONGEST_LINE = 1 << 16
# Pipes close with the job; one that somebody else holds open, a process that was forked in between, is given up.
LAST_WORDS = 2.0
# A Ctrl-C that comes just before Python begins to wait is heard when it stops waiting: so it never waits for longer.
HEARS = 0.5
# How far two SIGINT are apart. The command takes two within 0.1 s for one, and the first half second after a SIGTERM for
# the same wish; so there are some more of them.
ANOTHER_WISH = 0.3


class Events:
    """The last events of a job, for any number of readers, each from the first one on."""

    def __init__(self) -> None:
        self._kept: Deque[Event] = deque(maxlen=KEPT)
        self._count = 0
        self._complete = False
        self._changed = threading.Condition()

    def add(self, event: Event) -> None:
        with self._changed:
            self._kept.append(event)
            self._count += 1
            self._changed.notify_all()

    def complete(self) -> None:
        with self._changed:
            self._complete = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Event]:
        read = 0
        while True:
            with self._changed:
                while self._count == read and not self._complete:
                    self._changed.wait(HEARS)
                gone = self._count - len(self._kept)
                news = list(itertools.islice(self._kept, max(0, read - gone), None))
            if gone > read:
                yield Event("missed", news[0].time, news[0].attempt, {"count": gone - read})
            yield from news
            read = max(read, gone) + len(news)
            if not news:
                return


class Job:
    """A job that was started: `rallypoint run`, with `pid` its process.

    In a `with` block it ends with the block: if it still runs then, it is asked to end and waited for. Otherwise it ends
    with this Python process at the latest, however that ends.
    """

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket, events: int, record: Record) -> None:
        self.pid: int = process.pid
        self._process = process
        self._line = line
        self._record = record
        self._events = Events()
        self._signals = threading.Lock()
        self._reaped = False
        self._asked = False
        self._told = ""
        self._code = 0
        self._ended = threading.Event()
        readers = [threading.Thread(target=self._read_events, args=(events,), daemon=True)]
        for source, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            if source is not None:
                readers.append(threading.Thread(target=pump, args=(source, sink), daemon=True))
        for thread in (*readers, threading.Thread(target=self._see_out, args=(readers,), daemon=True)):
            thread.name = f"rallypoint-{self.pid}"
            thread.start()

    def events(self) -> Iterator[Event]:
        """All events from the first one on, as they come, until the job has ended.

        They need not be read: the last 10,000 are kept, and whoever comes later than that gets an event `missed` first,
        with their `count`.
        """
        return iter(self._events)

    def poll(self) -> Optional[Outcome]:
        """How the job ended; None while it runs. One that could not be started is a `RunError`."""
        return self._result() if self._ended.is_set() else None

    def wait(self, timeout: Optional[float] = None) -> Outcome:
        """Waits for the end; a `TimeoutError` leaves the job running.

        Ctrl-C asks the job to end and waits for that, a second one kills it; then `KeyboardInterrupt` goes on.
        """
        try:
            ended = self._ends_within(timeout)
        except KeyboardInterrupt:
            self._end()
            raise
        if not ended:
            raise TimeoutError(f"the job (pid {self.pid}) has not ended within {timeout} s")
        return self._result()

    def stop(self) -> None:
        """Asks the job to end: its members have the grace. Asking twice changes nothing."""
        if not self._asked:
            self._asked = True
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the job at once, without grace, as Ctrl-C does twice. Waits for that, but little more than a second."""
        self._asked = True
        for _ in range(4):
            self._signal(signal.SIGINT)
            if self._ended.wait(ANOTHER_WISH):
                return

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._ended.is_set():
            self._end()

    def __repr__(self) -> str:
        if not self._ended.is_set():
            return f"<Job {self.pid}, running>"
        return f"<Job {self.pid}, ended with {self._code}>"

    def _end(self) -> None:
        try:
            self.stop()
            # Not for ever: the command keeps the grace, and its guard a limit beyond that.
            self._ends_within(None)
        except KeyboardInterrupt:
            self.kill()
            self._ends_within(None)

    def _ends_within(self, timeout: Optional[float]) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(HEARS if until is None else max(0.0, min(HEARS, until - time.monotonic()))):
            if until is not None and time.monotonic() >= until:
                return False
        return True

    def _signal(self, number: int) -> None:
        with self._signals:
            # From then on the number may be another process's.
            if not self._reaped:
                os.kill(self.pid, number)

    def _result(self) -> Outcome:
        elsewhere = (0, LEADER_LOST, MEMBER_LOST, INTERRUPTED, AGENT_LOST)
        if self._told and not self._record.begun and self._code not in elsewhere:
            raise RunError(self._told, self._code)
        return self._record.outcome(self._code, self._asked)

    def _read_events(self, descriptor: int) -> None:
        with open(descriptor, "rb") as lines:
            for line in lines:
                event = parse_event(line)
                if event is not None:
                    self._record.add(event)
                    self._events.add(event)

    def _see_out(self, readers: Sequence[threading.Thread]) -> None:
        """Waits for the end, in a thread of its own."""
        # Not before: whoever is interrupted while it starts a job has no handle, and nobody would tell of the end.
        _living.add(self)
        code: Optional[int] = None
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            # Somebody has waited for all children, or ignores SIGCHLD: the last event knows the code.
            code = AGENT_LOST
        with self._signals:
            returned = self._process.wait()
            self._reaped = True
        for thread in readers:
            thread.join(LAST_WORDS)
        over = self._record.over
        self._code = returned if code is None else over.code if over is not None else code
        self._told = in_one_line(receive_all(self._line))
        self._line.close()
        self._events.complete()
        _living.discard(self)
        self._ended.set()


def start(
    command: Sequence[Union[str, os.PathLike[str]]],
    *,
    env: Optional[Mapping[str, Optional[str]]] = None,
    cwd: Optional[Path] = None,
    **options: Unpack[Options],
) -> Job:
    """Starts a job, as `rallypoint run` does, and returns a handle::

        job = rallypoint.start(["python", "train.py"], workers=4, log_dir="logs")
        for event in job.events():
            print(event)
        outcome = job.wait()

    The keywords are the command's options. `env` has variables on top of this process's own (None takes one away),
    `cwd` is the directory to start in. Whether the job could be started is told by `wait()`.
    """
    return launch("start", command, env, cwd, options)


def run(
    command: Sequence[Union[str, os.PathLike[str]]],
    *,
    on_event: Optional[Callable[[Event], object]] = None,
    check: bool = False,
    env: Optional[Mapping[str, Optional[str]]] = None,
    cwd: Optional[Path] = None,
    **options: Unpack[Options],
) -> Outcome:
    """Runs a job, as `rallypoint run` does, until it has ended::

        outcome = rallypoint.run(["python", "train.py"], ps=1, workers=2, on_event=print)

    The keywords are the command's options; `env` and `cwd` are those of `start`. `on_event` is called in this thread; what
    it raises ends the job, and goes on then. With `check`, a job that does not succeed is a `JobFailed`. One that
    could not be started is a `RunError`. Ctrl-C asks the job to end, a second one kills it; `KeyboardInterrupt` goes on when it
    has ended.
    """
    with launch("run", command, env, cwd, options) as job:
        if on_event is not None:
            for event in job.events():
                on_event(event)
        outcome = job.wait()
    if check and not outcome.ok:
        raise JobFailed(outcome)
    return outcome


def launch(
    function: str,
    command: Sequence[Union[str, os.PathLike[str]]],
    env: Optional[Mapping[str, Optional[str]]],
    cwd: Optional[Path],
    options: Mapping[str, Any],
) -> Job:
    if isinstance(command, (str, bytes)):
        raise TypeError(f'{function}() takes the words of the command, such as ["python", "train.py"]')
    typed = arguments(function, options)
    variables = {**os.environ, **(env or {})}
    tolerated = [word.partition("=")[2] for word in each("", options.get("tolerate") or ())]
    try:
        program = find_command()
    except FileNotFoundError as error:
        raise RunError(str(error), 127) from None
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [
                os.fspath(program),
                "run",
                f"--caller={theirs.fileno()}",
                f"--events=/dev/fd/{writing}",
                *typed,
                "--",
                *(os.fspath(word) for word in command),
            ],
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=destination(sys.stdout, 1),
            stderr=destination(sys.stderr, 2),
            env={name: value for name, value in variables.items() if value is not None},
            cwd=cwd,
            pass_fds=(theirs.fileno(), writing),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(reading)
        raise
    finally:
        theirs.close()
        os.close(writing)
    try:
        return Job(process, ours, reading, Record(tolerated))
    except BaseException:
        # A Ctrl-C at this very moment, or no more threads: nobody has the handle, so the job ends.
        ours.shutdown(socket.SHUT_RDWR)
        process.wait()
        raise


def destination(stream: Optional[TextIO], number: int) -> Optional[int]:
    """Where the command's output goes: straight to this process's own, or through a thread to what stands for it.

    In a notebook, under pytest or in `redirect_stdout`, `sys.stdout` is not descriptor 1, which leads elsewhere.
    """
    if stream is None:
        return subprocess.DEVNULL
    try:
        stream.flush()
        return None if stream.fileno() == number else subprocess.PIPE
    except (AttributeError, OSError, ValueError):
        return subprocess.PIPE


def pump(source: Any, sink: Optional[TextIO]) -> None:
    """Writes whole lines to `sink`. What it does not take is dropped: members must not wait for it."""

    def write(text: str) -> None:
        nonlocal sink
        try:
            if sink is not None and text:
                sink.write(text)
        except Exception:
            sink = None

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    with source:
        for chunk in iter(lambda: source.read(LONGEST_LINE), b""):
            lines, end, rest = (rest + decoder.decode(chunk)).rpartition("\n")
            if len(rest) > LONGEST_LINE:
                lines, end, rest = lines + end, rest, ""
            write(lines + end)
    write(rest + decoder.decode(b"", final=True))


def receive_all(line: socket.socket) -> str:
    """What has been told by one who has ended."""
    line.setblocking(False)
    told: List[bytes] = []
    try:
        while not told or told[-1]:
            told.append(line.recv(1 << 16))
    except OSError:
        pass
    return b"".join(told).decode("utf-8", "replace")


def in_one_line(told: str) -> str:
    """The command's words as those of an error: `nobody trains; hint: give --workers N`, without `error: `."""
    lines = [line.rstrip() for line in told.splitlines() if not line.startswith("For more information")]
    text = "\n".join(line for line in lines if line)
    return text[len("error: ") :].replace("\nhint: ", "; hint: ") if text.startswith("error: ") else text


def with_all_keywords(function: Callable[..., Any]) -> None:
    """Shows the options in `help()` and in a notebook's tooltips, where `**options` would say nothing."""
    own = inspect.signature(function)
    parameters = [own.parameters[name] for name in own.parameters if name != "options"]
    for name, kind in Options.__annotations__.items():
        shown = kind.__forward_arg__ if hasattr(kind, "__forward_arg__") else kind
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=shown))
    setattr(function, "__signature__", own.replace(parameters=parameters))  # noqa: B010


with_all_keywords(start)
with_all_keywords(run)

_living: Set[Job] = set()


def end_all() -> None:
    """A Python process that ends takes its jobs with it, within their grace, and their last words come through."""
    for job in list(_living):
        job.stop()
    for job in list(_living):
        job._end()


def leave_to_the_parent() -> None:
    """In a forked child: the jobs are the parent's, and its death must close the sockets."""
    for job in _living:
        job._line.close()
    _living.clear()


atexit.register(end_all)
os.register_at_fork(after_in_child=leave_to_the_parent)
