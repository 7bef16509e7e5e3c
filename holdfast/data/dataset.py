"""A data set: training and test samples, and how to turn stored pixels into network inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from holdfast.data.packed_inputs import InputField

if TYPE_CHECKING:
    from holdfast.data.client_maker import ClientMaker


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
        groups: The client of every training sample, int64 [n], for data that is already federated.
        fields: What the columns of ``x`` are, if a sample is several tensors.
        on_demand: Makes the clients, if they are made when a round needs them; ``x`` and ``y`` are then an example.
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
    on_demand: ClientMaker | None = None

    def __repr__(self) -> str:
        training = (
            f"{len(self.y)} training" if self.on_demand is None else f"{self.on_demand.clients} clients on demand"
        )
        counts = f"{training} and {len(self.test_y)} test samples"
        return f"DataSet({self.name}: {counts} of shape {tuple(self.x.shape[1:])}, {len(self.classes)} classes)"
