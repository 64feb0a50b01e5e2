"""The pool that `make htcondor` has started, and a folder for each job."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool import Pool


@pytest.fixture(scope="session")
def pool() -> Pool:
    folder = os.environ.get("POOL")
    assert folder, "no pool: start the tests with `make htcondor`"
    count = int((Path(folder) / "up").read_text())
    return Pool(Path(folder), [f"ex{i + 1}" for i in range(count)])


@pytest.fixture(autouse=True)
def nothing_is_left(pool: Pool) -> Iterator[None]:
    yield
    pool.run("condor_rm", "-all", check=False)
    pool.release_idle_claims()


def folder(pool: Pool, request: pytest.FixtureRequest, place: str) -> Path:
    made = pool.folder / place / request.node.name.replace("[", "-").replace("]", "")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    return made


@pytest.fixture
def shared(pool: Pool, request: pytest.FixtureRequest) -> Path:
    """A folder that all hosts see."""
    return folder(pool, request, "shared")


@pytest.fixture
def apart(pool: Pool, request: pytest.FixtureRequest) -> Path:
    """A folder that only the submit host sees."""
    return folder(pool, request, "apart")


@pytest.fixture
def hosts(pool: Pool) -> list[str]:
    """Execute hosts with addresses of their own."""
    assert pool.hosts, "a personal pool has none"
    return pool.hosts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "hosts" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.root)
