"""Waits of the tests: for something that is to come true, and never for ever."""

import time
from collections.abc import Callable

# Nothing should come near it; it only ends a wait that hangs.
LIMIT = 120.0


def wait_for(what: str, found: Callable[[], object], limit: float = LIMIT, now: Callable[[], str] = str) -> None:
    """`now` tells how it is instead, if it does not come true."""
    until = time.monotonic() + limit
    while not found():
        assert time.monotonic() < until, f"waited {limit:.0f} s for {what}\n{now()}"
        time.sleep(0.05)
