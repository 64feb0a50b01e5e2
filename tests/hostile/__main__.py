"""Hostile peers against real jobs.

    python tests/hostile --connections 10000       strangers while a job meets and runs; then somebody in the middle
    python tests/hostile --short                   some of both, always the same ones

Strangers: a job of 50 meets and runs while they come. It must meet in at most twice the undisturbed time (in turns, the
median of several), its leader's memory must stay bounded, it must end as if nobody had come, and no stranger may hear more than a
leader's greeting and a no.

In the middle: a relay meddles with one frame of a member's connection, each frame, each way, each deed in turn. The job must end
in time; either as if nothing had happened, or with the member whose connection it was as the first failure; and nobody
may take a changed word for a true one.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relay import DEEDS, TO_LEADER, TO_MEMBER, Relay

RALLYPOINT = os.environ.get("RALLYPOINT", "target/release/rallypoint")
HERE = Path(__file__).resolve().parent
# What a joiner says before its first frame.
PROOF = 40 + 32
# What a stranger may hear: nothing, a greeting, a greeting and a no.
HARMLESS = {0, 40, 41}
# Beyond what the leader has without strangers.
MOST_MEMORY_KIB = 32 << 10
MEETING_FAILED, LEADER_LOST, MEMBER_LOST = 193, 194, 195
SEAL = "a frame was changed, repeated or out of order"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Agents:
    """A job by address, an agent for each member. Members end when the file `over` is there."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder, self.world, self.port = folder, world, free_port()
        self.key = folder / "key"
        self.key.write_text("1" * 64)
        self.key.chmod(0o600)
        self.started: "list[subprocess.Popen[bytes]]" = []

    def start(self, rank: int, port: "int | None" = None, meet_timeout: int = 60) -> "subprocess.Popen[bytes]":
        until_over = f"touch {self.folder}/up-$RALLYPOINT_RANK; i=0; while [ ! -e {self.folder}/over ] && [ $i -lt 900 ]; do sleep 0.2; i=$((i+1)); done"
        command = [RALLYPOINT, "run", "--workers", str(self.world), "--framework", "plain", "--grace", "2s"]
        command += ["--meet", f"127.0.0.1:{port or self.port}", "--meet-timeout", f"{meet_timeout}s", "--rank", str(rank)]
        foreign = ("RALLYPOINT_", "SLURM", "PMI", "_CONDOR")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        with (self.folder / f"err-{rank}").open("wb") as err:
            agent = subprocess.Popen(
                [*command, "--", "sh", "-c", until_over],
                env={**environ, "RALLYPOINT_KEY_FILE": str(self.key)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        self.started.append(agent)
        return agent

    def wait_for(self, what: str, found: "object", limit: float = 60) -> None:
        until = time.monotonic() + limit
        while not found():  # type: ignore[operator]
            assert time.monotonic() < until, f"waited {limit:.0f} s for {what}\n{self.said(0)[-2000:]}"
            time.sleep(0.005)

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def up(self) -> int:
        return len(list(self.folder.glob("up-*")))

    def said(self, rank: int) -> str:
        return (self.folder / f"err-{rank}").read_text(errors="replace")

    def peak_kib(self) -> int:
        """The most memory that the leader has had: its guard's child."""
        guard = self.started[0].pid
        [agent] = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
        [line] = [line for line in Path(f"/proc/{agent}/status").read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1])

    def over(self) -> "list[int]":
        (self.folder / "over").touch()
        return [agent.wait(timeout=90) for agent in self.started]

    def end(self) -> None:
        for agent in self.started:
            if agent.poll() is None:
                agent.terminate()
        for agent in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(timeout=20)


def meet(world: int, connections: int, seed: int) -> "tuple[float, int, dict[str, dict[str, int]]]":
    """How long the others take to meet a leader that is there, its memory, and what strangers heard."""
    with tempfile.TemporaryDirectory() as name:
        agents = Agents(Path(name), world)
        crowd = None
        # Somebody listens to the first member, and has its proof.
        relay = Relay(agents.port, "none", TO_LEADER, -1)
        try:
            agents.start(0)
            agents.wait_for("the leader", agents.listens)
            agents.start(1, relay.port)
            agents.wait_for("a proof", lambda: len(relay.recorded[TO_LEADER]) >= PROOF)
            heard = agents.folder / "heard"
            if connections:
                recorded = agents.folder / "recorded"
                recorded.write_bytes(relay.recorded[TO_LEADER][:PROOF])
                words = [agents.port, connections, seed, heard, recorded]
                crowd = subprocess.Popen([sys.executable, str(HERE / "crowd.py"), *map(str, words)])
                time.sleep(1)  # until some hundreds are there
            began = time.monotonic()
            for rank in range(2, world):
                agents.start(rank)
            agents.wait_for("all members", lambda: agents.up() == world)
            took = time.monotonic() - began
            if crowd:
                assert crowd.wait(timeout=400) == 0
            peak = agents.peak_kib()
            codes = agents.over()
            assert codes == [0] * world, f"{codes}\n{agents.said(0)[-3000:]}"
            lines = agents.said(0).count("\n")
            assert lines < 150 + world, f"{lines} lines were said"
            return took, peak, json.loads(heard.read_text()) if crowd else {}
        finally:
            agents.end()
            relay.close()
            if crowd and crowd.poll() is None:
                crowd.kill()
                crowd.wait()


def strangers(world: int, connections: int, rounds: int, judge_time: bool) -> bool:
    calm, crowded = [], []
    each = connections // rounds
    done: "dict[str, int]" = {}
    for number in range(rounds):
        calm.append(meet(world, 0, number))
        crowded.append(meet(world, each, number))
        for habit, count in crowded[-1][2]["done"].items():
            done[habit] = done.get(habit, 0) + count
    sizes = {int(size) for _, _, found in crowded for one in found["heard"].values() for size in one}
    before, after = (statistics.median(took for took, _, _ in these) for these in (calm, crowded))
    memory = max(peak for _, peak, _ in crowded) - max(peak for _, peak, _ in calm)
    print(f"{sum(done.values())} strangers at jobs of {world}: {', '.join(f'{count} {habit}' for habit, count in sorted(done.items()))}")
    spread = [" ".join(f"{took:.2f}" for took, _, _ in these) for these in (calm, crowded)]
    print(f"meeting: {before:.2f} s undisturbed ({spread[0]}), {after:.2f} s with them ({spread[1]}), {after / before:.2f} times")
    print(f"memory of the leader: {max(peak for _, peak, _ in crowded)} KiB at most, {memory} KiB more than undisturbed")
    print(f"what a stranger heard: {', '.join(map(str, sorted(sizes)))} bytes")
    wrong = []
    if sizes - HARMLESS:
        wrong.append(f"a stranger heard more than a greeting and a no: {sizes - HARMLESS} bytes")
    if memory > MOST_MEMORY_KIB:
        wrong.append(f"{memory} KiB of memory for strangers")
    if judge_time and after > 2 * before:
        wrong.append("the meeting took more than twice as long")
    if sum(done.values()) < connections * 0.99:
        wrong.append(f"only {sum(done.values())} of {connections} strangers came")
    return report(wrong)


def report(wrong: "list[str]") -> bool:
    for line in wrong:
        print(f"VIOLATION: {line}")
    return not wrong


def in_the_middle(deed: str, direction: str, number: int) -> "tuple[str, list[str]]":
    """One meddled frame: what came of it, and what is wrong with that."""
    with tempfile.TemporaryDirectory() as name:
        agents = Agents(Path(name), 2)
        relay = Relay(agents.port, deed, direction, number)
        try:
            began = time.monotonic()
            leader = agents.start(0, meet_timeout=12)
            agents.wait_for("the leader", agents.listens)
            member = agents.start(1, relay.port, meet_timeout=12)
            until = time.monotonic() + 3
            while agents.up() < 2 and not relay.done.is_set() and time.monotonic() < until:
                time.sleep(0.02)
            (agents.folder / "over").touch()
            # The meeting's limit, the silence of a lost one, the grace, and 5 s.
            limit = 12 + 15 + 2 + 5 + 10
            codes = []
            for agent in (leader, member):
                try:
                    codes.append(agent.wait(timeout=max(0.1, began + limit - time.monotonic())))
                except subprocess.TimeoutExpired:
                    return f"{deed} {direction} {number}", [f"still there after {limit} s\n{agents.said(0)}\n{agents.said(1)}"]
            took = time.monotonic() - began
        finally:
            agents.end()
            relay.close()
        said = agents.said(0), agents.said(1)
    reached = relay.done.is_set()
    line = f"{deed:12} {direction} {number}: {codes[0]:3} {codes[1]:3} {took:5.1f} s{'' if reached else ', no such frame'}"
    return line, judged(deed, direction, codes, said, relay, reached)


def judged(
    deed: str, direction: str, codes: "list[int]", said: "tuple[str, str]", relay: Relay, reached: bool
) -> "list[str]":
    wrong = []
    leader, member = codes
    if not reached and codes != [0, 0]:
        wrong.append(f"nothing was done, and they ended with {codes}")
    if leader not in (0, MEETING_FAILED, MEMBER_LOST):
        wrong.append(f"the leader ended with {leader}")
    if member not in (0, MEETING_FAILED, LEADER_LOST, MEMBER_LOST):
        wrong.append(f"the member's agent ended with {member}")
    if leader == MEMBER_LOST and "first failure: worker 1" not in said[0]:
        wrong.append("the leader does not name worker 1")
    # When the last member's end is heard the job is over, and the leader says goodbye; whether that is heard, it cannot know.
    last_word = relay.number + 1 >= relay.frames[direction]
    if leader == 0 and member != 0 and not last_word:
        wrong.append(f"the leader took the job for a success, and the member's agent ended with {member}")
    if leader != 0 and member == 0:
        wrong.append(f"the member's agent took the job for a success, and the leader ended with {leader}")
    reader = said[0] if (direction == TO_LEADER) != (deed == "reflect") else said[1]
    seen_there = deed in ("flip-content", "flip-tag", "invent", "repeat")
    if reached and seen_there and leader != 0 and reader is said[0] and SEAL not in reader:
        wrong.append("the leader does not say that a frame was changed")
    if "panicked" in "".join(said):
        wrong.append("a panic")
    return [f"{text}\n{said[0]}\n{said[1]}" for text in wrong]


def middle(cases: "list[tuple[str, str, int]]", at_a_time: int) -> bool:
    fine = True
    with ThreadPoolExecutor(at_a_time) as pool:
        for line, wrong in pool.map(lambda case: in_the_middle(*case), cases):
            print(line, flush=True)
            fine &= report(wrong)
    print(f"{len(cases)} frames were meddled with")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description="hostile peers against real jobs")
    parser.add_argument("--connections", type=int, default=10_000, help="of strangers, in all")
    parser.add_argument("--short", action="store_true", help="some of both, always the same ones")
    options = parser.parse_args()
    if options.short:
        fine = strangers(10, 600, 1, judge_time=False)
        cases = [("flip-content", TO_LEADER, 1), ("drop", TO_LEADER, 2), ("repeat", TO_MEMBER, 1), ("reflect", TO_LEADER, 0)]
        fine &= middle([*cases, ("invent", TO_MEMBER, 0), ("cut", TO_MEMBER, 2)], 3)
    else:
        fine = strangers(50, options.connections, 5, judge_time=True)
        frames = [(direction, number) for number in range(3) for direction in (TO_LEADER, TO_MEMBER)]
        fine &= middle([(deed, *frame) for deed in DEEDS for frame in frames], 3)
    print("hostile peers: " + ("all held" if fine else "VIOLATIONS, above"))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
