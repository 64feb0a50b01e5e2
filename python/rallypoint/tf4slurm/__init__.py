"""The interface of tf4slurm, for code that was written for it::

    from rallypoint.tf4slurm import ServerDictionary, DistributedTFQueueHook
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["DistributedTFQueueHook", "ServerDictionary"]


def __getattr__(name: str) -> Any:
    # One of the two needs TensorFlow, and the other does not.
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
