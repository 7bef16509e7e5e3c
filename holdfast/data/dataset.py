"""A data set: training and test samples, and how to turn stored pixels into network inputs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.data.normalisation import PUBLISHED
from holdfast.data.packed_inputs import InputField


@dataclass(frozen=True)
class DataSet:
    """Samples as they are stored. ``uint8`` images become ``x / 255`` before the normalisation.

    Attributes:
        name: The name shown to the user.
        x: Training inputs [n, ...]: images are uint8 or float [n, channels, height, width]; integers such as tokens
            are int64.
        y: Training labels: int64 [n].
        test_x: Test inputs.
        test_y: Test labels.
        classes: The class names.
        mean: The mean per channel or feature; empty: inputs are not normalised.
        std: The standard deviation per channel or feature.
        normalise: Where mean and standard deviation come from: ``published``, ``federated`` (``federate`` computes
            them), ``pooled`` or ``off``.
        groups: The client of every training sample, int64 [n], for data that is already federated.
        clients: The names of the groups, by group number.
        fields: What the columns of ``x`` are, if a sample is several tensors.
    """

    name: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    groups: Tensor | None = None
    fields: tuple[InputField, ...] = ()
    normalise: str = PUBLISHED
    clients: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.y)} training and {len(self.test_y)} test samples"
        return f"DataSet({self.name}: {counts} of shape {tuple(self.x.shape[1:])}, {len(self.classes)} classes)"
