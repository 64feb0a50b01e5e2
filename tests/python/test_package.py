"""The package without TensorFlow: plans, ports, addresses, meetings, and what it ships."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Dict

import pytest

import rallypoint
from rallypoint import errors

from conftest import FIXTURES, LIMIT, ROOT, Programs, captured_steps

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[8-11]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
    "CUDA_VISIBLE_DEVICES": "2,3",
}


def test_the_plan_of_a_step() -> None:
    plan = rallypoint.resolve({"ps": 1, "worker": 3}, environ=STEP)
    assert (plan.scheduler, plan.job, plan.attempt, plan.world) == ("slurm", "7", 0, 4)
    assert plan.hosts == ["n8", "n9", "n10", "n11"]
    me = plan.me
    assert me is not None
    assert (me.rank, me.role, me.index, me.host, me.local_rank, me.devices) == (3, "worker", 2, "n11", 0, ["2", "3"])
    assert repr(me) == "<worker 2 (rank 3 on n11)>"
    assert me == plan.members[3] and me != plan.members[2]
    assert repr(plan) == "<Plan of 4 on slurm: 1 ps, 3 worker>"
    assert json.loads(plan.to_json())["members"][3]["host"] == "n11"


def test_roles_as_lists_and_texts() -> None:
    roles = [member.role for member in rallypoint.resolve(["worker", "ps", "worker", "ps"], environ=STEP).members]
    assert roles == ["worker", "ps", "worker", "ps"]
    roles = [member.role for member in rallypoint.resolve("ps,worker*3", environ=STEP).members]
    assert roles == ["ps", "worker", "worker", "worker"]
    spread = rallypoint.resolve({"ps": 2, "worker": 2}, environ={**STEP, "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, place="spread")
    assert [member.role for member in spread.members] == ["ps", "worker", "ps", "worker"]


def test_addresses_by_arithmetic() -> None:
    roster = rallypoint.resolve({"ps": 1, "worker": 3}, environ=STEP).static_roster(1337, host_suffix="-ib")
    assert roster.cluster() == {"ps": ["n8-ib:1337"], "worker": ["n9-ib:1337", "n10-ib:1337", "n11-ib:1337"]}
    assert json.loads(roster.tf_config())["task"] == {"type": "worker", "index": 2}
    assert json.loads(roster.tf_config(0))["task"] == {"type": "ps", "index": 0}
    mapped = rallypoint.resolve(environ={**STEP, "SLURM_STEP_RESV_PORTS": "12000-12001"})
    assert mapped.static_roster(host_map=r"s/^n(\d+)$/10.0.0.\1/").addresses[2] == "10.0.0.10:12000"


def test_every_captured_job_has_a_plan_that_is_true() -> None:
    steps = list(captured_steps())
    assert len(steps) > 150
    placed = 0
    for tasks in steps:
        for task in tasks:
            me = rallypoint.resolve(environ=task.variables).me
            assert me is not None and me.rank == task.rank, task
            if me.host is not None:
                placed += 1
                # A het step in an ordinary job shows no variable of its own: known, and told in docs/design.
                assert me.host == task.host or task.case.endswith("/hetstep_mid_lucky"), task
    assert placed > 600


def test_a_job_of_htcondor() -> None:
    cases = [ad.parent for ad in sorted((FIXTURES / "htcondor").glob("*/job.ad"))]
    assert len(cases) > 5
    for case in cases:
        variables = dict(line.split("=", 1) for line in (case / "job.env").read_text().splitlines() if "=" in line)
        variables.update(_CONDOR_JOB_AD=str(case / "job.ad"), _CONDOR_MACHINE_AD=str(case / "machine.ad"))
        plan = rallypoint.resolve(environ=variables)
        assert plan.scheduler == "htcondor" and plan.me is not None, case


def test_errors_are_a_tree_with_the_texts_of_the_command() -> None:
    with pytest.raises(errors.AllocationError, match="SLURM_STEP_NODELIST is not set, though SLURM_JOB_ID is") as raised:
        rallypoint.resolve(environ={"SLURM_JOB_ID": "1"})
    assert raised.value.hint == "start it with srun"
    with pytest.raises(errors.RoleError, match="2 members asked for .* but the allocation has 4 tasks"):
        rallypoint.resolve({"ps": 1, "worker": 1}, environ=STEP)
    with pytest.raises(errors.PlanError, match="but 5 per node are asked for") as raised:
        rallypoint.resolve(environ=STEP, gpus_per_node=5)
    assert raised.value.hint == "ask the scheduler for more, or leave gpus_per_node= out"
    with pytest.raises(errors.HostListError, match="the range ends before it begins"):
        rallypoint.expand_hostlist("n[3-1]")
    with pytest.raises(errors.AddressError, match="interface none0 has no address here"):
        rallypoint.own_address(interface="none0")
    with pytest.raises(errors.RosterError, match="the host of 2 of 3 members is not known"):
        ad = FIXTURES / "htcondor"
        file = next(path for path in sorted(ad.glob("*/job.ad")) if "TotalSubmitProcs = 3" in path.read_text())
        rallypoint.resolve(environ={"_CONDOR_JOB_AD": str(file)}).static_roster()
    for name in errors.__dict__:
        error = getattr(errors, name)
        if isinstance(error, type) and issubclass(error, Exception):
            assert issubclass(error, rallypoint.RallypointError) and issubclass(error, RuntimeError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rallypoint.resolve(on="pbs"),
        lambda: rallypoint.resolve({"ps": 1}, place="anywhere"),
        lambda: rallypoint.resolve({"no role": 1}, on="local"),
        lambda: rallypoint.resolve("worker*x", on="local"),
        lambda: rallypoint.resolve({"worker": 0}, on="local"),
        lambda: rallypoint.resolve([], on="local"),
        lambda: rallypoint.hold_port((20, 10)),
        lambda: rallypoint.hold_port((10, 20), port=5),
        lambda: rallypoint.port_in_use(0),
        lambda: rallypoint.own_address(network="10.0.0.0/99"),
        lambda: rallypoint.own_address(interface="lo", network="127.0.0.0/8"),
        lambda: rallypoint.resolve({"worker": 2}, on="local").meet("/tmp", rank=2),
        lambda: rallypoint.resolve({"worker": 2}, on="local").meet("/tmp", timeout=-1),
    ],
)
def test_bad_arguments_are_value_errors(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        call()


def test_numbers_that_are_none_are_refused() -> None:
    for port in (-1, 65536):
        with pytest.raises(OverflowError):
            rallypoint.port_in_use(port)
    with pytest.raises((OverflowError, ValueError, TypeError)):
        rallypoint.resolve({"worker": -1}, on="local")


def test_a_port_is_held_until_a_server_takes_it() -> None:
    def listen(port: int) -> socket.socket:
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("::", port))
        server.listen()
        return server

    with rallypoint.hold_port() as held:
        assert rallypoint.port_in_use(held.port)
        with pytest.raises(OSError):
            listen(held.port)
        with pytest.raises(errors.PortError):
            rallypoint.hold_port(port=held.port)
        held.hand_over()
        with listen(held.port) as server:
            assert socket.create_connection(("localhost", held.port)).close() is None
            assert server.getsockname()[1] == held.port
    assert not held.held
    with pytest.raises(errors.PortError, match=f"no port of {held.port}-{held.port} is free"):
        with rallypoint.hold_port(port=held.port):
            rallypoint.hold_port((held.port, held.port))


def test_ranges_of_ports() -> None:
    with rallypoint.hold_port() as one:
        port = one.port
        assert int(one) == port and f"{one}" == str(port)
    for spelled in ((port, port), range(port, port + 1), f"{port}-{port}", str(port), [port]):
        with rallypoint.hold_port(spelled) as held:
            assert held.port == port
    for wrong in ("x", "5-", "20-10", (0, 5)):
        with pytest.raises(ValueError):
            rallypoint.hold_port(wrong)


def test_own_addresses() -> None:
    assert rallypoint.own_address(network="127.0.0.0/8") == "127.0.0.1"
    assert rallypoint.own_address(interface="lo") == "127.0.0.1"
    address = rallypoint.own_address()
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as own:
        own.bind((address, 0))


def test_three_processes_meet(tmp_path: Path, programs: Programs) -> None:
    script = """
        import json, sys, rallypoint
        plan = rallypoint.resolve({"ps": 1, "worker": 2}, on="local")
        roster, held = plan.meet(sys.argv[1], say=lambda line: print(line, file=sys.stderr))
        print(json.dumps([roster.me.role, roster.me.index, roster.cluster(), held.port, held.held]))
    """
    for _ in range(3):
        programs.start(script, tmp_path / "meet")
    told = [json.loads(text.splitlines()[-1]) for text in programs.end()]
    assert programs.codes == [0, 0, 0]
    assert sorted((role, index) for role, index, *_ in told) == [("ps", 0), ("worker", 0), ("worker", 1)]
    clusters = [cluster for _, _, cluster, _, _ in told]
    assert clusters[0] == clusters[1] == clusters[2]
    for role, index, cluster, port, held in told:
        assert held and cluster[role][index] == f"127.0.0.1:{port}"
    assert list((tmp_path / "meet").iterdir()) == []


def test_who_waits_in_vain_names_the_missing(tmp_path: Path) -> None:
    lines: list[str] = []
    plan = rallypoint.resolve({"ps": 1, "worker": 2}, on="local")
    with pytest.raises(errors.MeetingTimeout, match="1 of 3 members have come; missing: ps 0 .*, worker 1") as raised:
        plan.meet(str(tmp_path), rank=1, timeout=1.0, say=lines.append)
    assert isinstance(raised.value, TimeoutError)
    assert any("1 of 3 members have come (0 s of 1 s); missing: ps 0" in line for line in lines), lines
    assert list(tmp_path.iterdir()) == []


def test_a_listener_that_fails_does_not_end_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(line: str) -> None:
        raise KeyError(line)

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))
    with pytest.raises(errors.MeetingTimeout):
        rallypoint.resolve({"worker": 2}, on="local").meet(str(tmp_path), timeout=0.5, say=fails)
    assert KeyError in told


def test_a_listener_that_is_interrupted_ends_it(tmp_path: Path) -> None:
    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rallypoint.resolve({"worker": 2}, on="local").meet(str(tmp_path), say=interrupted)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_wait(tmp_path: Path, programs: Programs) -> None:
    # What starts the tests may ignore Ctrl-C, as shells do for what they start in the background.
    script = """
        import signal, sys, rallypoint
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            rallypoint.resolve({"worker": 2}, on="local").meet(sys.argv[1], say=lambda line: print(line, flush=True))
        except KeyboardInterrupt:
            print("interrupted")
    """
    process = programs.start(script, tmp_path / "meet")
    assert process.stdout is not None
    while "1 of 2" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0
    assert list((tmp_path / "meet").iterdir()) == []


def test_the_gil_is_free_while_waiting(tmp_path: Path) -> None:
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    with pytest.raises(errors.MeetingTimeout):
        rallypoint.resolve({"worker": 2}, on="local").meet(str(tmp_path), timeout=1.0)
    stop.set()
    thread.join()
    assert counted > 50


def test_members_in_threads_of_one_process(tmp_path: Path) -> None:
    rosters: Dict[int, list[str]] = {}

    def take_part(rank: int) -> None:
        roster, _ = rallypoint.resolve({"worker": 3}, on="local").meet(str(tmp_path), rank=rank, timeout=60.0)
        rosters[rank] = roster.addresses

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=LIMIT)
    assert rosters[0] == rosters[1] == rosters[2] and len(rosters[0]) == 3


def test_forks_before_and_after_a_meeting(tmp_path: Path) -> None:
    """A forked child can meet, and what it leaves does not touch its parent's port."""

    def in_child(act: Callable[[], bool]) -> bool:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if act() else 1
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def meets(folder: Path) -> bool:
        roster, held = rallypoint.resolve({"worker": 1}, on="local").meet(str(folder), timeout=30.0)
        return held.held and len(roster.addresses) == 1

    assert meets(tmp_path / "before")
    roster, held = rallypoint.resolve({"worker": 1}, on="local").meet(str(tmp_path / "parent"), timeout=30.0)

    def child() -> bool:
        held.release()
        return meets(tmp_path / "child")

    assert in_child(child)
    assert held.held and rallypoint.port_in_use(held.port), "the parent holds it still"
    held.release()
    assert not rallypoint.port_in_use(held.port)


def test_the_command_is_the_same_program() -> None:
    version = subprocess.run(
        [sys.executable, "-m", "rallypoint", "--version"], capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert version.stdout.strip() == f"rallypoint {rallypoint.__version__}"
    bad = subprocess.run([sys.executable, "-m", "rallypoint", "no-such"], capture_output=True, text=True, timeout=LIMIT)
    assert bad.returncode == 2 and "no-such" in bad.stderr


def test_no_framework_is_imported() -> None:
    heavy = "import rallypoint, rallypoint.tf4slurm.ServerDictionary, sys; print([m for m in ('tensorflow', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert done.stdout.strip() == "[]"


def test_types_are_true() -> None:
    """mypy in strict mode, and the stubs against the compiled module."""
    config = ["--config-file", str(ROOT / "pyproject.toml")]
    for command in (["mypy", *config, "-p", "rallypoint"], ["mypy.stubtest", "rallypoint._rallypoint"]):
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd="/", timeout=LIMIT)
        assert done.returncode == 0, done.stdout + done.stderr
