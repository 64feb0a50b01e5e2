"""Strangers at a leader's port, many of them: `crowd.py PORT CONNECTIONS SEED FILE`.

Each does one thing that a stranger may do. What they heard goes into FILE, as JSON: how many did what, and the sizes of all
that a leader has said to them. Bounded: nobody waits for more than some seconds, and at most 400 are there at a time.
"""

import contextlib
import json
import random
import selectors
import socket
import sys
import time
from pathlib import Path

MAGIC = b"RALLYPT4"
HABITS = ("silent", "slow", "huge", "wrong-key", "replayed", "half-open", "noise", "hang-up")
AT_A_TIME = 400
# A leader gives a stranger 5 s.
LONGEST = 8.0


class Stranger:
    def __init__(self, port: int, habit: str, recorded: bytes, draw: random.Random) -> None:
        self.habit, self.recorded, self.draw = habit, recorded, draw
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", port))
        self.heard = b""
        self.until = time.monotonic() + (LONGEST if habit in ("silent", "slow", "half-open") else 3)
        self.next = 0.0
        self.sent = 0
        self.words = self.first_words()

    def first_words(self) -> bytes:
        greeting = MAGIC + self.draw.randbytes(32)
        match self.habit:
            case "slow":
                return greeting + bytes(32)
            case "huge":
                return greeting + self.draw.randbytes(32) + b"\xff\xff\xff\xff" + bytes(200_000)
            case "wrong-key":
                return greeting + self.draw.randbytes(32)
            case "replayed":
                return self.recorded
            case "half-open":
                return greeting
            case "noise":
                return self.draw.randbytes(self.draw.randrange(1, 3000))
        return b""

    def act(self, now: float) -> bool:
        """Says what is next. False when it is done."""
        try:
            if self.habit == "slow":
                if now >= self.next and self.sent < len(self.words):
                    self.sent += self.socket.send(self.words[self.sent : self.sent + 1])
                    self.next = now + 0.1
            elif self.sent < len(self.words):
                self.sent += self.socket.send(self.words[self.sent :])
        except BlockingIOError:
            pass
        except OSError:
            return False
        if self.habit == "hang-up":
            return False
        return now < self.until

    def hear(self) -> bool:
        """False when the other side has hung up."""
        try:
            part = self.socket.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.heard += part
        return bool(part)


def main() -> None:
    port, connections, seed, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    draw = random.Random(seed)
    recorded = Path(sys.argv[5]).read_bytes() if len(sys.argv) > 5 else b""
    there: dict[int, Stranger] = {}
    chooser = selectors.DefaultSelector()
    done: dict[str, int] = {}
    sizes: dict[str, dict[int, int]] = {}
    begun, ended = 0, time.monotonic() + 300
    while (begun < connections or there) and time.monotonic() < ended:
        # Not all at once: others on this machine have work to do.
        for _ in range(20):
            if begun < connections and len(there) < AT_A_TIME:
                with contextlib.suppress(OSError):
                    one = Stranger(port, draw.choice(HABITS), recorded, draw)
                    there[one.socket.fileno()] = one
                    chooser.register(one.socket, selectors.EVENT_READ)
                begun += 1
        now = time.monotonic()
        gone = {key.fd for key, _ in chooser.select(timeout=0.02) if not there[key.fd].hear()}
        gone |= {number for number, one in there.items() if not one.act(now)}
        for number in gone:
            one = there.pop(number)
            chooser.unregister(one.socket)
            one.socket.close()
            done[one.habit] = done.get(one.habit, 0) + 1
            heard = sizes.setdefault(one.habit, {})
            heard[len(one.heard)] = heard.get(len(one.heard), 0) + 1
    file.write_text(json.dumps({"begun": begun, "done": done, "heard": sizes}))


if __name__ == "__main__":
    main()
