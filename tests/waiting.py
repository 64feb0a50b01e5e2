"""Waits of the tests: for something that is to come true, and never for ever."""

import subprocess
import time
from collections.abc import Callable, Iterable

# Nothing should come near it; it only ends a wait that hangs.
LIMIT = 120.0


def wait_for(
    what: str,
    found: Callable[[], object],
    limit: float = LIMIT,
    now: Callable[[], str] = str,
    *,
    running: "Iterable[subprocess.Popen]" = (),
    pause: float = 0.05,
) -> None:
    """`now` tells how it is instead, if it does not come true or one that should be `running` has ended."""
    until = time.monotonic() + limit
    while not found():
        ended = [process.returncode for process in running if process.poll() is not None]
        assert not ended, f"ended with {ended[0]} before {what}\n{now()}"
        assert time.monotonic() < until, f"waited {limit:.0f} s for {what}\n{now()}"
        time.sleep(pause)
