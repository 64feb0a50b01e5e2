"""Whatever the layout, every member finds itself and all others on their true hosts."""

from functools import partial

import pytest
from cluster import WHO, Cluster, everyone_is_where_they_are, line, run
from waiting import wait_for

# Everyone tells where it is, and nobody is stopped before it has.
told = partial(run, "--until", "all", script=WHO)
told_line = partial(line, "--until", "all", script=WHO)

# Options, and the order of hosts that they mean, the first one being 0.
LAYOUTS = {
    "block": ("-N3 --ntasks-per-node=2 -m block", "001122"),
    "cyclic": ("-N3 --ntasks-per-node=2 -m cyclic", "012012"),
    "plane": ("-N2 --ntasks-per-node=4 -m plane=2", "00110011"),
    "uneven": ("-N2 -n4", "0001"),
    "uneven cyclic": ("-N2 -n4 -m cyclic", "0100"),
    "one per node": ("-N4 -n4", "0123"),
    "one node": ("-N1 -n4", "0000"),
}


@pytest.mark.parametrize("way", ["none", "pmi2"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_step_of_each_layout(cluster: Cluster, name: str, way: str) -> None:
    options, expected = LAYOUTS[name]
    done = cluster.call("srun", f"--mpi={way}", *options.split(), *told("--ps", "1"))
    assert done.code == 0, done.text
    hosts = everyone_is_where_they_are(done.out, len(expected))
    order = list(dict.fromkeys(sorted(hosts.values())))
    assert "".join(str(order.index(hosts[rank])) for rank in sorted(hosts)) == expected, done.text
    assert ("meeting: PMI of step" if way == "pmi2" else f"meeting: directory {cluster.folder}") in done.err


def test_an_arbitrary_layout(cluster: Cluster) -> None:
    hosts = ["n03", "n01", "n03", "n02", "n01"]
    (cluster.folder / "hosts").write_text("\n".join(hosts) + "\n")
    done = cluster.call(
        "srun", "-n5", "-m", "arbitrary", *told("--ps", "2"), SLURM_HOSTFILE=str(cluster.folder / "hosts")
    )
    assert done.code == 0, done.text
    assert list(dict(sorted(everyone_is_where_they_are(done.out, 5).items())).values()) == hosts


@pytest.mark.parametrize("step", ["srun --het-group=0 {} : --het-group=1 {}", "srun --het-group=0,1 {}", "{}"])
def test_a_role_for_each_group_of_a_het_job(cluster: Cluster, step: str) -> None:
    # Ranks go by group, so the first group's two tasks are the parameter servers. Without srun it is the launcher's.
    member = told_line("--ps", "2", "--workers", "3")
    script = "#SBATCH -N1 -n2 -w n03\n#SBATCH hetjob\n#SBATCH -N2 -n3 -w n[01-02]\n" + step.format(member, member)
    job = cluster.sbatch(script)
    assert job.wait() == "COMPLETED", job.log()
    hosts = everyone_is_where_they_are(job.log(), 5)
    assert (hosts[0], hosts[1]) == ("n03", "n03")
    assert {hosts[2], hosts[3], hosts[4]} == {"n01", "n02"}
    for rank in (0, 1):
        assert f"me {rank} ps {rank} n03" in job.log()
    job.leaves_nothing()


def test_a_direct_het_step(cluster: Cluster) -> None:
    member = told("--ps", "1", "--workers", "4")
    done = cluster.call("srun", "-N1", "-n1", *member, ":", "-N2", "-n4", "-m", "cyclic", *member)
    assert done.code == 0, done.text
    everyone_is_where_they_are(done.out, 5)


def test_two_steps_at_once_do_not_meet(cluster: Cluster) -> None:
    step = "srun --exact -N2 -n4 --mpi={} " + told_line("--ps", "1") + " > step-{} 2>&1 &\n"
    job = cluster.sbatch(step.format("none", 0) + step.format("none", 1) + step.format("pmi2", 2) + "wait", "-N2", "-n16")
    assert job.wait() == "COMPLETED", job.log()
    for number in range(3):
        everyone_is_where_they_are((cluster.folder / f"step-{number}").read_text(), 4)
    assert list(cluster.folder.glob("*.meet")) == []


def test_steps_that_overlap(cluster: Cluster) -> None:
    step = "srun --overlap -N2 -n4 " + told_line("--ps", "1") + " > step-{} 2>&1 &\n"
    job = cluster.sbatch(step.format(0) + step.format(1) + "wait", "-N2", "-n4")
    assert job.wait() == "COMPLETED", job.log()
    for number in range(2):
        everyone_is_where_they_are((cluster.folder / f"step-{number}").read_text(), 4)


def test_an_array_is_several_jobs(cluster: Cluster) -> None:
    job = cluster.sbatch(told_line("--ps", "1") + " > array-$SLURM_ARRAY_TASK_ID 2>&1", "-N2", "-n4", "--array=0-2")
    states = "JobState=COMPLETED"
    wait_for("the array", lambda: cluster.call("scontrol", "-o", "show", "job", job.id).out.count(states) == 3)
    for number in range(3):
        everyone_is_where_they_are((cluster.folder / f"array-{number}").read_text(), 4)


def test_a_step_smaller_than_its_job(cluster: Cluster) -> None:
    job = cluster.sbatch("srun -N2 -n3 -w n[02-03] " + told_line("--ps", "1"), "-N4", "--ntasks-per-node=2")
    assert job.wait() == "COMPLETED", job.log()
    assert set(everyone_is_where_they_are(job.log(), 3).values()) == {"n02", "n03"}
