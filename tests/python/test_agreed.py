"""Programs that `rallypoint run` has started take over what was agreed on there, even inside a Slurm step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.errors import RoleError
from rallypoint.tf4slurm.ServerDictionary import GetServerDictionary

ROOT = Path(__file__).resolve().parents[2]
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
ASK = "import json; from rallypoint.tf4slurm import ServerDictionary as s; print(json.dumps(s.GetServerDictionary({})))"


def started(monkeypatch: pytest.MonkeyPatch, cluster: dict[str, list[str]], role: str, index: int) -> None:
    monkeypatch.setenv("RALLYPOINT_RANK", "1")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}))


def test_a_dictionary_of_members_that_the_command_started() -> None:
    roles = ["ps", "worker", "worker"]
    program = [sys.executable, "-c", ASK.format(roles)]
    run = [RALLYPOINT, "run", "--ps", "1", "--workers", "2", "--until", "all", "--"]
    done = subprocess.run(run + program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line.partition("] ")[2]) for line in done.stdout.splitlines()]
    assert sorted((role, index) for _, role, index in answers) == [("ps", 0), ("worker", 0), ("worker", 1)]
    dictionaries = [dictionary for dictionary, _, _ in answers]
    assert dictionaries[0] == dictionaries[1] == dictionaries[2]
    assert [len(dictionaries[0][role]) for role in ("ps", "worker")] == [1, 2]


def test_the_commands_answer_goes_before_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_PROCID": "5", "SLURM_STEP_NODELIST": "n[1-9]"}.items():
        monkeypatch.setenv(name, value)
    started(monkeypatch, {"worker": ["n1:1", "n2:1"]}, "worker", 1)
    assert GetServerDictionary(["worker", "worker"]) == ({"ps": [], "worker": ["n1:1", "n2:1"]}, "worker", 1)


def test_tasks_may_meet_though_ports_are_reserved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A step of a cluster whose names have no address here: what follows from its variables is of no use.
    for name in [name for name in os.environ if name.startswith(("SLURM", "RALLYPOINT", "TF_CONFIG"))]:
        monkeypatch.delenv(name)
    step = {"NODELIST": "nowhere", "NUM_TASKS": "1", "NUM_NODES": "1", "TASKS_PER_NODE": "1", "RESV_PORTS": "12000"}
    job = {"JOB_ID": "7", "STEP_ID": "0", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}
    for name, value in {**job, **{f"STEP_{name}": value for name, value in step.items()}}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert GetServerDictionary(["worker"])[0]["worker"] == ["nowhere:12000"]
    (address,) = GetServerDictionary(["worker"], meet=str(tmp_path))[0]["worker"]
    assert not address.startswith("nowhere:")
    assert list(tmp_path.iterdir()) == []


def test_other_roles_than_those_of_the_command_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, {"ps": ["n1:1"], "worker": ["n2:1"]}, "worker", 0)
    with pytest.raises(RoleError, match=r"asks for {'ps': 1, 'worker': 2}, but was started with {'ps': 1, 'worker': 1}"):
        GetServerDictionary(["ps", "worker", "worker"])


def test_infiniband_is_then_the_commands_to_choose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started(monkeypatch, {"worker": ["n1:1"]}, "worker", 0)
    assert GetServerDictionary(["worker"], InfiniBand=True)[0]["worker"] == ["n1:1"]
    assert "--interface" in capsys.readouterr().err
