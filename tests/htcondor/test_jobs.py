"""What a job of the pool sees, and how it ends."""

import re
from pathlib import Path

from pool import RALLYPOINT, Pool, description

# Listens at its own address, connects to all, and is done when all have connected; a ps stays.
LISTEN = """
import json, os, socket, threading, time
roster = json.load(open(os.environ["RALLYPOINT_ROSTER_FILE"]))
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("", int(os.environ["RALLYPOINT_ADDRESS"].rsplit(":", 1)[1])))
listener.listen()
came = threading.Semaphore(0)
def accept():
    while True:
        listener.accept()
        came.release()
threading.Thread(target=accept, daemon=True).start()
print("listening at", os.environ["RALLYPOINT_ADDRESS"], flush=True)
for member in roster["members"]:
    host, port = member["address"].rsplit(":", 1)
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < until, member
            time.sleep(0.05)
for member in roster["members"]:
    assert came.acquire(timeout=60)
print("reached all", flush=True)
if os.environ["RALLYPOINT_ROLE"] == "ps":
    time.sleep(600)
"""


def test_three_jobs_at_once_on_two_hosts(pool: Pool, shared: Path, hosts: list[str]) -> None:
    (shared / "listen.py").write_text(LISTEN)
    where = 'requirements = Machine == "ex1.lab" || Machine == "ex2.lab"'
    clusters = []
    for number in range(3):
        (shared / str(number)).mkdir()
        arguments = f"run --ps 1 -- /usr/bin/python3 {shared}/listen.py"
        clusters.append(pool.submit(shared / str(number), description(arguments, more=where)))
    for cluster in clusters:
        assert cluster.wait(3) == {0: 0, 1: 0, 2: 0}, cluster.text()
    listening = [re.findall(r"listening at (\S+)", cluster.text()) for cluster in clusters]
    assert [len(addresses) for addresses in listening] == [3, 3, 3]
    assert all(cluster.text().count("reached all") == 3 for cluster in clusters)
    used = {address.split(":")[0] for addresses in listening for address in addresses}
    assert used <= {"10.98.0.11", "10.98.0.12", "127.0.0.1"}


def test_a_failure_on_another_node_is_the_jobs(pool: Pool, apart: Path) -> None:
    """HTCondor alone reports node 0's exit code, and nobody hears of the others'."""
    script = "[ $RALLYPOINT_RANK = 1 ] && exit 3; exec sleep 600"
    arguments = f"run --grace 2s -- /bin/sh -c '{script}'"
    cluster = pool.submit(apart, description(arguments, universe="parallel", shared=False))
    assert cluster.wait(1) == {0: 3}, cluster.text()
    assert "first failure: worker 1 on" in cluster.text()


def test_gpus_and_cpus_are_the_slots(pool: Pool, shared: Path) -> None:
    sees = "echo $RALLYPOINT_ROLE sees [$CUDA_VISIBLE_DEVICES] with $OMP_NUM_THREADS threads"
    # Workers that are done before the server has said anything would end it without a word.
    said = shared / "said"
    server = f"{sees}; touch {said}; exec sleep 600"
    worker = f"while [ ! -e {said} ]; do sleep 0.1; done; {sees}"
    script = f"if [ $RALLYPOINT_ROLE = ps ]; then {server}; else {worker}; fi"
    more = "request_cpus = 2\nrequest_gpus = 1"
    cluster = pool.submit(shared, description(f"run --ps 1 -- /bin/sh -c '{script}'", more=more))
    assert set(cluster.wait(3).values()) == {0}, cluster.text()
    assert "ps sees [] with 2 threads" in cluster.text(), "a parameter server needs no GPU"
    seen = re.findall(r"worker sees \[(GPU-[-0-9a-f]+)\] with 2 threads", cluster.text())
    assert len(seen) == 2, cluster.text()
    folder = shared / "plain"
    folder.mkdir()
    plain = pool.submit(folder, description(f"run --ps 1 -- /bin/sh -c '{script}'"))
    assert set(plain.wait(3).values()) == {0}, plain.text()
    assert plain.text().count("worker sees [] with 1 threads") == 2, "10000 is no GPU"


def bare(arguments: str) -> str:
    """A job with neither PATH nor HOME, as HTCondor 23 may start one."""
    text = description(f"-u PATH -u HOME {RALLYPOINT} {arguments}", count=1)
    return text.replace(f"executable = {RALLYPOINT}", "executable = /usr/bin/env")


def test_neither_path_nor_home(pool: Pool, shared: Path) -> None:
    """A whole path is all that is needed; a name alone is an error that says why."""
    cluster = pool.submit(shared, bare("run --workers 1 -- /bin/sh -c 'echo home is [$HOME]'"))
    assert cluster.wait(1) == {0: 0}, cluster.text()
    assert "home is []" in cluster.text(), cluster.text()
    lost = shared / "lost"
    lost.mkdir()
    cluster = pool.submit(lost, bare("run --workers 1 -- python train.py"))
    assert cluster.wait(1) == {0: 2}, cluster.text()
    assert "python cannot be looked for: PATH is not set in this job" in cluster.text(), cluster.text()
    assert "hint: give its whole path, or write `getenv = PATH`" in cluster.text(), cluster.text()


def test_without_chirp_it_is_said_how_to_get_it(pool: Pool, apart: Path) -> None:
    text = description("run -- /bin/true", shared=False).replace("+WantIOProxy = true", "")
    cluster = pool.submit(apart, text)
    assert set(cluster.wait(3).values()) == {2}, cluster.text()
    assert cluster.text().count("hint: write `+WantIOProxy = true` into the submit description") == 3


def test_the_key_is_nowhere_to_be_read(pool: Pool, apart: Path) -> None:
    """Not in the ad, which anybody may query; in files of mode 0600 that are gone afterwards."""
    script = "exec sleep 600"
    cluster = pool.submit(
        apart, description(f"run --grace 1s -- /bin/sh -c '{script}'", universe="parallel", shared=False)
    )
    cluster.says("3 members on")
    ad = pool.run("condor_q", "-long", str(cluster.id)).stdout
    [file] = apart.glob("*.key")
    key = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600 and re.fullmatch("[0-9a-f]{64}", key)
    assert "RallypointLeader0" in ad and key not in ad
    cluster.act("condor_rm")
    folder = apart / "vanilla"
    folder.mkdir()
    vanilla = pool.submit(folder, description(f"run --grace 1s -- /bin/sh -c '{script}'", shared=False))
    vanilla.says("3 members on")
    [file] = folder.glob("*.meet")
    assert file.stat().st_mode & 0o777 == 0o600 and '"key"' in file.read_text()
    assert file.read_text().split('"key": "')[1][:64] not in pool.run("condor_q", "-long", str(vanilla.id)).stdout


