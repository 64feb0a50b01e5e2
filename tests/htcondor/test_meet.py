"""Members find each other in both universes, with and without a shared file system."""

from pathlib import Path

import pytest
from pool import Pool, description

SCRIPT = "[ $RALLYPOINT_ROLE = ps ] && exec sleep 600; echo rank $RALLYPOINT_RANK of $RALLYPOINT_WORLD"


@pytest.mark.parametrize("universe", ["vanilla", "parallel"])
@pytest.mark.parametrize("place", ["shared", "apart"])
def test_members_meet(pool: Pool, request: pytest.FixtureRequest, universe: str, place: str) -> None:
    folder: Path = request.getfixturevalue(place)
    arguments = f"run --ps 1 -- /bin/sh -c '{SCRIPT}'"
    cluster = pool.submit(folder, description(arguments, universe=universe, count=3, shared=place == "shared"))
    ends = cluster.wait(3 if universe == "vanilla" else 1)
    assert set(ends.values()) == {0}, cluster.text()
    assert all(f"rank {rank} of 3" in cluster.text() for rank in (1, 2)), cluster.text()
    way = {
        ("shared", "vanilla"): f"meeting: directory {folder}",
        ("shared", "parallel"): f"meeting: directory {folder}",
        ("apart", "vanilla"): f"meeting: submit directory {folder}, by chirp",
        ("apart", "parallel"): "meeting: the job's ad, by chirp",
    }
    assert cluster.text().count(way[place, universe]) == 3, cluster.text()
    left = {file.name for file in folder.iterdir()} - {"job.sub", "log"}
    assert left == {f"{kind}.{number}" for kind in ("out", "err") for number in range(3)}, "nothing is left"
