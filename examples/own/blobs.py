"""A network and a data set of your own, in a file.

holdfast run fedavg --model "examples/own/blobs.py:build(width=16)" --data examples/own/blobs.py:load
"""

import numpy as np
from torch import nn


def build(shape: tuple[int, ...], classes: int, width: int = 32) -> nn.Module:
    """Make the network; a factory may take ``shape`` and ``classes``, and its weights follow from the seed."""
    return nn.Sequential(nn.Linear(shape[0], width), nn.Tanh(), nn.Linear(width, classes))


def load(samples: int = 600, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and labels: one cloud of points per class. A part of every class is held out for testing."""
    generator = np.random.default_rng(0)
    labels = np.arange(samples) % classes
    centres = generator.normal(size=(classes, 2)) * 3
    return (centres[labels] + generator.normal(size=(samples, 2))).astype("float32"), labels
