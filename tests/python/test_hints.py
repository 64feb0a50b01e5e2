"""Hints name what a Python program can write, and are values of their own."""

from __future__ import annotations

import copy
import pickle
import socket
from pathlib import Path

import pytest

import rallypoint
from rallypoint import errors


def test_a_meeting_names_its_own_keyword(tmp_path: Path) -> None:
    plan = rallypoint.resolve({"worker": 2}, on="local", environ={})
    with pytest.raises(errors.MeetingTimeout, match="1 of 2 members have come") as raised:
        plan.meet(str(tmp_path), rank=0, timeout=0.2)
    assert raised.value.hint == "timeout= gives them longer"
    assert str(raised.value) == f"{raised.value.problem}; hint: {raised.value.hint}"


def test_addresses_and_ports_name_their_keywords() -> None:
    plan = rallypoint.resolve({"worker": 2}, on="local", environ={})
    with pytest.raises(errors.RosterError) as beyond:
        plan.static_roster(65535)
    assert beyond.value.hint == "lower port_base="
    with pytest.raises(errors.AddressError, match=r"^the host map s/\(/b/: ") as rule:
        plan.static_roster(host_map="s/(/b/")
    assert rule.value.hint is not None and rule.value.hint.startswith("write it as sed does")
    with socket.socket() as taken:
        taken.bind(("", 0))
        with pytest.raises(errors.PortError) as port:
            rallypoint.hold_port(port=taken.getsockname()[1])
    assert port.value.hint == "another process has it; leave port= out for a free one"


def test_what_python_cannot_choose_is_an_option_of_the_command() -> None:
    with pytest.raises(errors.AllocationError) as no_job:
        rallypoint.resolve(on="slurm", environ={})
    assert no_job.value.hint == 'run it under srun or sbatch, or use on="local"'
    with pytest.raises(errors.AllocationError) as no_ad:
        rallypoint.resolve(environ={"_CONDOR_JOB_AD": "/no/such/job.ad"})
    assert no_ad.value.hint is not None and no_ad.value.hint.endswith("`rallypoint plan --job-ad FILE`")
    with pytest.raises(errors.RoleError) as nobody:
        rallypoint.resolve({"worker": 0}, environ={})
    assert nobody.value.hint == 'give at least jobs={"worker": 1}'


def test_a_hint_is_kept_and_none_is_none() -> None:
    error = errors.MeetingTimeout("nobody came", hint="timeout= gives them longer")
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(other) == "nobody came; hint: timeout= gives them longer"
        assert (other.problem, other.hint) == (error.problem, error.hint)
    assert str(errors.MissingVariable("which one?", hint="give it")) == "which one? hint: give it"
    assert errors.PortError("no hint: here").hint is None
