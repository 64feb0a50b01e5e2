"""Whether the harness sees anything: the same case with a rallypoint that breaks one promise, and it must be noticed."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from setup import RALLYPOINT

CASE = "1.1/here/nothing"
# What stands before the real command, and the invariant that must notice.
SABOTAGES = {
    "nobody-is-left": "(setsid sleep 60 </dev/null >/dev/null 2>&1 &)",
    "no-file-is-left": ": > .rallypoint-left.tmp",
    "no-panic": "echo \"thread 'main' panicked at somewhere\" >&2",
    "key-is-kept": "printf '1%.0s' $(seq 64) >&2",
    "talk-is-bounded": "for i in $(seq 200); do echo rallypoint: $i >&2; done",
    "code-is-allowed": "trap 'exit 5' INT TERM; sleep 2; exit 5",
}


def noticed(folder: Path, name: str, lines: str) -> "subprocess.Popen[str]":
    command = folder / name
    command.write_text(f'#!/bin/bash\n{lines}\nexec "{RALLYPOINT}" "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    here = os.path.dirname(os.path.abspath(__file__))
    environ = os.environ | {"RALLYPOINT": str(command)}
    return subprocess.Popen([sys.executable, here, "--case", CASE], stdout=subprocess.PIPE, text=True, env=environ)


def main() -> int:
    missed = []
    with tempfile.TemporaryDirectory(prefix="rallypoint-sabotage-") as folder:
        running = {name: noticed(Path(folder), name, lines) for name, lines in SABOTAGES.items()}
        for name, child in running.items():
            out, _ = child.communicate(timeout=300)
            if child.returncode == 0 or f"VIOLATION  {name}:" not in out:
                missed.append(name)
                print(f"a rallypoint that breaks {name} was not noticed:\n{out}")
    print(f"{len(SABOTAGES) - len(missed)} sabotages noticed, {len(missed)} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
