"""Handwritten digits for the examples, cut the same way in every process.

The 1797 grey images of 8x8 pixels come with scikit-learn, so nothing is downloaded.
"""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

PIXELS = 64
CLASSES = 10


class Digits(NamedTuple):
    """Images as rows of 64 numbers from 0 to 1, and the digit that each shows."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load() -> Digits:
    """A fifth of the images for the test, the rest for training."""
    images, labels = load_digits(return_X_y=True)
    # The images are sorted by writer: unshuffled, the test would be on strangers only. The seed is
    # fixed, because members that cut differently would train on each other's test images.
    order = np.random.default_rng(0).permutation(len(images))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order].astype(np.int32)
    cut = len(images) // 5
    return Digits(images[cut:], labels[cut:], images[:cut], labels[:cut])
