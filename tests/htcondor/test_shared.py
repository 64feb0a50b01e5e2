"""Members that meet in a directory of a shared file system."""

from pathlib import Path

from pool import RALLYPOINT, Pool

# Three procs, a member each.
VANILLA = f"""
executable = {RALLYPOINT}
transfer_executable = False
should_transfer_files = NO
arguments = "%s"
output = out.$(Process)
error = err.$(Process)
log = log
request_memory = 128
"""


def test_three_procs_meet_in_a_directory(pool: Pool, shared: Path) -> None:
    script = "if [ $RALLYPOINT_ROLE = ps ]; then exec sleep 600; fi; echo rank $RALLYPOINT_RANK of $RALLYPOINT_WORLD"
    arguments = f"run --ps 1 --meet {shared}/meet -- /bin/sh -c '{script}'"
    cluster = pool.submit(shared, VANILLA % arguments + "queue 3\n")
    assert cluster.wait(3) == {0: 0, 1: 0, 2: 0}, cluster.text()
    assert "rank 1 of 3" in cluster.text() and "rank 2 of 3" in cluster.text()
    assert list((shared / "meet").iterdir()) == []
