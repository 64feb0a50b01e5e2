"""Real training with the resolvers whose members meet, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List

import pytest

import rallypoint
from rallypoint import errors
from rallypoint.tensorflow import ClusterResolver, HTCondorClusterResolver, LocalClusterResolver

from conftest import LIMIT, ROOT, Programs
from mirrored import SUM

RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))

MIRRORED = f"""
import sys
import rallypoint.tensorflow as resolvers

resolver = {{resolver}}
{SUM}
print(resolver.task_type, resolver.task_id, number, resolver.num_accelerators(), flush=True)
# Worker 0 hosts the others' coordination and has to leave last.
until = time.monotonic() + 60
while resolver.task_id == 0 and not os.path.exists("gone-1") and time.monotonic() < until:
    time.sleep(0.05)
open(f"gone-{{{{resolver.task_id}}}}", "w").close()
os._exit(0)
"""

# TF 2's coordinator: a variable on the ps, increments by the workers.
COORDINATED = """
    import tensorflow as tf
    import rallypoint.tensorflow as resolvers
    from rallypoint.hooks import serve_while_alive

    resolver = {resolver}
    if resolver.task_type != "chief":
        server = resolver.start_server()
        print("serving", server.target, flush=True)
        serve_while_alive(resolver.cluster_spec(), patience=2.0)
        print(resolver.task_type, "ends")
    else:
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            counter = tf.Variable(0.0)

        @tf.function
        def step():
            counter.assign_add(1.0, use_locking=True)

        for _ in range(20):
            coordinator.schedule(step)
        coordinator.join()
        print("counted", float(counter.numpy()), counter.device, flush=True)
        import os
        os._exit(0)
"""


def test_mirrored_workers_that_meet_on_this_machine(programs: Programs, tmp_path: Path) -> None:
    script = MIRRORED.format(resolver='resolvers.LocalClusterResolver({"worker": 2}, meet="meet", timeout=200)')
    programs.start(script)
    programs.start(script)
    outputs = programs.end()
    assert programs.codes == [0, 0], "\n".join(outputs)
    told = "\n".join(outputs)
    assert "worker 0 3.0 {'GPU': 0}" in told and "worker 1 3.0 {'GPU': 0}" in told
    assert "1 of 2 members have come" in told
    assert list((tmp_path / "meet").iterdir()) == []


def test_a_coordinator_with_its_servers(programs: Programs) -> None:
    """Three terminals, ranks by hand, in the default meeting place; the servers end after the chief."""
    script = COORDINATED.format(
        resolver='resolvers.LocalClusterResolver({"chief": 1, "ps": 1, "worker": 1}, rank=int(__import__("sys").argv[1]), job="coordinated", meet="meet")'
    )
    for rank in (2, 1, 0):
        programs.start(script, rank)
    outputs = programs.end()
    assert programs.codes == [0, 0, 0], "\n".join(outputs)
    assert "counted 20.0 /job:ps/replica:0/task:0" in outputs[2]
    assert "worker ends" in outputs[0] and "ps ends" in outputs[1]


def test_procs_of_htcondor(programs: Programs, tmp_path: Path) -> None:
    """Job ads as HTCondor writes them, one per proc; a shared directory to meet in."""
    script = MIRRORED.format(resolver='resolvers.HTCondorClusterResolver(meet="meet", timeout=200)')
    for proc in range(2):
        ad = tmp_path / f"job{proc}.ad"
        ad.write_text(
            f'ClusterId = 12\nProcId = {proc}\nTotalSubmitProcs = 2\nRemoteHost = "slot1_{proc}@ex1.lab"\n'
            "JobRunCount = 1\nJobUniverse = 5\n"
        )
        programs.start(script, _CONDOR_JOB_AD=str(ad), CUDA_VISIBLE_DEVICES="10000")
    outputs = programs.end()
    assert programs.codes == [0, 0], "\n".join(outputs)
    for proc, output in enumerate(outputs):
        assert f"worker {proc} 3.0 {{'GPU': 0}}" in output


def test_tasks_of_slurm_without_reserved_ports(programs: Programs) -> None:
    """They meet in the working directory of the step, as `rallypoint run` does there."""
    script = MIRRORED.format(resolver="resolvers.ClusterResolver(timeout=200)")
    for rank in range(2):
        programs.start(
            script,
            SLURM_JOB_ID="7",
            SLURM_STEP_ID="0",
            SLURM_PROCID=str(rank),
            SLURM_STEP_NUM_TASKS="2",
            SLURM_STEP_NODELIST="n1",
            SLURM_STEP_TASKS_PER_NODE="2",
        )
    outputs = programs.end()
    assert programs.codes == [0, 0], "\n".join(outputs)
    assert all("3.0" in output for output in outputs)


def test_under_rallypoint_run_it_is_what_was_agreed_there(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import rallypoint.tensorflow as r\n"
        "resolver = r.ClusterResolver({'ps': 1, 'worker': 2})\n"
        "print(resolver.get_task_info(), len(resolver.cluster_spec().job_tasks('worker')), resolver.master())\n"
        "try:\n    r.ClusterResolver({'worker': 3})\nexcept ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [RALLYPOINT, "run", "--ps", "1", "--workers", "2", "--until", "all", "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert "[worker 1] ('worker', 1) 2 grpc://127.0.0.1:" in done.stdout
    assert "but was started with {'ps': 1, 'worker': 2}" in done.stdout


def test_reserved_ports_need_no_meeting(environ: Callable[[Dict[str, str]], None]) -> None:
    environ(
        {
            "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_STEP_NODELIST": "n[9-10]",
            "SLURM_STEP_TASKS_PER_NODE": "2,1",
            "SLURM_STEP_RESV_PORTS": "12005-12007",
            "CUDA_VISIBLE_DEVICES": "0,1",
        }
    )
    told: List[str] = []
    resolver = ClusterResolver({"ps": 1, "worker": 2}, progress=told.append)
    assert "n9, this member's own address, is not known here" in told[0]
    assert resolver.cluster_spec().as_dict() == {"ps": ["n9:12005"], "worker": ["n9:12006", "n10:12005"]}
    assert resolver.num_accelerators() == {"GPU": 2} and os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert ClusterResolver({"ps": 1, "worker": 2}, port_base=5000, host_suffix="-ib").cluster_spec().as_dict() == {
        "ps": ["n9-ib:5000"],
        "worker": ["n9-ib:5001", "n10-ib:5000"],
    }


def test_alone(environ: Callable[[Dict[str, str]], None], tmp_path: Path) -> None:
    environ({})
    resolver = LocalClusterResolver({"worker": 1}, meet=str(tmp_path))
    server = resolver.start_server()
    assert resolver.master() == server.target
    resolver.release_port()
    environ(
        {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1"}
    )
    assert ClusterResolver().get_task_info() == ("worker", 0)


def test_bad_arguments(environ: Callable[[Dict[str, str]], None], tmp_path: Path) -> None:
    environ({})
    with pytest.raises(errors.RoleError, match="role"):
        LocalClusterResolver({"a b": 1})
    with pytest.raises(errors.AllocationError, match="_CONDOR_JOB_AD is not set"):
        HTCondorClusterResolver()
    with pytest.raises(ValueError, match="rank=3: expected 0 to 1"):
        LocalClusterResolver({"worker": 2}, meet=str(tmp_path), rank=3)
    with pytest.raises(errors.MeetingError, match="needs a key that all members know"):
        LocalClusterResolver({"worker": 2}, meet="localhost:1234")
    with pytest.raises(errors.AddressError, match="interface none0"):
        LocalClusterResolver({"worker": 2}, meet=str(tmp_path), interface="none0")
    with pytest.raises(errors.MeetingError, match="not a directory|cannot be made"):
        LocalClusterResolver({"worker": 2}, meet="/dev/null")
    with pytest.raises(errors.MeetingTimeout, match="missing: worker 1"):
        LocalClusterResolver({"worker": 2}, meet=str(tmp_path), timeout=0.5, progress=lambda line: None)
    with rallypoint.hold_port() as held, pytest.raises(errors.PortError, match=f"no port of {held.port}-{held.port} is free"):
        LocalClusterResolver({"worker": 2}, meet=str(tmp_path), port_range=(held.port, held.port))
