"""The GPU masks of this process: what the scheduler gave, and what we narrowed it to."""

from __future__ import annotations

import os
from typing import Dict, Optional, Sequence, Tuple

from ._rallypoint import gpu_masks

CUDA = "CUDA_VISIBLE_DEVICES"

# Variable -> what we set, and what stood there before. A second resolver in the same process must not take
# the first one's share for all there is.
_narrowed: Dict[str, Tuple[str, Optional[str]]] = {}


def given_environ() -> Dict[str, str]:
    """This process's variables, with the masks that the scheduler gave."""
    environ = dict(os.environ)
    for variable, (ours, before) in _narrowed.items():
        if environ.get(variable) == ours:
            if before is None:
                del environ[variable]
            else:
                environ[variable] = before
    return environ


def show_only(devices: Sequence[str]) -> None:
    """Lets the frameworks of this process see these GPUs and no others."""
    given = given_environ()
    there = [mask for mask in gpu_masks() if mask in given]
    if not there and not devices:
        return
    for mask in there or [CUDA]:
        value = ",".join(devices)
        _narrowed[mask] = (value, given.get(mask))
        os.environ[mask] = value
