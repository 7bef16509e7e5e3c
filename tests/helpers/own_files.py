"""Files of code as a user may write them, in the current folder: a network, data, a part."""

from __future__ import annotations

from pathlib import Path

NET = """\
import math

from torch import nn


def build(shape, classes, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width), nn.Tanh(), nn.Linear(width, classes))


def plain():
    return nn.Sequential(nn.Linear(3, 2))


def needy(depth, classes):
    return nn.Linear(depth, classes)


def nothing():
    pass


def broken(shape):
    return nn.Linear({"two": 2}["three"], 2)


WIDTH = 3
"""
DATA = """\
import numpy as np

import holdfast


def load(n=60):
    x = np.random.default_rng(0).normal(size=(n, 3)).astype("float32")
    return x, (x[:, 0] > 0).astype(int)


def split_already():
    x, y = load()
    return x[:40], y[:40], x[40:], y[40:]


def data_set():
    return holdfast.from_arrays(*load(), name="mine", normalise=False)


def three():
    return 1, 2, 3


def nothing():
    return None


def ragged():
    x, y = load()
    return x, y[:3]


def broken():
    raise OSError("no disk")
"""
PART = '''\
from dataclasses import dataclass

from holdfast import Part, param


@dataclass(frozen=True)
class Damp(Part):
    """Multiplies the gradient."""

    name = "toy-damp"
    summary = "damps the gradient"

    factor: float = param(0.5, "the factor; 1 is FedAvg", above=0)

    def direction(self, c, g, w):
        return self.factor * g, {}
'''
FILES = {"net.py": NET, "mydata.py": DATA, "damp.py": PART}
OWN = ("--model", "net.py:build", "--data", "mydata.py:load", "--import", "damp.py")
SMALL = ("--clients", "4", "--cohort", "2", "--steps", "2", "--rounds", "2", "--quiet")


def write_files(folder: Path = Path()) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
