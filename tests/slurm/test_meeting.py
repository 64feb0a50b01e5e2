"""Members of a step find each other: by PMI, in a directory, through their launcher; and who cannot says so."""

import re

import pytest
from cluster import RALLYPOINT, WHO, Cluster, command_of, everyone_is_where_they_are, line, run
from waiting import wait_for


@pytest.mark.parametrize("tasks", [2, 7, 64])
def test_pmi(cluster: Cluster, tasks: int) -> None:
    # No directory in common: every task stands in one of its own. Rosters of many members are longer than the lines
    # that srun keeps whole, so they are left in files.
    who = WHO.split(";")[0] + "; cp $RALLYPOINT_ROSTER_FILE roster"
    elsewhere = f"mkdir d-$SLURM_PROCID; cd d-$SLURM_PROCID; exec {line('--ps', '1', '--until', 'all', script=who)}"
    done = cluster.call("srun", "--mpi=pmi2", "-O", "-N4", f"-n{tasks}", "sh", "-c", elsewhere)
    assert done.code == 0, done.text
    rosters = [file.read_text() for file in cluster.folder.glob("d-*/roster")]
    text = done.out + "".join(f"roster {''.join(roster.split())}\n" for roster in rosters)
    everyone_is_where_they_are(text, tasks)
    assert done.err.count("meeting: PMI of step") == tasks


def test_members_do_not_inherit_pmi(cluster: Cluster) -> None:
    look = "echo variables $(env | grep -c ^PMI_); echo sockets $(ls -l /proc/self/fd | grep -c socket)"
    done = cluster.call("srun", "--mpi=pmi2", "-n2", *run("--ps", "1", "--until", "all", script=look))
    assert done.code == 0, done.text
    assert done.told("variables") == [["0"]] * 2 and done.told("sockets") == [["0"]] * 2, done.text


def test_pmi_that_is_not_there(cluster: Cluster) -> None:
    done = cluster.call("srun", "-n2", *run("--meet", "pmi"))
    assert done.code == 2, done.text
    assert "hint: start the step with `srun --mpi=pmi2`" in done.err


def test_a_task_that_never_comes_to_the_fence(cluster: Cluster) -> None:
    some = f'[ $SLURM_PROCID = 1 ] && exec sleep 4; exec {line("--meet-timeout", "2s")}'
    done = cluster.call("srun", "--mpi=pmi2", "-n3", "sh", "-c", some)
    assert done.code == 193, done.text
    # The leader knows who is missing; the others know why they do not know.
    assert "1 of 3 members have come" in done.err
    assert "all 3 tasks of the step to come to PMI's fence, which does not tell who is missing" in done.err


def test_a_launched_step_has_its_key_from_nowhere_else(cluster: Cluster) -> None:
    job = cluster.sbatch(line("--ps", "1", script="echo up; exec sleep 1000"), "-N2", "--ntasks-per-node=2")
    wait_for("all members", lambda: job.log().count("] up") == 4, now=job.log)
    secret = re.compile(r"\b[0-9a-f]{64}\b")
    seen = 0
    for pid in job.processes():
        try:
            variables = open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace").read()
        except OSError:
            continue
        seen += 1
        assert not secret.search(variables) and not secret.search(" ".join(command_of(pid)))
    assert seen >= 12
    assert list(cluster.folder.glob("*.meet")) == [] and not secret.search(job.log())


def test_tasks_that_do_not_hear_of_their_launcher_end_the_launch(cluster: Cluster) -> None:
    # Not after the ten minutes of --meet-timeout: the step is over, and srun with it.
    done = cluster.call("salloc", "-n2", RALLYPOINT, "run", "--srun-args=--input=none", "--", "true")
    assert done.code == 197, done.text
    assert "standard input: it ended before the launcher's line" in done.err
    assert "srun ended with exit code 2 before all members had come" in done.err


def test_a_launcher_without_tasks_for_its_roles(cluster: Cluster) -> None:
    done = cluster.call("salloc", "-n2", RALLYPOINT, "run", "--ps", "3", "--", "true")
    assert done.code == 2 and "but the allocation has 2 tasks" in done.err, done.text


def test_jobs_with_equal_ports_on_one_node(cluster: Cluster) -> None:
    """As two users would have it: the same --port-base is a clear error, held ports are no problem."""
    hold = run("--port-base", "15000", script="echo up; exec sleep 1000")
    first = cluster.start("srun", "-N1", "-w", "n01", "-n2", *hold)
    first.wait_for("[worker 1] up")
    second = cluster.call("srun", "-N1", "-w", "n01", "-n2", *hold)
    assert second.code == 197, second.text
    assert "port 15000 cannot be had" in second.err and "hint:" in second.err
    third = cluster.call("srun", "-N1", "-w", "n01", "-n2", *run("--until", "all", script=WHO))
    assert third.code == 0, third.text
    cluster.call("scancel", *cluster.jobs())
    first.wait()
