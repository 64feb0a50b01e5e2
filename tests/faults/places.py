"""Folders with a fault: a file system that is full, or read-only. For root."""

import contextlib
import subprocess
from pathlib import Path

# More than the small file system has, and nothing to any other.
ENOUGH = 1 << 20


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, timeout=30)


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, timeout=30)


def small_folder(folder: Path) -> None:
    """A file system of 128 KiB in memory."""
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=128k,mode=700", "faults", str(folder))


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), open(folder / "filler", "wb", buffering=0) as file:
        for _ in range(ENOUGH // 4096):
            file.write(b"x" * 4096)


def make_read_only(folder: Path) -> None:
    mount("--bind", str(folder), str(folder))
    mount("-o", "remount,bind,ro", str(folder))
