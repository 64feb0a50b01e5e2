"""A member of a job of the campaign, with one habit: `member.py FOLDER [HABIT NUMBER]`.

The habit of each rank is a line of FOLDER/habits: `2 saves 0.5`. What the harness must know is written as files
into FOLDER: `up-RANK` (it runs, and its handlers are there), `asked-RANK` (a line per SIGTERM), `saved-RANK`,
`flooded-RANK` (how many bytes went out). It stays until the file `finish` is there, and never for more than five
minutes: a campaign that goes wrong leaves nothing for long. `halt` ends it whatever its habit is.
"""

import os
import signal
import sys
import time

FOLDER = sys.argv[1]
RANK = os.environ["RALLYPOINT_RANK"]
LONGEST = 300.0
STARTED = time.monotonic()


def there(name: str) -> bool:
    return os.path.exists(f"{FOLDER}/{name}")


def note(name: str, text: str = "", mode: str = "w") -> None:
    with open(f"{FOLDER}/{name}-{RANK}", mode) as file:
        file.write(text)


def is_over() -> bool:
    return there("halt") or time.monotonic() - STARTED > LONGEST


def up() -> None:
    """Complete at once: the harness reads it as soon as it is there."""
    words = [os.environ.get("FAULT_AGENT", "0"), os.environ["RALLYPOINT_ADDRESS"], str(os.getpid()), str(os.getsid(0))]
    with open(f"{FOLDER}/.up-{RANK}", "w") as file:
        file.write(" ".join(words))
    os.rename(f"{FOLDER}/.up-{RANK}", f"{FOLDER}/up-{RANK}")


def stay() -> None:
    """A parameter server does not heed the end of the work: it is stopped."""
    heeds = os.environ["RALLYPOINT_ROLE"] != "ps"
    while not is_over() and not (heeds and there("finish")):
        time.sleep(0.05)


def sleeps(_number: float) -> None:
    up()
    stay()


def finishes(seconds: float) -> None:
    up()
    time.sleep(seconds)


def fails(code: float) -> None:
    up()
    time.sleep(1.5)
    print("this member fails", file=sys.stderr, flush=True)
    sys.exit(int(code))


def dies(number: float) -> None:
    up()
    time.sleep(1.5)
    os.kill(os.getpid(), int(number))
    time.sleep(5)


def deaf(_number: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    up()
    stay()


def saves(seconds: float) -> None:
    asked: list[int] = []

    def heard(number: int, _frame: object) -> None:
        asked.append(number)
        note("asked", f"{number}\n", "a")

    signal.signal(signal.SIGTERM, heard)
    up()
    heeds = os.environ["RALLYPOINT_ROLE"] != "ps"
    while not asked and not is_over() and not (heeds and there("finish")):
        time.sleep(0.02)
    if asked:
        time.sleep(seconds)
        note("saved")


def wrapped(seconds: float) -> None:
    """A shell that dies of SIGTERM at once, and below it one that saves."""
    script = f'"$0" -S -E "$1" "$2" saves {seconds} & wait'
    os.execv("/bin/sh", ["sh", "-c", script, sys.executable, __file__, FOLDER])


def floods(megabytes: float) -> None:
    up()
    line = b"x" * 99 + b"\n"
    written = 0
    while written < megabytes * 1e6 and not is_over():
        written += os.write(1, line * 100)
    note("flooded", str(written))
    stay()


def hop(is_deaf: bool) -> None:
    """Every 10 ms another process in another session, and the one before is gone."""
    if is_deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while not is_over():
        time.sleep(0.01)
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)


def forks(is_deaf: float) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        hop(bool(is_deaf))
    up()
    stay()


def daemon(seconds: float) -> None:
    """A daemon that holds the pipes and hears no SIGTERM; the member itself ends after a while, or stays."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while not is_over():
            time.sleep(0.1)
        os._exit(0)
    os.wait()
    up()
    if seconds:
        time.sleep(seconds)
    else:
        stay()


def quiet(_number: float) -> None:
    for number in range(3):
        os.close(number)
    up()
    stay()


def listens(_number: float) -> None:
    import socket

    port = int(os.environ["RALLYPOINT_ADDRESS"].rsplit(":", 1)[1])
    listener = socket.socket(socket.AF_INET6 if os.path.exists("/proc/net/if_inet6") else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen()
    up()
    stay()


HABITS = {
    habit.__name__: habit
    for habit in (sleeps, finishes, fails, dies, deaf, saves, wrapped, floods, forks, daemon, quiet, listens)
}


def main() -> None:
    # A warning is no reason to die.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    if len(sys.argv) == 4:
        HABITS[sys.argv[2]](float(sys.argv[3]))
        return
    with open(f"{FOLDER}/habits") as file:
        for line in file:
            rank, habit, number = line.split()
            if rank == RANK:
                print(f"rank {rank} {habit}", flush=True)
                HABITS[habit](float(number))


main()
