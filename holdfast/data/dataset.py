"""What every data source gives: training and test samples, and how to turn stored pixels into network inputs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class DataSet:
    """Samples as they are stored. ``uint8`` images become ``x / 255`` before the normalisation."""

    name: str
    x: Tensor  # [n, channels, height, width] uint8 or float, or [n, features] float
    y: Tensor  # [n] int64
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()  # per channel; empty: no normalisation
    std: tuple[float, ...] = ()
    groups: Tensor | None = None  # [n] int64: whose sample it is, for data that is already federated

    def __repr__(self) -> str:
        counts = f"{len(self.y)} training and {len(self.test_y)} test samples"
        return f"DataSet({self.name}: {counts} of shape {tuple(self.x.shape[1:])}, {len(self.classes)} classes)"
