"""A network of hosts on this machine: a namespace each, a bridge between them, and cables that can be pulled. For root."""

import subprocess
import zlib


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Network:
    def __init__(self, tag: str, hosts: int) -> None:
        self.name = f"faults-{zlib.crc32(tag.encode()):08x}"
        self.made: list[str] = []
        try:
            self.add("bridge")
            ip("-n", self.space("bridge"), "link", "add", "bridge", "type", "bridge")
            ip("-n", self.space("bridge"), "link", "set", "bridge", "up")
            for host in range(hosts):
                self.add(str(host))
                cable, there = f"host{host}", self.space(str(host))
                ip("-n", self.space("bridge"), "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", there)
                ip("-n", self.space("bridge"), "link", "set", cable, "master", "bridge", "up")
                ip("-n", there, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
                ip("-n", there, "link", "set", "eth0", "up")
        except BaseException:
            self.remove()
            raise

    def space(self, name: str) -> str:
        return f"{self.name}-{name}"

    def add(self, name: str) -> None:
        ip("netns", "add", self.space(name))
        self.made.append(self.space(name))
        ip("-n", self.space(name), "link", "set", "lo", "up")

    def address(self, host: int) -> str:
        return f"10.99.0.{host + 10}"

    def inside(self, host: int) -> list[str]:
        """Before a command that is to run on a host. The process stays the same one."""
        return ["nsenter", f"--net=/run/netns/{self.space(str(host))}"]

    def cut(self, host: int) -> None:
        ip("-n", self.space("bridge"), "link", "set", f"host{host}", "down")

    def heal(self, host: int) -> None:
        ip("-n", self.space("bridge"), "link", "set", f"host{host}", "up")

    def cut_one_way(self, host: int, other: int) -> None:
        """What `host` sends to `other` goes to nobody; the other way is open."""
        entry = [self.address(other), "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"]
        ip("-n", self.space(str(host)), "neigh", "replace", *entry)

    def heal_one_way(self, host: int, other: int) -> None:
        ip("-n", self.space(str(host)), "neigh", "del", self.address(other), "dev", "eth0")

    def remove(self) -> None:
        for space in self.made:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=30)
        self.made.clear()
