"""The Python resolver as the job itself, without `rallypoint run` and without a shared file system."""

from pathlib import Path

import pytest
from mirrored import SUM
from pool import PYTHON, RALLYPOINT, Pool, description

SCRIPT = f"""
from rallypoint._rallypoint import reachable
from rallypoint.tensorflow import HTCondorClusterResolver

resolver = HTCondorClusterResolver(timeout=80)
{SUM}
print(resolver.task_type, resolver.task_id, "sees", number, flush=True)
# Worker 0 hosts the others' coordination and has to leave last.
other = resolver.cluster_spec().task_address("worker", 1)
until = time.monotonic() + 60
while resolver.task_id == 0 and reachable([other], 1.0)[0] and time.monotonic() < until:
    time.sleep(0.05)
os._exit(0)
"""


@pytest.mark.parametrize("universe", ["vanilla", "parallel"])
def test_mirrored_workers_that_meet_by_chirp(pool: Pool, apart: Path, hosts: list[str], universe: str) -> None:
    (apart / "resolver.py").write_text(SCRIPT)
    more = "transfer_input_files = resolver.py\nenvironment = TF_CPP_MIN_LOG_LEVEL=2"
    text = description("resolver.py", universe=universe, count=2, shared=False, more=more)
    text = text.replace(f"executable = {RALLYPOINT}", f"executable = {PYTHON}")
    text = text.replace("transfer_executable = True", "transfer_executable = False")
    cluster = pool.submit(apart, text)
    ended = cluster.wait(2 if universe == "vanilla" else 1)
    assert set(ended.values()) == {0}, cluster.text()
    for number in range(2):
        assert f"worker {number} sees 3.0" in cluster.text(), cluster.text()
    assert "meeting: " in cluster.text()
