"""Builds the wheel: maturin, after the native command that travels in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401, the hooks that need nothing more
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

SCRIPTS = Path("build/wheel/rallypoint.data/scripts")
# maturin wants it to be there even while it writes no more than metadata.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def build_command() -> None:
    """Puts `rallypoint` where maturin takes a wheel's programs from."""
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--release", "--locked", "--package", "rallypoint-cli"], check=True)
    # Where cargo builds: CARGO_TARGET_DIR or its configuration may say another place than `target`.
    asked = subprocess.run(
        [cargo, "metadata", "--no-deps", "--format-version", "1"], check=True, stdout=subprocess.PIPE
    )
    target = Path(json.loads(asked.stdout)["target_directory"])
    shutil.copy2(target / "release" / "rallypoint", SCRIPTS / "rallypoint")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    build_command()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    build_command()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
