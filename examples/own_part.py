"""A part of one's own, from the idea to a paired test.

The idea: a client whose steps have begun to turn back on themselves has little left to learn in this round. The part
shortens each step by how much it points against the way that the client has come so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import holdfast
from holdfast.testing import check_part


@dataclass(frozen=True)
class TurnBack(holdfast.Part):
    """Shorten steps that lead back: direction = g * (1 - strength * max(0, cos(g, w - w0)))."""

    name = "turn-back"

    strength: float = holdfast.param(0.5, "how much a step straight back is shortened", low=0, high=1)

    def direction(self, c: holdfast.Client, g: Tensor, w: Tensor) -> tuple[Tensor, holdfast.Tensors]:
        way = w - c.w0
        length = torch.linalg.vector_norm(g) * torch.linalg.vector_norm(way)
        back = (torch.dot(g, way) / length.clamp(min=1e-12)).clamp(min=0)
        return g * (1 - self.strength * back), {}


def main(rounds: int = 20, seeds: int = 5) -> holdfast.Comparison:
    check_part(TurnBack())  # both engines agree, resuming changes nothing, and other laws
    comparison = holdfast.compare(
        ["fedavg", TurnBack(0.5), TurnBack(0.5) + "scaffold"], "digits", "mlp", split="dirichlet(0.1)", seeds=seeds,
        rounds=rounds, cohort=5, validation=0.1,
    )  # fmt: skip
    print(comparison)
    return comparison


if __name__ == "__main__":
    main()
