"""A job that runs: its agents, what they wrote, and the files by which its members tell how they are."""

import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import machine
from network import Network
from places import small_folder, unmount
from setup import RALLYPOINT, Mode, Setup, Stream

HERE = Path(__file__).resolve().parent
# Nothing should come near it; it only ends a wait that hangs.
LIMIT = 60.0
# Where agents make their private folders if they are not told.
SHARED_TMP = ("/dev/shm", "/tmp")


@dataclass
class Agent:
    """One `rallypoint run`, as the harness has started it: its process is the guard."""

    index: int
    process: "subprocess.Popen[bytes]"
    out: Path
    err: Path
    started: float
    pipes: list[int]
    ended: float | None = None
    # The pid of the agent proper, once it was seen.
    inner: int | None = None

    @property
    def guard(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        self.agent()
        code = self.process.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        return code

    def agent(self) -> int | None:
        """The guard's child of the same program. Its other children are orphans of the job."""
        if self.inner is None:
            with contextlib.suppress(OSError):
                program = os.readlink(f"/proc/{self.guard}/exe")
                for pid in Path(f"/proc/{self.guard}/task/{self.guard}/children").read_text().split():
                    # Between fork and exec a member looks like its agent, but is never a child of the guard.
                    if os.readlink(f"/proc/{pid}/exe") == program:
                        self.inner = int(pid)
        return self.inner

    def text(self, file: Path) -> str:
        return file.read_text(errors="replace") if file.exists() else ""

    @property
    def said(self) -> str:
        return self.text(self.err)


class Job:
    def __init__(self, setup: Setup, folder: Path, tag: str) -> None:
        self.setup = setup
        self.folder = folder
        self.tag = tag
        self.mark = f"FAULT_MARK={tag}"
        self.agents: list[Agent] = []
        self.network: Network | None = None
        self.meeting = folder / "meeting"
        self.key_seen = ""
        # They show what terminals were sent.
        self.readers: "list[subprocess.Popen[bytes]]" = []
        self.undo: list[Callable[[], object]] = []
        folder.mkdir(parents=True)
        (folder / "tmp").mkdir()
        lines = [f"{rank} {habit.name} {habit.number}\n" for rank, habit in enumerate(setup.habits)]
        (folder / "habits").write_text("".join(lines))
        if setup.mode is Mode.NETWORK:
            self.network = Network(tag, setup.world + 1)
            self.undo.append(self.network.remove)
        for small in [self.meeting] * setup.small_meeting + [folder / "full"] * (setup.log_dir == "full"):
            small_folder(small)
            self.undo.append(lambda small=small: unmount(small))  # type: ignore[misc]
        self.address = f"{self.network.address(0) if self.network else '127.0.0.1'}:{free_port()}"
        # By agent, where it is not the leader's own.
        self.addresses = {index: f"127.0.0.1:{self.slow_line(index)}" for index in sorted(setup.slow_lines)}
        for name, secret in (("key", "1"), ("wrong-key", "2")):
            (folder / name).write_text(secret * 64)
            (folder / name).chmod(0o600)

    # Starting

    def slow_line(self, index: int) -> int:
        """The port of a relay to the leader. It listens before any agent is there, which would take it otherwise."""
        leader = self.address.rsplit(":", 1)[1]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            fd, port = listener.fileno(), int(listener.getsockname()[1])
            words = [sys.executable, str(HERE / "slow_line.py"), str(fd), leader, f"{self.tag}-{index}"]
            nothing = subprocess.DEVNULL
            relay = subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[fd])
        self.undo.append(lambda: (relay.kill(), relay.wait()))
        return port

    def command(self, index: int) -> list[str]:
        setup = self.setup
        command = [RALLYPOINT, "run", *setup.roles, "--grace", f"{setup.grace}s", *setup.options]
        if setup.mode is not Mode.HERE:
            by_address = setup.mode is Mode.ADDRESS or (self.network is not None and setup.own_tmp)
            address = self.addresses.get(index, self.address)
            command += ["--meet", address if by_address else str(self.meeting)]
            command += ["--meet-timeout", f"{setup.meet_timeout}s"]
            if setup.ranked:
                command += ["--rank", str(index)]
        if setup.log_dir:
            command += ["--log-dir", setup.log_dir]
        python = [sys.executable, "-S", "-E", str(HERE / "member.py"), str(self.folder)]
        prefix = self.network.inside(index) if self.network else []
        return [*prefix, *command, "--", *python]

    def environ(self, index: int) -> dict[str, str]:
        foreign = ("RALLYPOINT", "SLURM", "PMI", "_CONDOR", "TMPDIR")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        name, _, value = self.mark.partition("=")
        environ |= {name: value, "FAULT_AGENT": str(index)}
        key = "wrong-key" if index in self.setup.wrong_key else "key"
        if self.setup.mode in (Mode.ADDRESS, Mode.NETWORK):
            environ["RALLYPOINT_KEY_FILE"] = str(self.folder / key)
        if self.setup.own_tmp:
            environ["TMPDIR"] = str(self.folder / "tmp")
        return environ

    def start(self, rank: int) -> Agent:
        """One more agent; `rank` is its place among those of the setup, of which it may be a second one."""
        setup = self.setup
        number = len(self.agents)
        out, err = self.folder / f"out-{number}", self.folder / f"err-{number}"
        pipes: list[int] = []
        on_terminal = setup.stderr.get(number) in (Stream.TERMINAL, Stream.HELD)
        if on_terminal:
            stdout = stderr = self.terminal(setup.stderr[number], err, pipes)
        else:
            stdout = self.stream(setup.stdout.get(number, Stream.FILE), out, pipes)
            stderr = self.stream(setup.stderr.get(number, Stream.FILE), err, pipes)
        closed = [
            fd for fd, kinds in ((1, setup.stdout), (2, setup.stderr)) if kinds.get(number) is Stream.CLOSED
        ]
        open_files = setup.open_files.get(number)

        def before_exec() -> None:
            if on_terminal:
                os.setsid()
                fcntl.ioctl(2, termios.TIOCSCTTY, 0)
            else:
                # As a shell does it: a group of its own, which Ctrl-Z can stop.
                os.setpgid(0, 0)
            if open_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
            for fd in closed:
                os.close(fd)

        process = subprocess.Popen(
            self.command(rank),
            cwd=self.folder,
            env=self.environ(number),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            preexec_fn=before_exec,
        )
        for fd in {stdout, stderr}:
            os.close(fd)
        agent = Agent(number, process, out, err, time.monotonic(), pipes)
        self.agents.append(agent)
        return agent

    def stream(self, kind: Stream, file: Path, pipes: list[int]) -> int:
        if kind is Stream.UNREAD:
            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            os.set_blocking(writer, False)
            with contextlib.suppress(BlockingIOError):
                while os.write(writer, b"full\n"):
                    pass
            with contextlib.suppress(BlockingIOError):
                while os.write(writer, b"x"):
                    pass
            os.set_blocking(writer, True)
            pipes.append(reader)
            return writer
        path = "/dev/full" if kind is Stream.FULL else str(file)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def terminal(self, kind: Stream, file: Path, pipes: list[int]) -> int:
        ours, theirs = os.openpty()
        if kind is Stream.TERMINAL:
            modes = termios.tcgetattr(theirs)
            modes[3] |= termios.TOSTOP
            termios.tcsetattr(theirs, termios.TCSANOW, modes)
            with file.open("wb") as shown:
                self.readers.append(subprocess.Popen(["cat"], stdin=ours, stdout=shown, stderr=subprocess.DEVNULL))
        else:
            termios.tcflow(theirs, termios.TCOOFF)
        pipes.append(ours)
        return theirs

    # Looking

    def ups(self) -> dict[int, tuple[int, str, int, float]]:
        """The ranks that run: agent, address, session, since when."""
        found = {}
        for file in self.folder.glob("up-*"):
            agent, address, _pid, session = file.read_text().split()
            found[int(file.name[3:])] = (int(agent), address, int(session), file.stat().st_mtime)
        return found

    def someone_ended(self) -> bool:
        return any([agent.poll() is not None for agent in self.agents])

    def wait(self, found: Callable[[], object], limit: float = LIMIT) -> bool:
        """False if somebody has ended or the time is over before it came true."""
        until = time.monotonic() + limit
        while not found():
            if self.someone_ended() or time.monotonic() > until:
                return bool(found())
            time.sleep(0.02)
        return True

    def read_on(self) -> None:
        """Until the terminals have shown all."""
        for reader in self.readers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                reader.wait(timeout=2)

    def wait_for_all(self, until: float) -> list[Agent]:
        """Waits until all agents have ended; those that have not by then."""
        while True:
            alive = [agent for agent in self.agents if agent.poll() is None]
            if not alive or time.monotonic() > until:
                return alive
            self.look_for_key()
            time.sleep(0.05)

    def is_led(self) -> bool:
        """Whether the first agent has published itself."""
        port = self.port()
        if self.setup.mode is Mode.HERE or port is None:
            return self.setup.mode is Mode.HERE
        return listens(self.agents[0].guard, port)

    def has_come(self, count: int) -> bool:
        return f"{count} of {self.setup.world} members have come" in self.agents[0].said

    def processes(self) -> set[int]:
        """Everything of the job: below this harness, or with the job's mark."""
        own = {process.pid for process in machine.below(os.getpid()) if machine.carries(process.pid, self.mark)}
        sessions = {session for _, _, session, _ in self.ups().values()}
        in_sessions = {pid for pid, one in machine.processes().items() if one.session in sessions and one.is_running}
        return own | machine.marked(self.mark) | in_sessions

    def members(self, agent: Agent) -> list[int]:
        """The members that an agent has started: its children."""
        inner = agent.agent()
        return [one.pid for one in machine.processes().values() if inner and one.parent == inner and one.is_running]

    def port(self) -> int | None:
        """Where the leader listens."""
        if self.setup.mode is Mode.ADDRESS or self.network:
            if not list(self.meeting.glob("*.meet")):
                return int(self.address.rsplit(":", 1)[1])
        for file in self.meeting.glob("*.meet"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                contact = json.loads(file.read_text())
                # One that has replaced another stands behind it.
                while (behind := self.meeting / f".rallypoint-takeover-{contact['id']}").exists():
                    contact = json.loads(behind.read_text())
                return int(contact["port"])
        return None

    def look_for_key(self) -> None:
        if not self.key_seen:
            for file in self.meeting.glob("*.meet"):
                with contextlib.suppress(OSError, ValueError):
                    self.key_seen = json.loads(file.read_text()).get("key") or ""

    # Ending

    def tell(self, agent: Agent, number: int) -> None:
        if agent.poll() is None:
            machine.send(agent.guard, number)

    def end(self) -> list[str]:
        """Ends what is left, by pid. What was left, for the report."""
        (self.folder / "halt").touch()
        left = self.processes()
        text = machine.tree(left)
        until = time.monotonic() + 10
        while left and time.monotonic() < until:
            machine.end(left)
            time.sleep(0.05)
            left = self.processes()
        for agent in self.agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(timeout=5)
            for pipe in agent.pipes:
                os.close(pipe)
            agent.pipes.clear()
        for reader in self.readers:
            reader.kill()
            reader.wait()
        return text.splitlines()

    def remove(self) -> None:
        for step in reversed(self.undo):
            step()
        self.undo.clear()
        for agent in self.agents:
            for parent in SHARED_TMP:
                for folder in Path(parent).glob(f"rallypoint-{agent.guard}-*"):
                    shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def listens(pid: int, port: int) -> bool:
    """Whether somebody listens on a port in the network of a process."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == "0A" and local.endswith(wanted):
                    return True
    return False


STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
