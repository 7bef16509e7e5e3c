"""What clients upload as it travels: written by the parts of the sum that make it smaller."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from holdfast.core.tensors import Tensors
from holdfast.method.method import Method
from holdfast.method.part import Part

BETWEEN = "#"  # between the name of a tensor and those of what it is written as


class Encoder:
    """Writes what one client uploads, and reads it again.

    Args:
        method: The method.
        template: What one client uploads, with the names, types and shapes that count.
    """

    def __init__(self, method: Method, template: Tensors) -> None:
        self.parts: Sequence[Part] = [p for p in method.parts if type(p).encodes is not Part.encodes]
        self.stages = [{name: torch.zeros_like(t) for name, t in template.items()}]
        for part in self.parts:
            self.stages.append(written(part, self.stages[-1]))

    @property
    def template(self) -> Tensors:
        """What travels, with its names, types and shapes."""
        return self.stages[-1]

    def write(self, tensors: Tensors) -> Tensors:
        """Return what travels in place of some tensors."""
        for part in self.parts:
            tensors = written(part, tensors)
        return tensors

    def read(self, tensors: Tensors) -> Tensors:
        """Undo ``write``; what cannot have been written is a ``ValueError``."""
        for part, like in zip(reversed(self.parts), reversed(self.stages[:-1]), strict=True):
            tensors = {
                name: part.decode(
                    {k.removeprefix(name + BETWEEN): v for k, v in tensors.items() if k.startswith(name + BETWEEN)}, t
                )
                if part.encodes(name, t)
                else tensors[name]
                for name, t in like.items()
            }
        return tensors


def written(part: Part, tensors: Tensors) -> Tensors:
    """Return tensors as one part writes them."""
    found: Tensors = {}
    for name, t in tensors.items():
        encoded = part.encode(t) if part.encodes(name, t) else None
        found |= {name: t} if encoded is None else {f"{name}{BETWEEN}{key}": value for key, value in encoded.items()}
    return found
