"""Members that HTCondor takes away, holds, removes or loses, while the others wait or run."""

import json
import re
from pathlib import Path

import pytest
from pool import Cluster, Pool, description
from waiting import wait_for

RANK = "echo attempt $RALLYPOINT_ATTEMPT rank $RALLYPOINT_RANK"
# Runs until it is asked to end in attempt 0, and is done at once in any other. As with a script around a program, the
# shell dies of the signal, and what it has started takes a second to save its work.
STAYS = (
    f"{RANK}; [ $RALLYPOINT_ATTEMPT != 0 ] || "
    "/bin/sh -c \"trap 'sleep 1; echo told to end; exit 0' TERM; while :; do sleep 0.1; done\" & wait"
)
RETRIES = "max_retries = 3"


def held(pool: Pool, folder: Path, arguments: str, more: str = "") -> Cluster:
    """Three procs that wait in the queue until each is released."""
    return pool.submit(folder, description(arguments, more=f"hold = True\n{more}"))


def workers(script: str, options: str = "") -> str:
    # HTCondor empties the output of a proc that it starts again; rallypoint's own logs are kept.
    options = f"--workers 3 --grace 5s --log-dir runs --tee {options}"
    return f"run {options} -- /bin/sh -c '{script.replace(chr(39), chr(39) * 2)}'"


def stays(options: str = "") -> str:
    return workers(STAYS, options)


def written(cluster: Cluster) -> str:
    return "".join(file.read_text() for file in cluster.folder.glob("runs/attempt-*/worker-*.out"))


def attempts(cluster: Cluster) -> dict[int, set[int]]:
    """The ranks that were started in each attempt."""
    found: dict[int, set[int]] = {}
    for attempt, rank in re.findall(r"attempt (\d+) rank (\d+)", written(cluster)):
        found.setdefault(int(attempt), set()).add(int(rank))
    return found


def running(cluster: Cluster, attempt: int = 0) -> None:
    wait_for(f"attempt {attempt} of all", lambda: attempts(cluster).get(attempt) == {0, 1, 2})


def test_a_slow_proc_is_named(pool: Pool, shared: Path) -> None:
    cluster = held(pool, shared, "run --ps 1 -- /bin/sh -c '[ $RALLYPOINT_ROLE = worker ] || exec sleep 600'")
    cluster.act("condor_release", 0)
    cluster.act("condor_release", 1)
    cluster.says("2 of 3 members have come")
    cluster.says("missing: worker 1 (rank 2)")
    cluster.act("condor_release", 2)
    assert cluster.wait(3) == {0: 0, 1: 0, 2: 0}, cluster.text()


@pytest.mark.parametrize("who", [0, 1], ids=["leader", "follower"])
@pytest.mark.parametrize("how", ["vacate", "hold"])
def test_taken_away_while_waiting(pool: Pool, shared: Path, who: int, how: str) -> None:
    """The others wait on, and all run in one attempt when it is back."""
    cluster = held(pool, shared, workers(RANK))
    cluster.act("condor_release", 0)
    cluster.says("1 of 3 members have come", only="0")
    cluster.act("condor_release", 1)
    cluster.says("2 of 3 members have come")
    if how == "vacate":
        cluster.act("condor_vacate_job", who)
        wait_for("the eviction", lambda: cluster.happened("004", who))
    else:
        cluster.act("condor_hold", who)
        wait_for("the hold", lambda: cluster.happened("012", who) == 1)
        cluster.says("missing: worker", only=str(1 - who))
        cluster.act("condor_release", who)
    wait_for("the second start", lambda: cluster.happened("001", who) == 2)
    cluster.act("condor_release", 2)
    assert cluster.wait(3) == {0: 0, 1: 0, 2: 0}, cluster.text()
    assert attempts(cluster) == {1: {0, 1, 2}}, "one of them ran before, so for all it is the second attempt"


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_removed(pool: Pool, shared: Path, when: str) -> None:
    cluster = held(pool, shared, stays())
    for proc in range(2 if when == "waiting" else 3):
        cluster.act("condor_release", proc)
    if when == "waiting":
        cluster.says("2 of 3 members have come")
    else:
        running(cluster)
    cluster.act("condor_rm")
    wait_for("the end of all", lambda: cluster.happened("009") == 3)
    if when == "running":
        assert written(cluster).count("told to end") == 3, cluster.text()
    assert not list(shared.glob("*rallypoint*")), "the meeting file is gone"


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("how", ["vacate", "hold"])
def test_taken_away_while_running(pool: Pool, shared: Path, who: int, how: str) -> None:
    """All are told to end, all are started again, and nobody of the first attempt is in the second."""
    cluster = pool.submit(shared, description(stays(), more=RETRIES))
    running(cluster)
    if how == "vacate":
        cluster.act("condor_vacate_job", who)
    else:
        cluster.act("condor_hold", who)
        wait_for("the hold", lambda: cluster.happened("012", who) == 1)
        cluster.act("condor_release", who)
    assert cluster.wait(3) == {0: 0, 1: 0, 2: 0}, cluster.text()
    found = attempts(cluster)
    assert found.pop(0) == {0, 1, 2} and list(found.values()) == [{0, 1, 2}], cluster.text()
    assert written(cluster).count("told to end") == 3, cluster.text()


@pytest.mark.parametrize("how", ["vacate", "hold"])
def test_nodes_taken_away_while_running(pool: Pool, shared: Path, how: str) -> None:
    """In the parallel universe HTCondor itself takes all nodes away and starts all again: one attempt after the other."""
    cluster = pool.submit(shared, description(stays(), universe="parallel"))
    running(cluster)
    if how == "vacate":
        cluster.act("condor_vacate_job", 0)
    else:
        cluster.act("condor_hold", 0)
        wait_for("the hold", lambda: cluster.happened("012") == 1)
        cluster.act("condor_release", 0)
    assert cluster.wait(1) == {0: 0}, cluster.text()
    found = attempts(cluster)
    assert found.pop(0) == {0, 1, 2} and list(found.values()) == [{0, 1, 2}], cluster.text()
    assert written(cluster).count("told to end") == 3, cluster.text()


def test_nodes_are_removed_while_running(pool: Pool, shared: Path) -> None:
    cluster = pool.submit(shared, description(stays(), universe="parallel"))
    running(cluster)
    cluster.act("condor_rm")
    # The nodes of the parallel universe are still ending when the log says that the job is gone.
    wait_for("the end", lambda: cluster.happened("009") == 1)
    wait_for("the word", lambda: written(cluster).count("told to end") >= 3, now=cluster.everything)
    wait_for("the meeting file's end", lambda: not list(shared.glob("*rallypoint*")), now=cluster.everything)
    assert written(cluster).count("told to end") == 3, cluster.text()


def test_taken_away_for_good(pool: Pool, shared: Path) -> None:
    """Without retries the others leave the queue. Who comes back alone ends too, and says whom it missed."""
    cluster = pool.submit(shared, description(stays("--meet-timeout 10s")))
    running(cluster)
    cluster.act("condor_vacate_job", 2)
    ends = cluster.wait(3)
    assert ends[0] == ends[1] == 196, cluster.text()
    assert ends[2] in (193, 196), cluster.text()
    assert ends[2] == 196 or "missing: worker 0 (rank 0" in cluster.text(only="2"), cluster.text()


def leader_of(cluster: Cluster) -> int:
    """Who gathered the others; only the leader tells how many there are."""
    return next(rank for rank in range(3) if "3 members on 3 hosts" in cluster.text(only=str(rank)))


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_host_is_lost(pool: Pool, shared: Path, hosts: list[str], who: str) -> None:
    """The others end and are started again; the lost proc comes back on another host."""
    where = 'requirements = Machine == "ex$INT(n).lab" || JobRunCount > 0\nn = $(Process) + 1'
    more = f"{RETRIES}\n{where}\njob_lease_duration = 20"
    cluster = pool.submit(shared, description(stays("--events events"), more=more))
    running(cluster)
    lost = leader_of(cluster) if who == "leader" else (leader_of(cluster) + 1) % 3
    pool.host("kill", f"ex{lost + 1}")
    try:
        assert cluster.wait(3, limit=180) == {0: 0, 1: 0, 2: 0}, cluster.text()
    finally:
        pool.host("start", f"ex{lost + 1}")
    found = attempts(cluster)
    assert found.pop(0) == {0, 1, 2} and list(found.values()) == [{0, 1, 2}], cluster.text()
    events = [json.loads(line) for line in (shared / "events").read_text().splitlines()]
    ends = [event for event in events if event["attempt"] == 0 and event["event"] in ("failed", "over")]
    # A leader that is gone writes nothing any more; the others end each for itself.
    expected = [] if who == "leader" else [("failed", lost, 195), ("over", None, 195)]
    assert [(end["event"], end.get("rank"), end.get("code")) for end in ends] == expected


def test_the_leader_cannot_be_reached(pool: Pool, shared: Path, hosts: list[str]) -> None:
    """By one of the others: it takes the lead itself, nobody has all members, and each ends after its time."""
    where = 'requirements = Machine == "ex$INT(n).lab"\nn = $(Process) + 1'
    cluster = held(pool, shared, stays("--meet-timeout 20s"), where)
    pool.host("part", "ex1", "ex2")
    try:
        cluster.act("condor_release", 0)
        cluster.says("1 of 3 members have come", only="0")
        cluster.act("condor_release", 1)
        cluster.act("condor_release", 2)
        assert set(cluster.wait(3).values()) == {193}, cluster.text()
    finally:
        pool.host("join", "ex1", "ex2")
    assert "is gone: the leader cannot be reached: 10.98.0." in cluster.text(), cluster.text()
    assert "missing: worker" in cluster.text()


def test_a_network_that_breaks(pool: Pool, shared: Path, hosts: list[str]) -> None:
    """Both sides end by themselves: those who hear the leader with 195, the one that does not with 194."""
    where = 'requirements = Machine == "ex$INT(n).lab"\nn = $(Process) + 1\njob_lease_duration = 600'
    cluster = pool.submit(shared, description(stays(), more=where))
    running(cluster)
    leader = leader_of(cluster)
    lost = (leader + 1) % 3
    pool.host("cut", f"ex{lost + 1}")
    try:
        wait_for("the end of two", lambda: len(cluster.codes()) == 2, limit=60)
        cluster.says("the leader is lost", only=str(lost))
    finally:
        pool.host("heal", f"ex{lost + 1}")
    ends = cluster.wait(3)
    assert ends.pop(lost) == 194 and set(ends.values()) == {195}, cluster.text()
    assert "nothing was heard of it for 15 s" in cluster.text(only=str(leader)), cluster.text()


def test_leftovers_of_an_earlier_cluster(pool: Pool, shared: Path) -> None:
    cluster = held(pool, shared, workers(RANK))
    contact = (
        '{"version": 1, "id": "dead", "host": "ex1.lab", "machine": "x", "pid": 1, "job": null, "attempt": 0,'
        ' "addresses": ["127.0.0.1"], "port": 1, "key": "%s"}' % ("0" * 64)
    )
    for id in (cluster.id - 1, cluster.id):
        leftover = shared / f"rallypoint-cm.lab-{id}-0.meet"
        leftover.write_text(contact)
        leftover.chmod(0o600)
    cluster.act("condor_release")
    assert cluster.wait(3) == {0: 0, 1: 0, 2: 0}, cluster.text()
    assert "(pid 1 on ex1.lab) is gone" in cluster.text()
    assert [file.name for file in shared.glob("*.meet")] == [f"rallypoint-cm.lab-{cluster.id - 1}-0.meet"]
