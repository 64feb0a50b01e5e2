"""A slow line: `slow_line.py LISTENER PORT SEED` passes on what comes to a socket that it was given to a port, late.

Bytes stay in their order, as TCP has it: a lost packet is one that is late, with all behind it. Ends with its parent.
"""

import contextlib
import ctypes
import random
import signal
import socket
import sys
import threading
import time

# Seconds that bytes are kept at most.
SLOWEST = 1.5


def pump(source: socket.socket, target: socket.socket, draw: random.Random) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(draw.choice([1, 7, 100, 4096])):
            time.sleep(draw.uniform(0.5, SLOWEST) if draw.random() < 0.03 else draw.uniform(0, 0.02))
            target.sendall(part)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    listener, there, draw = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), random.Random(sys.argv[3])
    # Bounded as everything here; nobody connects so often.
    for _ in range(1000):
        member, _ = listener.accept()
        try:
            leader = socket.create_connection(("127.0.0.1", there), timeout=5)
        except OSError:
            member.close()
            continue
        leader.settimeout(None)
        for source, target in ((member, leader), (leader, member)):
            one = random.Random(draw.random())
            threading.Thread(target=pump, args=(source, target, one), daemon=True).start()


if __name__ == "__main__":
    main()
