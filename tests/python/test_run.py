"""Jobs that Python starts: real processes, by the command of the installed wheel."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

import pytest

import rallypoint
from rallypoint import _options, _outcome, _run, errors
from rallypoint.__main__ import find_command

from conftest import LIMIT, ROOT
from marked import Marked, marked, shell


def test_a_job_that_succeeds() -> None:
    events: List[rallypoint.Event] = []
    script = "if [ $RALLYPOINT_ROLE = ps ]; then exec sleep 1000; fi"
    outcome = rallypoint.run(shell(script), ps=1, workers=2, on_event=events.append)
    assert (outcome.code, outcome.ok, outcome.verdict, outcome.attempt) == (0, True, "success", 0)
    assert outcome.first_failure is None
    assert [(member.rank, member.role, member.index) for member in outcome.members] == [
        (0, "ps", 0),
        (1, "worker", 0),
        (2, "worker", 1),
    ]
    ps, *workers = outcome.members
    assert (ps.end, ps.signal, ps.exit_code, ps.stopped) == ("killed", signal.SIGTERM, None, True)
    for worker in workers:
        assert (worker.end, worker.signal, worker.exit_code, worker.stopped) == ("exited", None, 0, False)
        assert worker.ok and worker.pid and worker.host and worker.seconds > 0 and worker.peak_kib > 0
    names = [event.name for event in events]
    assert names[0] == "roster" and names[-1] == "over" and names.count("started") == 3
    assert [entry["role"] for entry in events[0].members] == ["ps", "worker", "worker"]
    for rank in range(3):
        of_rank = [event.name for event in events if event.fields.get("rank") == rank]
        assert of_rank[0] == "started" and of_rank[-1] in ("finished", "stopped"), of_rank
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert events[-1].code == 0 and events[-1].from_ == "member"
    with pytest.raises(AttributeError, match="the event 'over' has no 'rank'"):
        events[-1].rank


def test_the_first_failure_is_the_cause() -> None:
    script = "if [ $RALLYPOINT_RANK = 1 ]; then exit 3; fi; exec sleep 1000"
    outcome = rallypoint.run(shell(script), workers=3)
    assert (outcome.code, outcome.ok, outcome.verdict) == (3, False, "failed")
    assert outcome.first_failure == outcome.members[1]
    assert (outcome.members[1].exit_code, outcome.members[1].stopped, outcome.members[1].ok) == (3, False, False)
    assert [member.stopped for member in outcome.members] == [True, False, True]
    assert str(outcome) == "failed (exit code 3, first failure: worker 1)"
    with pytest.raises(errors.JobFailed, match="first failure: worker 1") as raised:
        rallypoint.run(shell(script), workers=3, check=True)
    assert raised.value.code == 3 and raised.value.outcome.members[1].exit_code == 3
    assert pickle.loads(pickle.dumps(raised.value)).outcome == raised.value.outcome


def test_a_failure_that_is_tolerated_is_no_cause() -> None:
    script = "test $RALLYPOINT_RANK = 1"
    outcome = rallypoint.run(shell(script), workers=2, tolerate="worker")
    assert outcome.ok and outcome.first_failure is None and outcome.members[0].exit_code == 1
    all_fail = rallypoint.run(shell("exit 4"), workers=2, tolerate=["worker"])
    assert (all_fail.verdict, all_fail.code) == ("failed", 4)
    assert all_fail.first_failure in all_fail.members


def test_members_that_come_back_are_counted(tmp_path: Path) -> None:
    outcome = rallypoint.run(shell("mkdir been-here && exit 1; exit 0"), workers=1, restart={"worker": 3}, cwd=tmp_path)
    assert outcome.ok and outcome.members[0].restarts == 1


def test_killed_members_have_their_signal() -> None:
    outcome = rallypoint.run(shell("kill -9 $$"), workers=1)
    assert (outcome.code, outcome.verdict) == (137, "failed")
    assert outcome.first_failure is not None and outcome.first_failure.signal == signal.SIGKILL


def test_events_can_be_read_at_any_time_and_often(marked: Marked) -> None:
    job = rallypoint.start(marked.command, workers=2, env=marked.env)
    seen = []
    for event in job.events():
        seen.append(event)
        if [other.name for other in seen].count("started") == 2:
            break
    marked.wait_until_ready(2)
    assert job.poll() is None and "running" in repr(job)
    with pytest.raises(TimeoutError, match="has not ended within 0.01 s"):
        job.wait(timeout=0.01)
    job.stop()
    assert job.wait(timeout=LIMIT) == job.poll()
    everything = list(job.events())
    assert everything[: len(seen)] == seen and everything[-1].name == "over"
    assert list(job.events()) == everything


def test_stop_keeps_the_grace(marked: Marked) -> None:
    job = rallypoint.start(marked.command, workers=1, env=marked.env)
    marked.wait_until_ready()
    job.stop()
    job.stop()
    outcome = job.wait(timeout=LIMIT)
    assert (outcome.verdict, outcome.code, outcome.ok) == ("interrupted", 196, False)
    assert marked.noted() == ["ready", "asked", "saved"]
    assert not marked.living()
    job.stop()
    job.kill()


@pytest.mark.parametrize("stop_first", [False, True])
def test_kill_does_not_wait_for_the_grace(marked: Marked, stop_first: bool) -> None:
    script = "trap '' TERM; echo ready > $NOTES; while :; do sleep 0.1; done"
    job = rallypoint.start(shell(script), workers=1, grace=3600, env=marked.env)
    marked.wait_until_ready()
    if stop_first:
        job.stop()
    job.kill()
    outcome = job.wait(timeout=LIMIT)
    assert (outcome.verdict, outcome.members[0].signal) == ("interrupted", signal.SIGKILL)
    assert not marked.living()


def test_a_block_ends_its_job(marked: Marked) -> None:
    with rallypoint.start(marked.command, workers=1, env=marked.env) as job:
        marked.wait_until_ready()
    outcome = job.poll()
    assert outcome is not None and outcome.verdict == "interrupted" and marked.noted()[-1] == "saved"
    with rallypoint.start(["true"], workers=1) as job:
        assert job.wait(timeout=LIMIT).ok


def test_what_on_event_raises_ends_the_job_and_goes_on(marked: Marked) -> None:
    def fails(event: rallypoint.Event) -> None:
        if event.name == "started":
            marked.wait_until_ready()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        rallypoint.run(marked.command, workers=1, env=marked.env, on_event=fails)
    assert not marked.living() and marked.noted() == ["ready", "asked", "saved"]


def test_the_job_outlives_the_thread_that_has_started_it(marked: Marked) -> None:
    """A parent-death signal would end it with the thread."""
    jobs: List[rallypoint.Job] = []
    thread = threading.Thread(
        target=lambda: jobs.append(rallypoint.start(marked.command, workers=1, env=marked.env))
    )
    thread.start()
    thread.join()
    marked.wait_until_ready()
    with pytest.raises(TimeoutError):
        jobs[0].wait(timeout=1)
    jobs[0].stop()
    assert jobs[0].wait(timeout=LIMIT).verdict == "interrupted" and marked.noted()[-1] == "saved"


def test_who_is_interrupted_while_it_starts_a_job_has_none(marked: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle is lost at that moment: the job must not go on without one, nor the end of Python wait for it."""

    class Interrupted(_run.Job):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            marked.wait_until_ready()
            raise KeyboardInterrupt

    monkeypatch.setattr(_run, "Job", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        rallypoint.run(marked.command, workers=1, env=marked.env)
    assert not marked.living() and marked.noted() == ["ready", "asked", "saved"]


def test_variables_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEN_AWAY", "1")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        script = 'echo "$PWD,$GIVEN,${TAKEN_AWAY-none},$HOME"'
        rallypoint.run(shell(script), workers=1, cwd=tmp_path, env={"GIVEN": "x y", "TAKEN_AWAY": None}, prefix="")
    assert shown.getvalue() == f"{tmp_path},x y,none,{os.environ['HOME']}\n"


def test_members_inherit_nothing_of_it() -> None:
    """One that held the events open would make their reader wait for what a member has left behind."""
    script = """
import os
listed = os.listdir("/proc/self/fd")
print(*sorted(number for number in listed if os.path.exists(f"/proc/self/fd/{number}")))
"""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        rallypoint.run([sys.executable, "-c", script], workers=1, prefix="")
    assert shown.getvalue() == "0 1 2\n"


def test_output_goes_where_the_callers_goes(capsys: pytest.CaptureFixture[str]) -> None:
    rallypoint.run(shell("echo out; echo err >&2; printf 'no end \\303\\244'"), workers=1)
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["[worker 0] out", "[worker 0] no end ä"]
    assert "[worker 0] err" in captured.err and "1 member on 1 host" in captured.err
    rallypoint.run(["echo", "out"], workers=1, quiet=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_stdout_that_fails_does_not_hold_up_the_job() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise ValueError("closed")

    with contextlib.redirect_stdout(Broken()):
        assert rallypoint.run(shell("yes | head -c 1000000"), workers=1).ok


def test_much_output_while_nobody_reads_events(programs: Any) -> None:
    """200 MB come through, in little memory."""
    script = """
        import contextlib, io, resource, rallypoint

        class Count(io.TextIOBase):
            total = 0
            def write(self, text):
                self.total += len(text)
                return len(text)

        count = Count()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with contextlib.redirect_stdout(count):
            job = rallypoint.start(["sh", "-c", "yes 0123456789abcde | head -c 200000000"], workers=1, prefix="")
            outcome = job.wait(timeout=200)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(outcome.ok, count.total, (after - before) // 1024)
    """
    programs.start(script)
    ok, total, grown = programs.end()[0].splitlines()[-1].split()
    assert (ok, total) == ("True", "200000000")
    assert int(grown) < 50, f"{grown} MiB more"


def test_events_that_nobody_reads_are_bounded_and_the_gap_is_told() -> None:
    events = _run.Events()
    for number in range(_run.KEPT + 5):
        events.add(rallypoint.Event("restarted", float(number), 0, {"rank": number}))
    reader = iter(events)
    missed = next(reader)
    assert (missed.name, missed.count, missed.time) == ("missed", 5, 5.0)
    events.complete()
    assert [event.rank for event in reader] == list(range(5, _run.KEPT + 5))


def test_lines_of_newer_versions_are_kept_and_broken_ones_left_out() -> None:
    event = _outcome.parse_event(b'{"time":1.5,"attempt":2,"event":"moved","rank":1,"to":{"host":"n2"}}\n')
    assert event is not None
    assert (event.name, event.time, event.attempt, event.rank, event.to) == ("moved", 1.5, 2, 1, {"host": "n2"})
    assert repr(event) == "<moved rank=1 to={'host': 'n2'}>"
    assert pickle.loads(pickle.dumps(event)) == event
    for broken in (b'{"time":1.5,"attem', b"[]\n", b'{"event":"x"}\n', b'{"time":"x","attempt":0,"event":"x"}\n'):
        assert _outcome.parse_event(broken) is None
    record = _outcome.Record(())
    record.add(event)
    assert record.outcome(3, False).verdict == "failed"


@pytest.mark.parametrize(
    ("code", "over", "asked", "verdict", "told"),
    [
        (0, (0, "member"), False, "success", 0),
        (3, (3, "member"), False, "failed", 3),
        (196, (196, "rallypoint"), True, "interrupted", 196),
        (196, (196, "member"), False, "failed", 196),
        (199, (199, "rallypoint"), False, "output-lost", 199),
        (195, (195, "rallypoint"), False, "failed", 195),
        (198, None, False, "lost", 198),
        (194, None, False, "lost", 194),
        (-9, None, False, "lost", 137),
        (-15, None, True, "interrupted", 143),
        (5, None, False, "failed", 5),
    ],
)
def test_verdicts(code: int, over: Optional[Tuple[int, str]], asked: bool, verdict: str, told: int) -> None:
    record = _outcome.Record(())
    if over is not None:
        record.add(rallypoint.Event("over", 0.0, 0, {"code": over[0], "from": over[1]}))
    outcome = record.outcome(code, asked)
    assert (outcome.verdict, outcome.code) == (verdict, told)


def test_an_agent_that_is_killed_is_a_job_that_is_lost(marked: Marked) -> None:
    job = rallypoint.start(marked.command, workers=1, env=marked.env)
    marked.wait_until_ready()
    agent = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(agent[0]), signal.SIGKILL)
    outcome = job.wait(timeout=LIMIT)
    assert (outcome.verdict, outcome.code) == ("lost", 198)
    assert outcome.members[0].end is None and not marked.living()


def test_a_job_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.RunError, match="no-such-program is not a program that can be run") as raised:
        rallypoint.run(["no-such-program"], workers=1)
    assert raised.value.code == 2 and raised.value.hint == "give its path, or put it on PATH"
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.code, str(copy)) == (2, str(raised.value))
    with pytest.raises(errors.RunError, match="invalid value 'soon' for '--grace"):
        rallypoint.run(["true"], grace="soon")
    job = rallypoint.start(["true"], workers=2, meet=tmp_path, meet_timeout=0.2)
    for _ in range(2):
        with pytest.raises(errors.RunError, match="missing: worker 1") as raised:
            job.wait(timeout=LIMIT)
        assert raised.value.code == 193
    with pytest.raises(errors.RunError):
        job.poll()
    assert {event.name for event in job.events()} <= {"waiting", "came"}
    with pytest.raises(FileNotFoundError):
        rallypoint.run(["true"], workers=1, cwd=tmp_path / "none")


def test_two_handles_meet(tmp_path: Path) -> None:
    jobs = [rallypoint.start(["true"], workers=2, meet=tmp_path, meet_timeout=60) for _ in range(2)]
    outcomes = [job.wait(timeout=LIMIT) for job in jobs]
    assert all(outcome.ok for outcome in outcomes)
    # The leader alone knows how all have ended.
    assert sorted(len(outcome.members) for outcome in outcomes) == [0, 2]
    failing = [rallypoint.start(["false"], workers=2, meet=tmp_path, meet_timeout=60) for _ in range(2)]
    assert [(job.wait(timeout=LIMIT).verdict, job.wait().code) for job in failing] == [("failed", 1)] * 2


def test_a_fault_on_purpose_is_an_event_and_a_failure_as_any_other() -> None:
    events: List[rallypoint.Event] = []
    outcome = rallypoint.run(["sleep", "100"], workers=2, rehearse=["kill:worker.1@200ms"], on_event=events.append)
    assert (outcome.verdict, outcome.code) == ("failed", 137)
    assert outcome.first_failure is not None and outcome.first_failure.rank == 1
    assert [(event.rank, event.deed) for event in events if event.name == "rehearsed"] == [(1, "kill")]


def test_every_keyword_is_an_option_of_the_command_and_no_option_is_forgotten() -> None:
    shown = subprocess.run([str(find_command()), "run", "--help"], capture_output=True, text=True, check=True)
    there = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", shown.stdout, flags=re.MULTILINE))
    keywords = {_options.option_of(keyword) for keyword in _options.Options.__annotations__}
    assert keywords <= there
    assert there - keywords == {"--dry-run", "--events", "--help", "--version"}
    assert set(_options.WRITTEN) <= set(_options.Options.__annotations__)


def test_keywords_as_they_are_typed() -> None:
    def typed(**options: object) -> List[str]:
        return _options.arguments("run", options)

    assert typed(chief=True, evaluator=False, ps=None, workers="rest") == ["--chief", "--workers=rest"]
    assert typed(restart={"worker": 3, "ps": 1}) == ["--restart=worker=3", "--restart=ps=1"]
    assert typed(tolerate="worker") == typed(tolerate=["worker"]) == ["--tolerate=worker"]
    assert typed(roles=["ps", "worker*2"], serve="ps") == ["--roles=ps,worker*2", "--serve=ps"]
    assert typed(grace=0.5, meet_timeout="2h") == ["--grace=0.500000s", "--meet-timeout=2h"]
    assert typed(port_range=(20000, 20999)) == typed(port_range=range(20000, 21000)) == ["--port-range=20000-20999"]
    assert typed(meet=Path("/a b"), host_suffix="-ib") == ["--meet=/a b", "--host-suffix=-ib"]
    assert typed(bind_gpus=False, threads=True, stand_in=False) == ["--no-gpu-binding", "--threads=on", "--stand-in=off"]
    assert typed(bind_gpus=True, restart={}, tolerate=[], tee=False) == []
    assert typed(rehearse="kill:worker.1@30s,warn:all@1h") == ["--rehearse=kill:worker.1@30s,warn:all@1h"]
    assert typed(rehearse=["kill:ps@1s", "stop:ps@9s+2s"]) == ["--rehearse=kill:ps@1s", "--rehearse=stop:ps@9s+2s"]
    assert typed(srun_args=["--exact", "-c 2"]) == ["--srun-args=--exact", "--srun-args=-c 2"]


def test_wrong_arguments_are_type_errors() -> None:
    anything: Any = rallypoint
    with pytest.raises(TypeError, match=r"start\(\) got an unexpected keyword argument 'worker'"):
        anything.start(["true"], worker=2)
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'events'"):
        anything.run(["true"], events="file")
    with pytest.raises(TypeError, match=r"run\(\) takes the words of the command"):
        anything.run("python train.py", workers=1)
    with pytest.raises(TypeError, match=r"run\(\) cannot take restart=3"):
        anything.run(["true"], restart=3)


def test_nothing_is_imported_before_it_is_used() -> None:
    script = "import sys, rallypoint; print([m for m in ('typing', 'subprocess', 'threading', 'json') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-SIc", f"sys = __import__('sys'); sys.path[:0] = {sys.path!r}; {script}"], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert done.stdout.strip() == "[]"
    assert {"run", "start", "Job", "Outcome", "MemberOutcome", "Event"} <= set(dir(rallypoint))


def examples() -> Iterator[Tuple[str, str]]:
    doc = rallypoint.__doc__ or ""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", doc)
    yield "rallypoint", "\n".join(textwrap.dedent(block) for block in blocks)
    guide = (ROOT / "docs" / "guides" / "python.md").read_text()
    section = re.search(r"^## Run a job\n(.*?)^## ", guide, flags=re.MULTILINE | re.DOTALL)
    assert section is not None
    yield "guide", "\n".join(re.findall(r"```python\n(.*?)```", section[1], flags=re.DOTALL))


def test_examples_have_right_types(tmp_path: Path) -> None:
    for name, text in examples():
        assert "rallypoint.run(" in text, name
        (tmp_path / f"{name}_example.py").write_text(text)
    config = ["--config-file", str(ROOT / "pyproject.toml")]
    files = sorted(map(str, tmp_path.glob("*_example.py")))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *config, *files], capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print('rank', os.environ['RALLYPOINT_RANK'])\n")
    text = dict(examples())["guide"]
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0" in done.stdout, done.stdout
