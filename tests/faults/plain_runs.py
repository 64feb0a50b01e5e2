"""Many plain runs beside busy loops, none of which may hang: `plain_runs.py RUNS`, or `make plain-runs RUNS=2000`.

Nothing is done to them. Each has one to eight members that end at once, all below one agent or, one in ten, with an agent
each that meet in a directory; each must end with 0 within LIMIT and leave nothing.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from setup import RALLYPOINT

# Nothing comes near it: a run takes some hundredths of a second.
LIMIT = 60.0
HOGS = 4


def run(number: int, draw: random.Random, folder: Path) -> "tuple[float, str]":
    """How long it took, and what is wrong."""
    members = draw.randrange(1, 9)
    meets = number % 10 == 9
    meeting = folder / f"meeting-{number}"
    place = ["--meet", str(meeting)] if meets else []
    command = [RALLYPOINT, "run", "--workers", str(members), "--quiet", "--framework", "plain", *place, "--", "true"]
    began = time.monotonic()
    agents = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(members if meets else 1)
    ]
    wrong = ""
    for agent in agents:
        try:
            _, said = agent.communicate(timeout=max(0.1, began + LIMIT - time.monotonic()))
            if agent.returncode != 0:
                wrong = f"ended with {agent.returncode}: {said.decode(errors='replace')[-1000:]}"
        except subprocess.TimeoutExpired:
            wrong = f"still runs after {LIMIT:.0f} s"
            agent.terminate()
            agent.communicate(timeout=30)
    left = [file.name for file in meeting.glob("*")] if meets else []
    return time.monotonic() - began, wrong or (f"left {left}" if left else "")


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    draw = random.Random(runs)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
    times, violations = [], 0
    try:
        with tempfile.TemporaryDirectory() as name:
            for number in range(runs):
                took, wrong = run(number, draw, Path(name))
                times.append(took)
                if wrong:
                    violations += 1
                    print(f"VIOLATION: run {number}: {wrong}", flush=True)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    times.sort()
    median, slow, worst = times[len(times) // 2], times[len(times) * 99 // 100], times[-1]
    print(f"{runs} runs beside {HOGS} busy loops on {os.cpu_count()} cores, {violations} violations")
    print(f"seconds: median {median:.2f}, 99 % within {slow:.2f}, longest {worst:.2f}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
