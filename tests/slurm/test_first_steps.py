"""What a new user sees first: one plan for a step, and one account of a failure."""

import re

from cluster import RALLYPOINT, Cluster


def test_a_plan_is_printed_once(cluster: Cluster) -> None:
    done = cluster.call("srun", "-N2", "--ntasks-per-node=2", RALLYPOINT, "plan", "--ps", "1")
    assert done.out.count("4 members (1 ps, 3 workers) on 2 hosts") == 1, done.out
    assert done.out.count("this process") == 1, done.out
    every = cluster.call("srun", "-N2", "--ntasks-per-node=2", RALLYPOINT, "plan", "--ps", "1", "--all-ranks")
    assert every.out.count("4 members (1 ps, 3 workers) on 2 hosts") == 4, every.out


def test_sixteen_tasks_tell_a_failure_once(cluster: Cluster) -> None:
    script = "[ $RALLYPOINT_RANK = 3 ] || exec sleep 60; seq 10 >&2; exit 7"
    command = ("srun", "-n16", RALLYPOINT, "run", "--grace", "2s", "--", "sh", "-c", script)
    done = cluster.call(*command)
    told = [line for line in done.err.splitlines() if line.startswith("rallypoint: ")]
    assert len([line for line in told if re.match(r"rallypoint:   \| \d+$", line)]) == 10, done.err
    assert len([line for line in told if "first failure: worker 3 on " in line]) == 16, done.err
    # All else: who leads, who is who, and how the meeting went.
    assert len(told) < 75, done.err
