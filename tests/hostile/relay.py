"""Somebody in the middle: a relay between a member's agent and its leader that meddles with one frame.

It cannot read frames, but it sees where they begin (tests/hostile/__main__.py tells what must follow).
"""

import contextlib
import socket
import threading

# What goes each way before the first frame: greeting and proof, greeting and welcome.
TO_LEADER, TO_MEMBER = "to-leader", "to-member"
HANDSHAKE = {TO_LEADER: (40, 32), TO_MEMBER: (40, 33)}
DEEDS = ("flip-length", "flip-content", "flip-tag", "drop", "repeat", "reorder", "reflect", "cut", "invent")


class Relay:
    """Meddles with frame `number` of one direction of the first connection; later ones are passed on as they are."""

    def __init__(self, leader: int, deed: str, direction: str, number: int) -> None:
        self.leader, self.deed, self.direction, self.number = leader, deed, direction, number
        self.done = threading.Event()
        self.frames = {TO_LEADER: 0, TO_MEMBER: 0}
        # What was said before the first frames.
        self.recorded = {TO_LEADER: b"", TO_MEMBER: b""}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.open: list[socket.socket] = [self.listener]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            connection = -1
            for _ in range(1000):
                member, _ = self.listener.accept()
                try:
                    leader = socket.create_connection(("127.0.0.1", self.leader), timeout=5)
                except OSError:
                    member.close()
                    continue
                leader.settimeout(None)
                connection += 1
                self.open += [member, leader]
                for direction, source, target in ((TO_LEADER, member, leader), (TO_MEMBER, leader, member)):
                    meddles = connection == 0 and direction == self.direction
                    pump = threading.Thread(target=self.pump, args=(direction, source, target, meddles, connection), daemon=True)
                    pump.start()

    def pump(self, direction: str, source: socket.socket, target: socket.socket, meddles: bool, connection: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            for count in HANDSHAKE[direction]:
                part = exactly(source, count)
                self.recorded[direction] += part
                target.sendall(part)
            held = b""
            while True:
                head = exactly(source, 4)
                frame = head + exactly(source, int.from_bytes(head, "big") & 0x7FFFFFFF)
                number = self.frames[direction]
                self.frames[direction] += connection == 0
                if meddles and number == self.number:
                    self.done.set()
                    held = self.meddle(frame, source, target)
                else:
                    target.sendall(frame + held)
                    held = b""
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def meddle(self, frame: bytes, source: socket.socket, target: socket.socket) -> bytes:
        """What comes behind the next frame, if anything."""
        changed = bytearray(frame)
        match self.deed:
            case "flip-length":
                changed[3] ^= 1
                target.sendall(changed)
            case "flip-content":
                changed[4] ^= 1
                target.sendall(changed)
            case "flip-tag":
                changed[-1] ^= 128
                target.sendall(changed)
            case "drop":
                pass
            case "repeat":
                target.sendall(frame + frame)
            case "reorder":
                return frame
            case "reflect":
                source.sendall(frame)
            case "cut":
                target.sendall(frame[: len(frame) // 2])
                raise EOFError
            case "invent":
                target.sendall((40).to_bytes(4, "big") + bytes(40) + frame)
        return b""

    def close(self) -> None:
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def exactly(source: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
