"""`rallypoint submit slurm`: a script that Slurm takes, a job that runs, and mistakes found before it waits."""

import pytest
from cluster import RALLYPOINT, Cluster, Job

CONFIG = """
[env.tf17-py3]
setup = ["export SETUP='two words'", "module() { export MODULES=$2; }", "module load tensorflow/1.7"]

[submit.slurm]
time = "7"
sbatch = ["--comment='from the file'"]
"""


@pytest.fixture
def project(cluster: Cluster) -> Cluster:
    (cluster.folder / "rallypoint.toml").write_text(CONFIG)
    (cluster.folder / "train.sh").write_text('echo "$RALLYPOINT_ROLE: $SETUP, $MODULES, $*"\n[ $1 = fail ] && exit 5\nexit 0\n')
    return cluster


def submit(cluster: Cluster, *words: str) -> list[str]:
    return [RALLYPOINT, "submit", "slurm", *words]


def test_a_job_with_an_environment_is_submitted(project: Cluster) -> None:
    command = submit(project, "-N2", "--ntasks-per-node", "2", "--ps", "1", "--until", "all", "--env", "tf17-py3")
    options = ["-o", "%j.out", "--sbatch=--nice=5 --mail-type=NONE", "--", "bash", "train.sh", "a b"]
    done = project.call(*command, *options)
    assert done.code == 0, done.text
    job = Job(project, done.out.strip())
    assert job.wait() == "COMPLETED", job.log()
    assert job.log().count("worker: two words, tensorflow/1.7, a b") == 3, job.log()
    shown = job.show()
    assert (shown["JobName"], shown["NumNodes"], shown["TimeLimit"]) == ("bash", "2", "00:07:00")
    # What is typed takes the place of what stands in the file.
    assert shown["Nice"] == "5" and "Comment" not in shown
    job.leaves_nothing()


@pytest.mark.parametrize("word, code", [("fine", 0), ("fail", 5)])
def test_wait_tells_state_and_output_and_ends_with_the_jobs_code(project: Cluster, word: str, code: int) -> None:
    done = project.call(*submit(project, "-n2", "--until", "all", "--wait", "--", "bash", "train.sh", word))
    assert done.code == code, done.text
    assert f", {word}" in done.out
    assert ("COMPLETED, exit code 0:0" if code == 0 else "FAILED, exit code 5:0") in done.err, done.text


def test_dry_run_prints_what_sbatch_takes(project: Cluster) -> None:
    done = project.call(*submit(project, "-n2", "--gpus-per-node", "2", "--time", "5", "--dry-run", "--", "bash", "train.sh", "x"))
    assert done.code == 0 and project.jobs() == [], done.text
    assert "#SBATCH --time=5\n" in done.out and "#SBATCH --gpus-per-node=2\n" in done.out
    (project.folder / "script").write_text(done.out)
    tested = project.call("sbatch", "--test-only", "script")
    assert tested.code == 0, tested.text


@pytest.mark.parametrize(
    "words, expected",
    [
        (["-n2", "--", "python3", "nosuch.py"], "nosuch.py does not exist in"),
        (["-n2", "--", "./nosuch"], "./nosuch does not exist"),
        (["-n2", "--ps", "3", "--", "bash", "train.sh"], "but the allocation has 2 tasks"),
        (["-n2", "--env", "tf18", "--", "bash", "train.sh"], "there are tf17-py3"),
        (["-n2", "--sbatch", "--comment='open", "--", "bash", "train.sh"], "a quote is not closed"),
        (["-n2", "-p", "nosuch", "--", "bash", "train.sh"], "sbatch refuses the job"),
        (["-n2", "--grace", "soon", "--", "bash", "train.sh"], "expected a time such as 10s"),
    ],
)
def test_mistakes_are_found_before_the_job_waits(project: Cluster, words: list[str], expected: str) -> None:
    done = project.call(*submit(project, *words))
    assert done.code == 2 and done.out == "", done.text
    assert expected in done.err and project.jobs() == []
