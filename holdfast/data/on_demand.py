"""Data sets whose clients are made on demand: what ``from_clients`` does with a function."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import are_strings, labels, numbered
from holdfast.data.client_maker import ClientMaker, Make
from holdfast.data.dataset import DataSet
from holdfast.data.normalisation import POOLED
from holdfast.data.targets import stored_targets
from holdfast.data.user_arrays import Inputs, check_alike, from_arrays, read_inputs
from holdfast.tasks.task import Task


@dataclass(frozen=True)
class ClientReader:
    """Turns what a function returns for a client into tensors like those of the test data, or raises an error.

    Attributes:
        channels: Where images have their channels.
        like: Inputs of the same type and shape.
        classes: The names of the network's outputs.
        task: What is predicted.
    """

    channels: str
    like: Inputs
    classes: tuple[str, ...]
    task: Task

    def __call__(self, who: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        if not len(y):
            raise HoldfastError(f"{who} has no samples: give every client at least one")
        inputs = read_inputs(f"x of {who}", x, self.channels)
        check_alike(f"x of {who}", inputs, "the test data", self.like)
        targets = self._targets(f"y of {who}", y)
        if self.task.has_classes and int(targets.max()) >= len(self.classes):
            raise HoldfastError(
                f"{who} has the label {int(targets.max())}, expected 0 to {len(self.classes) - 1}: name all classes "
                "with classes="
            )
        self.task.check(f"the labels of {who}", targets, len(self.classes))
        if len(targets) != len(inputs[0]):
            raise HoldfastError(f"{who} has {len(inputs[0])} inputs and {len(targets)} labels: give one per sample")
        return inputs[0], targets

    def _targets(self, what: str, y: Any) -> Tensor:
        if not self.task.has_classes:
            return stored_targets(what, y, self.task)
        return numbered(what, y, self.classes)[0] if are_strings(y) else labels(what, y)


def clients_on_demand(
    make: Make,
    test: tuple[Any, Any] | None,
    clients: int | None,
    *,
    threads: int = 1,
    classes: Sequence[str] | None = None,
    name: str = "clients",
    channels: str = "auto",
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    normalise: bool | str = True,
    task: str | Task | None = None,
) -> DataSet:
    """Make a data set whose clients are made by a function when a round needs them.

    Args:
        make: Returns the inputs and labels of a client; a function of its number alone.
        test: The inputs and labels of a common test set.
        clients: The number of clients; by default ``len(make)``.
        threads: How many clients are made at the same time.
        classes: The names of the network's outputs; by default those of the test labels.
        name: The name of the data set.
        channels: Where images have their channels, as in ``from_arrays``.
        mean: The mean per channel or feature, if you know it.
        std: The standard deviation per channel or feature.
        normalise: As in ``from_arrays``: ``federated`` statistics are those of 100 clients, and there are no ``pooled``
            ones.
        task: What is predicted; by default it follows from the test labels.

    Returns:
        The data set; its training samples are those of client 0.
    """
    if test is None:
        raise HoldfastError("clients made on demand need a common test set: give test=(x, y)")
    count, threads = _number_of(make, clients), _whole("threads", threads)
    if normalise == POOLED:
        raise HoldfastError(
            f"normalise={POOLED} needs the samples of every client, but this data makes clients on demand: give mean "
            "and std, or leave it out"
        )
    held = from_arrays(
        *test, *test, classes=classes, name=name, channels=channels, mean=mean, std=std, normalise=normalise, task=task
    )
    reader = ClientReader(channels, (held.test_x, held.fields), held.classes, held.task)
    maker = ClientMaker(make, count, reader, threads)
    maker.client(0)  # made twice, here and below: one that draws random numbers afresh is noticed at once
    x, y = maker.client(0)
    return replace(held, x=x, y=y, on_demand=maker)


def _number_of(make: Make, clients: int | None) -> int:
    return _whole("clients", len(make) or None if clients is None and isinstance(make, Sized) else clients)


def _whole(what: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise HoldfastError(f"{what} must be a whole number of at least 1, not {count}: set it, such as {what}=8")
    return count
