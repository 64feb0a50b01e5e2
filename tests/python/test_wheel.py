"""The wheel on a machine that has Python and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import LIMIT, ROOT

WHEELS = Path(os.environ.get("WHEELS", ROOT / "build" / "wheels"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment with the wheel in it; no cargo, no index of packages."""
    [wheel] = WHEELS.glob("rallypoint-*.whl")
    folder = tmp_path_factory.mktemp("machine")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=LIMIT)
    subprocess.run(
        [str(folder / "bin" / "pip"), "install", "--quiet", "--no-index", "--disable-pip-version-check", str(wheel)],
        check=True,
        timeout=LIMIT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    return folder


def run(installed: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": str(installed)}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environ, cwd=installed)


def test_the_command_is_native(installed: Path) -> None:
    assert (installed / "bin" / "rallypoint").read_bytes()[:4] == b"\x7fELF"
    done = run(installed, "rallypoint", "run", "--workers", "2", "--", "sh", "-c", "echo $RALLYPOINT_ROLE $RALLYPOINT_INDEX")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[worker 0] worker 0", "[worker 1] worker 1"]


def test_the_package_and_its_command_belong_together(installed: Path) -> None:
    script = "import rallypoint; print(rallypoint.__version__); print(rallypoint.resolve({'ps': 1, 'worker': 1}, on='local').world)"
    done = run(installed, "python", "-c", script)
    assert done.returncode == 0, done.stderr
    version, world = done.stdout.split()
    assert world == "2"
    assert run(installed, "python", "-m", "rallypoint", "--version").stdout.strip() == f"rallypoint {version}"


def test_tensorflow_is_an_extra_and_its_absence_is_told(installed: Path) -> None:
    metadata = run(installed, "python", "-c", "import importlib.metadata as m; print(m.requires('rallypoint'))").stdout
    assert "extra == " in metadata and "tensorflow" in metadata
    done = run(installed, "python", "-c", "import rallypoint.tensorflow")
    assert done.returncode != 0
    assert "hint: pip install 'tensorflow>=2.12'" in done.stderr


def test_files_that_types_need_are_there(installed: Path) -> None:
    done = run(installed, "python", "-c", "import rallypoint, pathlib; print(*sorted(p.name for p in pathlib.Path(rallypoint.__file__).parent.iterdir()))")
    for name in ("py.typed", "_rallypoint.pyi", "hooks.py", "tf4slurm"):
        assert name in done.stdout.split()
