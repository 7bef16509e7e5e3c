"""A data set: training and test samples, and how to turn stored pixels into network inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from holdfast.data.normalisation import FEDERATED, OFF, PUBLISHED
from holdfast.data.packed_inputs import InputField
from holdfast.data.table_encoding import TableEncoding
from holdfast.data.vocabulary import Vocabulary
from holdfast.tasks.classification import Classification
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    from holdfast.data.client_maker import ClientMaker


@dataclass(frozen=True)
class DataSet:
    """Samples as they are stored. ``uint8`` images become ``x / 255`` before the normalisation.

    Attributes:
        name: The name shown to the user.
        x: Training inputs [n, ...]: images are uint8 or float [n, channels, height, width]; integers such as tokens
            are int64.
        y: Training targets, as the task has them: the class of every sample, int64 [n]; labels or numbers, float32
            [n, outputs]; or tokens, int64 [n, length].
        test_x: Test inputs.
        test_y: Test targets.
        classes: The names of the network's outputs: classes, labels, target columns or the vocabulary.
        mean: The mean per channel or feature; empty: inputs are not normalised.
        std: The standard deviation per channel or feature.
        normalise: Where mean and standard deviation come from: ``published``, ``federated`` (``federate`` computes
            them), ``pooled`` or ``off``.
        groups: The client of every training sample, int64 [n], for data that is already federated.
        fields: What the columns of ``x`` are, if a sample is several tensors.
        task: What is predicted.
        clients: The names of the clients, by the numbers in ``groups``; empty: they have none.
        test_groups: The client of every test sample, if it is known; -1: a test sample of nobody who trains.
        encoding: How the columns of a table became ``x``, if the data set was made of one.
        vocabulary: The tokens that inputs are made of, if they are texts.
        on_demand: Makes the clients, if they are made when a round needs them; ``x`` and ``y`` are then an example.
        checksum: That of all samples as they are stored, for a named data set; see ``sample_checksum``.
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
    task: Task = field(default_factory=Classification)
    clients: tuple[str, ...] = ()
    test_groups: Tensor | None = None
    encoding: TableEncoding | None = None
    vocabulary: Vocabulary | None = None
    normalise: str = PUBLISHED
    on_demand: ClientMaker | None = None
    checksum: str = ""

    @property
    def normalisation(self) -> str:
        """Where the statistics come from that normalise the inputs; ``off`` if there are none."""
        known = self.mean or (self.normalise == FEDERATED and not self.fields)
        return self.normalise if known else OFF

    def __repr__(self) -> str:
        made = self.on_demand
        training = f"{len(self.y)} training" if made is None else f"{made.clients} clients made on demand"
        counts = f"{training} and {len(self.test_y)} test samples"
        outputs = self.task.described(len(self.classes))
        return f"DataSet({self.name}: {counts} of shape {tuple(self.x.shape[1:])}, {outputs})"
