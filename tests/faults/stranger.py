"""A hostile stranger at a leader's port: `stranger.py HOST PORT HABIT SEED`. Bounded: some seconds, some hundred connections."""

import contextlib
import random
import socket
import sys
import time

GREETING = b"RALLYPT4"
HABITS = ("noise", "half", "many", "slow", "huge", "http")


def connect(host: str, port: int) -> socket.socket:
    one = socket.create_connection((host, port), timeout=2)
    one.settimeout(2)
    return one


def main() -> None:
    host, port, habit, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    draw = random.Random(seed)
    until = time.monotonic() + 4
    kept: list[socket.socket] = []
    for number in range(300 if habit == "many" else 60):
        if time.monotonic() > until:
            break
        with contextlib.suppress(OSError):
            one = connect(host, port)
            if habit == "noise":
                one.sendall(draw.randbytes(draw.randrange(1, 5000)))
                one.close()
            elif habit == "half":
                # As one that speaks our language, and then not.
                one.sendall(GREETING + draw.randbytes(draw.randrange(0, 33)))
                if draw.random() < 0.5:
                    one.recv(64)
                    one.sendall(draw.randbytes(draw.randrange(0, 33)))
                one.close()
            elif habit == "many":
                kept.append(one)
            elif habit == "slow":
                kept.append(one)
                for old in kept:
                    with contextlib.suppress(OSError):
                        old.send(draw.choice([GREETING[:1], b"R", b"\0"]))
                time.sleep(0.05)
            elif habit == "huge":
                one.sendall(GREETING + bytes(32))
                one.sendall(b"\xff" * 70_000)
                kept.append(one)
            else:
                one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                one.recv(100)
                one.close()
        if number % 20 == 19:
            time.sleep(0.05)
    time.sleep(max(0.0, min(1.0, until - time.monotonic())))


if __name__ == "__main__":
    main()
