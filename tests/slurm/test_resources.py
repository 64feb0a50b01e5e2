"""What Slurm has bound is what a member gets: GPUs, CPUs, ports, time."""

import time

import pytest
from cluster import Cluster, line, run

TELL = 'echo "has $RALLYPOINT_RANK gpus=$CUDA_VISIBLE_DEVICES cpus=$OMP_NUM_THREADS"; echo "port $RALLYPOINT_ADDRESS $SLURM_STEP_RESV_PORTS"; echo "deadline $RALLYPOINT_DEADLINE"'


def gpus(done_lines: list[list[str]]) -> dict[int, str]:
    return {int(rank): mask.removeprefix("gpus=") for rank, mask, _ in done_lines}


@pytest.mark.parametrize(
    "options, expected",
    [
        # Shared by the tasks of a node: split among them.
        ("-N2 --ntasks-per-node=2 --gres=gpu:4", ["0,1", "2,3", "0,1", "2,3"]),
        ("-N1 -n4 --gres=gpu:4", ["0", "1", "2", "3"]),
        ("-N1 -n2 --gres=gpu:3", ["0", "1"]),
        # Bound to each task by Slurm: kept.
        ("-N1 -n4 --gpus-per-task=1", ["0", "1", "2", "3"]),
        ("-N2 --ntasks-per-node=2 --gpus-per-task=2", ["0,1", "2,3", "0,1", "2,3"]),
        ("-N1 -n2 --gres=gpu:4 --gpu-bind=map_gpu:3,1", ["3", "1"]),
        # None at all.
        ("-N1 -n2", ["", ""]),
    ],
)
def test_gpus_as_slurm_bound_them(cluster: Cluster, options: str, expected: list[str]) -> None:
    done = cluster.call("srun", *options.split(), *run("--until", "all", script=TELL))
    assert done.code == 0, done.text
    assert gpus(done.told("has")) == dict(enumerate(expected)), done.text


def test_a_ps_has_no_gpu_and_a_launched_step_the_same_ones(cluster: Cluster) -> None:
    done = cluster.call(
        "salloc", "-N1", "-n3", "--gres=gpu:4", *run("--ps", "1", "--until", "all", script=TELL)
    )
    assert done.code == 0, done.text
    assert gpus(done.told("has")) == {0: "", 1: "0,1", 2: "2,3"}, done.text


@pytest.mark.parametrize("mode", ["srun", "salloc"])
def test_cpus_of_a_task(cluster: Cluster, mode: str) -> None:
    done = cluster.call(mode, "-N2", "--ntasks-per-node=2", "-c3", *run("--until", "all", script=TELL))
    assert done.code == 0, done.text
    assert [words[2] for words in done.told("has")] == ["cpus=3"] * 4, done.text


def test_reserved_ports_are_taken(cluster: Cluster) -> None:
    done = cluster.call("srun", "-N2", "--ntasks-per-node=1", "--resv-ports=2", *run("--until", "all", script=TELL))
    assert done.code == 0, done.text
    for address, reserved in done.told("port"):
        low, high = reserved.split("-")
        assert int(low) <= int(address.rsplit(":", 1)[1]) <= int(high), done.text


@pytest.mark.parametrize(
    "mode, tasks", [("", 2), ("srun ", 2), ("srun --mpi=pmi2 ", 2), ("srun ", 1)], ids=["launcher", "task", "pmi", "alone"]
)
def test_the_time_limit_is_handed_on(cluster: Cluster, mode: str, tasks: int) -> None:
    job = cluster.sbatch(mode + line("--until", "all", script=TELL), f"-n{tasks}", "--time=7")
    assert job.wait() == "COMPLETED", job.log()
    ends = [int(text.split()[-1]) for text in job.log().splitlines() if "] deadline " in text]
    assert len(ends) == tasks and all(300 < end - time.time() < 421 for end in ends), job.log()
    assert "min left until the time limit" in job.log()
