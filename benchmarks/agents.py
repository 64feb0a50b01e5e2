"""What idle agents cost: many of them on one machine, each with a member that never listens (`sleep`).

    python benchmarks/agents.py target/release/rallypoint [AGENTS]

All meet in one directory and stay connected. Prints the CPU time that guards and agents take together, as a share of
one core, in the first 20 seconds after all have started, in the following 20, and a minute later.
"""

import os
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: "set[int]") -> float:
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def children(parents: "set[int]") -> "set[int]":
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) in parents:
                        found.add(int(entry))
            except OSError:
                continue
    return found


def main() -> int:
    command, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as folder:
        run = [command, "run", "--workers", str(count), "--meet", folder, "--quiet", "--framework", "plain"]
        guards = [
            subprocess.Popen([*run, "--", "sleep", "130"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(count)
        ]
        began = time.monotonic()
        pids = {guard.pid for guard in guards}
        agents = children(pids)
        while len(children(agents)) < count:
            if time.monotonic() - began > 60:
                print(f"only {len(children(agents))} of {count} members have started", file=sys.stderr)
                return 1
            time.sleep(0.5)
            agents = children(pids)
        print(f"{count} agents: all members run after {time.monotonic() - began:.1f} s")
        everyone = pids | agents
        for name, pause, span in [("at once", 0, 20), ("then", 0, 20), ("after a minute", 20, 20)]:
            time.sleep(pause)
            before, at = cpu_seconds(everyone), time.monotonic()
            time.sleep(span)
            share = (cpu_seconds(everyone) - before) / (time.monotonic() - at)
            print(f"{name:16} {share * 100:6.2f} % of a core")
        codes = {guard.wait(timeout=120) for guard in guards}
        print(f"exit codes: {sorted(codes)}")
        return 0 if codes == {0} else 1


if __name__ == "__main__":
    sys.exit(main())
