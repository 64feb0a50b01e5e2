"""`python -m rallypoint` is the native command of the same installation."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Iterator

NAME = "rallypoint"


def places() -> Iterator[Path]:
    """Where pip puts programs: of this environment, of the user, beside a `--target` folder."""
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sysconfig.get_path("scripts", f"{os.name}_user"))
    package = Path(__file__).resolve().parent
    yield package.parent / "bin"
    # lib/python3.11/site-packages of a prefix
    yield from (parent / "bin" for parent in list(package.parents)[1:4])


def find_command() -> Path:
    looked = [place / NAME for place in places()]
    for path in looked:
        if path.is_file() and os.access(path, os.X_OK):
            return path
    tried = ", ".join(str(path.parent) for path in looked)
    raise FileNotFoundError(f"the command {NAME} is not there; looked in {tried}; hint: install the wheel again")


def main() -> None:
    try:
        command = find_command()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    os.execv(command, [NAME, *sys.argv[1:]])


if __name__ == "__main__":
    main()
