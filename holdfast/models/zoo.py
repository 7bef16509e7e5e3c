"""The networks a user can name. Each is a small dataclass that builds an ``nn.Module`` for a shape of input.

A network returns logits, and its last layer is an ``nn.Linear`` called ``head``: the features are the head's input.
A network with residual stages says in ``units`` which of its modules thaw together (see ``layout``). To add one, write
a ``Model`` into any file of this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from holdfast.core.params import Named, build, one


@dataclass(frozen=True)
class Model(Named):
    """A named architecture; its fields are its sizes."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network for inputs of ``shape`` (without the batch axis), in its published initialisation."""
        raise NotImplementedError


@cache
def models() -> dict[str, type[Model]]:
    """Every model of this folder by name."""
    package = importlib.import_module("holdfast.models")
    for module in pkgutil.iter_modules(package.__path__, "holdfast.models."):
        importlib.import_module(module.name)
    return {cls.name: cls for cls in Model.__subclasses__()}


def model(text: str) -> Model:
    """The model that a string such as ``mlp(width=25, depth=1)`` names."""
    return build(one(text, "model"), models(), "model")


def make(text: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    """A network with initial weights that depend on the seed alone, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model(text).build(shape, classes)
