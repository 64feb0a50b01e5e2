"""TensorFlow, or a word about where to get it."""

from __future__ import annotations

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        f"TensorFlow cannot be imported here: {error}; hint: pip install 'tensorflow>=2.12'"
    ) from error

__all__ = ["tf"]
