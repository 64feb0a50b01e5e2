"""The GPU masks of this process: what the scheduler gave, and what we narrowed it to."""

from __future__ import annotations

import json
import os
from typing import Dict, List, Optional, Sequence

from ._rallypoint import gpu_masks

CUDA = "CUDA_VISIBLE_DEVICES"
# Beside a mask that we narrowed stands what was given, so that a second resolver, here or in a child of this
# process, does not take the first one's share for all there is.
GIVEN = "RALLYPOINT_GPUS_GIVEN"
# Whose share it was.
TASK = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "_CONDOR_JOB_AD")


def given_environ() -> Dict[str, str]:
    """This process's variables, with the masks that the scheduler gave."""
    environ = dict(os.environ)
    for variable, before in _given(environ).items():
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
    value = ",".join(devices)
    masks = {mask: given.get(mask) for mask in there or [CUDA]}
    os.environ.update({mask: value for mask in masks})
    os.environ[GIVEN] = json.dumps({"task": _task(given), "mask": value, "given": masks})


def _given(environ: Dict[str, str]) -> Dict[str, Optional[str]]:
    """The masks that still are as we set them, and what stood there before."""
    try:
        told = json.loads(environ.get(GIVEN, ""))
        if told["task"] != _task(environ):
            return {}
        masks: Dict[str, Optional[str]] = told["given"]
        return {mask: before for mask, before in masks.items() if environ.get(mask) == told["mask"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _task(environ: Dict[str, str]) -> List[Optional[str]]:
    return [environ.get(name) for name in TASK]
