"""A campaign of random faults against `rallypoint run`: `python3 tests/faults --faults 500 --seed 7`.

What is thrown at it and what must hold is in docs/design/faults.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

import htcondor
import machine
import slurm
from cases import Case, campaign, can_mount, faults_in
from play import Result, play
from setup import CONDOR, PLAIN, RALLYPOINT, SLURM, Mode

# No case comes near it; one that does is a fault of its own.
LONGEST = 300.0


def available(wanted: str) -> list[Mode]:
    """The modes to play in; `all` is those that this machine has."""
    if wanted == "plain":
        return list(PLAIN)
    if wanted != "all":
        return [Mode(name) for name in wanted.split(",")]
    modes = list(PLAIN)
    if can_mount():
        modes.append(Mode.NETWORK)
    if slurm.is_there():
        modes += SLURM
    if htcondor.is_there():
        modes += CONDOR
    return modes


def faults_of(mode: Mode, root: bool) -> list[str]:
    if mode in SLURM:
        return slurm.faults(mode)
    return htcondor.FAULTS if mode in CONDOR else faults_in(mode, root)


def player(mode: Mode) -> Callable[[Case], Result]:
    if mode in SLURM:
        return slurm.play
    return htcondor.play if mode in CONDOR else play


def play_alone(name: str) -> int:
    """One case in this process, which adopts whatever escapes; the result as a line of JSON."""
    machine.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A shell starts its background jobs with some of these ignored, and then so would every agent.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    case = Case.parse(name)
    print(json.dumps(asdict(player(case.mode)(case))), flush=True)
    return 0


def line(number: int, count: int, result: Result) -> str:
    verdict = "ok" if not result.violations else f"FAILED {result.violations[0].splitlines()[0]}"
    codes = ",".join(map(str, result.codes))
    words = [f"{number:>4}/{count}", result.case, result.moment, f"{result.seconds:5.1f} s", f"[{codes}]"]
    return f"{' '.join(words)} ({result.members}) {result.note}: {verdict}"


def collect(case: Case, child: "subprocess.Popen[str]", began: float) -> Result:
    out, _ = child.communicate()
    lines = out.strip().splitlines()
    if child.returncode == 0 and lines:
        return Result(**json.loads(lines[-1]))
    broken = f"the harness itself: case ended with {child.returncode}"
    return Result(str(case), seconds=time.monotonic() - began, violations=[broken], report=f"case       {case}\n{out[-4000:]}")


def play_all(cases: list[Case], jobs: int) -> list[Result]:
    """Several at a time, each in a process of its own."""
    todo, results = list(cases), []
    running: "list[tuple[Case, subprocess.Popen[str], float]]" = []
    try:
        while todo or running:
            while todo and len(running) < jobs:
                case = todo.pop(0)
                command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "--alone", str(case)]
                child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                running.append((case, child, time.monotonic()))
            for entry in list(running):
                case, child, began = entry
                if child.poll() is None and time.monotonic() - began > LONGEST:
                    child.terminate()
                if child.poll() is not None:
                    running.remove(entry)
                    result = collect(case, child, began)
                    results.append(result)
                    print(line(len(results), len(cases), result), flush=True)
                    if result.report:
                        print(f"{'=' * 100}\n{result.report}\n{'=' * 100}", flush=True)
            time.sleep(0.05)
    finally:
        for _, child, _ in running:
            child.terminate()
            child.wait()
    return results


def table(results: list[Result]) -> str:
    """Passed and failed, by fault and mode."""
    count: Counter[tuple[str, str, bool]] = Counter()
    for result in results:
        case = Case.parse(result.case)
        count[case.fault, case.mode.value, not result.violations] += 1
    modes = list(dict.fromkeys(mode for _, mode, _ in sorted(count)))
    faults = sorted({fault for fault, _, _ in count})
    width = max(len(fault) for fault in faults)
    rows = [f"{'FAULT':<{width}}  " + "  ".join(f"{mode:>17}" for mode in modes)]
    for fault in faults:
        cells = []
        for mode in modes:
            passed, failed = count[fault, mode, True], count[fault, mode, False]
            cells.append("-" if not passed + failed else f"{passed}" if not failed else f"{passed} ({failed} bad)")
        rows.append(f"{fault:<{width}}  " + "  ".join(f"{cell:>17}" for cell in cells))
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the campaign's; the clock's if not given")
    parser.add_argument("--modes", default="all", help=f"all, plain, or some of {','.join(mode.value for mode in Mode)}")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--case", default="", help="one case, by its name, once more")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        return play_alone(args.alone)
    if not os.access(RALLYPOINT, os.X_OK):
        parser.error(f"there is no {RALLYPOINT}; hint: make build, or set RALLYPOINT")
    if args.case:
        cases = [Case.parse(args.case)]
    else:
        modes = available(args.modes)
        # `plain` is the same for everybody.
        root = args.modes != "plain" and can_mount()
        faults = {mode: [fault for fault in faults_of(mode, root) if args.only in fault] for mode in modes}
        cases = campaign(args.seed, args.faults, modes, faults)
    if not cases:
        parser.error("no such fault in these modes")
    print(f"{len(cases)} faults, seed {args.seed}, {RALLYPOINT}", flush=True)
    results = play_all(cases, args.jobs)
    failed = sum(bool(result.violations) for result in results)
    print(table(results))
    for result in results:
        if result.violations:
            print(f"make faults CASE={result.case}")
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())

