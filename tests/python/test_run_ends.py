"""What becomes of a job when its Python is interrupted, killed or closed: terminals, notebooks, forks."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import rallypoint
from waiting import wait_for

from conftest import LIMIT
from marked import Marked, marked, shell

# What a person, a scheduler or a crash does to the process that has started a job.

WAITING = """
    import signal, sys, rallypoint
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        rallypoint.run(sys.argv[1:], workers=1, grace=60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_without_a_terminal(marked: Marked, programs: Any) -> None:
    process = programs.start(WAITING, *marked.command, **marked.env)
    marked.wait_until_ready()
    process.send_signal(signal.SIGINT)
    assert "interrupted" in programs.end()[0] and process.returncode == 0
    assert not marked.living() and marked.noted() == ["ready", "asked", "saved"]


def test_ctrl_c_twice_kills(marked: Marked, programs: Any) -> None:
    stubborn = "trap 'echo asked >> $NOTES' TERM; echo ready > $NOTES; while :; do sleep 0.1; done"
    process = programs.start(WAITING.replace("grace=60", "grace=3600"), "sh", "-c", stubborn, **marked.env)
    marked.wait_until_ready()
    process.send_signal(signal.SIGINT)
    wait_for("the member to be asked", lambda: "asked" in marked.noted())
    process.send_signal(signal.SIGINT)
    assert "interrupted" in programs.end()[0] and process.returncode == 0
    assert not marked.living()


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM])
def test_what_the_caller_ignores_does_not_keep_its_job(marked: Marked, programs: Any, ignored: signal.Signals) -> None:
    script = f"""
        import signal, sys, rallypoint
        signal.signal({int(ignored)}, signal.SIG_IGN)
        rallypoint.start(sys.argv[1:], workers=1).wait()
    """
    process = programs.start(script, *marked.command, **marked.env)
    marked.wait_until_ready()
    process.kill()
    marked.wait_until_gone()
    assert marked.noted()[-1] == "saved"


class Terminal:
    """A Python process at a terminal of its own, and what it shows."""

    def __init__(self, folder: Path, script: str, arguments: List[str], variables: Dict[str, Any]) -> None:
        self.master, slave = pty.openpty()
        # As a shell does for its foreground job.
        first = "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        # Whoever runs the tests may have been started by nohup.
        first += "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        file = folder / "at-terminal.py"
        file.write_text(first + textwrap.dedent(script))
        self.process = subprocess.Popen(
            [sys.executable, str(file), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        os.close(slave)
        self.shown = b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(self.master, 4096):
                self.shown += chunk

    def set_tostop(self) -> None:
        mode = termios.tcgetattr(self.master)
        mode[3] |= termios.TOSTOP
        termios.tcsetattr(self.master, termios.TCSANOW, mode)

    def end(self) -> str:
        self.process.wait(timeout=LIMIT)
        self.reader.join(timeout=LIMIT)
        return self.shown.decode()


@pytest.mark.parametrize("tostop", [False, True])
def test_ctrl_c_at_a_terminal(marked: Marked, tmp_path: Path, tostop: bool) -> None:
    """The job hears it once, and its members have their grace; the command sees a terminal, and may write to it."""
    command = ["sh", "-c", f"echo to be seen; exec {' '.join(marked.command)}"]
    terminal = Terminal(tmp_path, WAITING, command, marked.env)
    if tostop:
        terminal.set_tostop()
    marked.wait_until_ready()
    os.write(terminal.master, b"\x03")
    shown = terminal.end()
    assert "to be seen" in shown and "interrupted\r\n" in shown and terminal.process.returncode == 0, shown
    # Colour, and the closing table: it has spoken to the terminal itself.
    assert "\x1b[" in shown and "PEAK MEMORY" in shown, shown
    assert not marked.living() and marked.noted() == ["ready", "asked", "saved"]


def test_a_ctrl_c_that_python_catches_is_not_the_jobs(marked: Marked, tmp_path: Path) -> None:
    """The terminal signals its foreground group, in which the command must not be."""
    script = """
        import signal, sys, time, rallypoint
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            job = rallypoint.start(sys.argv[1:], workers=1)
            print("waiting", flush=True)
            while True:
                time.sleep(0.05)
        except KeyboardInterrupt:
            print("caught", flush=True)
        try:
            job.wait(timeout=2.5)
        except TimeoutError:
            print("still there", flush=True)
    """
    terminal = Terminal(tmp_path, script, marked.command, marked.env)
    marked.wait_until_ready()
    wait_for("Python to wait", lambda: b"waiting" in terminal.shown, running=[terminal.process])
    os.write(terminal.master, b"\x03")
    shown = terminal.end()
    assert "caught" in shown and "still there" in shown, shown
    assert not marked.living() and marked.noted() == ["ready", "asked", "saved"]


def test_errors_at_a_terminal_have_their_text_and_are_not_held_up(marked: Marked, tmp_path: Path) -> None:
    script = """
        import sys, termios, rallypoint
        mode = termios.tcgetattr(0)
        mode[3] |= termios.TOSTOP
        termios.tcsetattr(0, termios.TCSANOW, mode)
        try:
            rallypoint.run(["no-such-program"], workers=1)
        except rallypoint.errors.RunError as error:
            print("hint is", error.hint)
    """
    terminal = Terminal(tmp_path, script, [], marked.env)
    assert "hint is give its path, or put it on PATH" in terminal.end()


def test_a_closed_terminal_ends_the_job(marked: Marked, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, WAITING, marked.command, marked.env)
    marked.wait_until_ready()
    # The reader waits in its read of the master, which keeps it open.
    os.kill(terminal.process.pid, signal.SIGHUP)
    assert terminal.process.wait(timeout=LIMIT) == -signal.SIGHUP
    marked.wait_until_gone()
    assert marked.noted() == ["ready", "asked", "saved"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_python_that_is_killed_takes_its_job_along(marked: Marked, programs: Any, number: signal.Signals) -> None:
    process = programs.start(WAITING, *marked.command, **marked.env)
    marked.wait_until_ready()
    process.send_signal(number)
    assert process.wait(timeout=LIMIT) == -number
    marked.wait_until_gone()
    assert marked.noted() == ["ready", "asked", "saved"], "members have their grace"


def test_a_job_that_stands_still_ends_with_its_python_too(marked: Marked, programs: Any) -> None:
    process = programs.start(
        """
        import sys, rallypoint
        job = rallypoint.start(sys.argv[1:], workers=1, quiet=True)
        print(job.pid, flush=True)
        job.wait()
        """,
        *marked.command,
        **marked.env,
    )
    assert process.stdout is not None
    guard = int(process.stdout.readline())
    marked.wait_until_ready()
    os.kill(guard, signal.SIGSTOP)
    wait_for("the guard to stand still", lambda: f"{guard} (rallypoint) T" in Path(f"/proc/{guard}/stat").read_text())
    process.kill()
    process.wait(timeout=LIMIT)
    marked.wait_until_gone()
    assert marked.noted()[-1] == "saved"


def test_forked_children_do_not_keep_the_job_of_a_killed_python(marked: Marked, programs: Any) -> None:
    """Workers of multiprocessing have all descriptors of their parent."""
    process = programs.start(
        """
        import os, signal, sys, warnings, rallypoint
        # Python tells that a fork beside threads is no good idea, and it is common all the same.
        warnings.simplefilter("ignore")
        job = rallypoint.start(sys.argv[1:], workers=1, quiet=True)
        child = os.fork()
        if child == 0:
            os.close(1)
            os.close(2)
            signal.pause()
        print(child, flush=True)
        job.wait()
        """,
        *marked.command,
        **marked.env,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        marked.wait_until_ready()
        process.kill()
        process.wait(timeout=LIMIT)
        wait_for("the member to have saved", lambda: "saved" in marked.noted())
        wait_for(
            "the child to be left alone",
            lambda: [line.partition(":")[0] for line in marked.living()] == [str(child)],
            now=lambda: str(marked.living()),
        )
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_python_that_ends_by_itself_ends_its_job_first(marked: Marked, programs: Any) -> None:
    script = """
        import atexit, os, signal, sys, rallypoint
        # The first one is called last.
        atexit.register(lambda: print(job.poll()))
        job = rallypoint.start(sys.argv[1:], workers=1)
        while "ready" not in open(os.environ["NOTES"]).read():
            signal.sigtimedwait([signal.SIGUSR1], 0.05)
    """
    process = programs.start(script, *marked.command, **marked.env)
    assert "interrupted (exit code 196)" in programs.end()[0] and process.returncode == 0
    assert not marked.living() and marked.noted() == ["ready", "asked", "saved"]


# A notebook.


class Notebook:
    """A real kernel, as Jupyter runs one."""

    def __init__(self, variables: Dict[str, str]) -> None:
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager()
        self.manager.start_kernel(env={**os.environ, **variables})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)

    def begin(self, cell: str) -> str:
        return self.client.execute(textwrap.dedent(cell))

    def end(self, request: str) -> Tuple[str, str]:
        """What the cell has shown, and how it ended: `ok`, or the name of what it has raised."""
        shown = ""
        while True:
            message = self.client.get_iopub_msg(timeout=LIMIT)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                shown += content["text"]
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                break
        reply = self.client.get_shell_msg(timeout=LIMIT)["content"]
        return shown, reply.get("ename", reply["status"])

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(marked: Marked) -> Iterator[Notebook]:
    notebook = Notebook({name: str(value) for name, value in marked.env.items()})
    yield notebook
    notebook.close()


def test_a_cell_shows_what_members_write_and_can_be_interrupted(notebook: Notebook, marked: Marked) -> None:
    cell = 'import rallypoint\nprint(rallypoint.run(["sh", "-c", "echo from a member"], workers=2).verdict)'
    shown, end = notebook.end(notebook.begin(cell))
    assert end == "ok" and "[worker 0] from a member\n" in shown and "[worker 1] from a member\n" in shown
    assert "success" in shown and "PEAK MEMORY" in shown

    request = notebook.begin(f"rallypoint.run({marked.command!r}, workers=2)")
    marked.wait_until_ready(2)
    notebook.manager.interrupt_kernel()
    shown, end = notebook.end(request)
    assert end == "KeyboardInterrupt"
    assert marked.noted().count("asked") == marked.noted().count("saved") == 2
    shown, end = notebook.end(notebook.begin("print('the kernel lives')"))
    assert (shown, end) == ("the kernel lives\n", "ok")


def test_a_kernel_that_is_killed_takes_its_job_along(notebook: Notebook, marked: Marked) -> None:
    cell = f"import rallypoint\njob = rallypoint.start({marked.command!r}, workers=2)"
    assert notebook.end(notebook.begin(cell))[1] == "ok"
    marked.wait_until_ready(2)
    notebook.manager.shutdown_kernel(now=True)
    marked.wait_until_gone()
    assert marked.noted().count("saved") == 2


# What the pages show.
