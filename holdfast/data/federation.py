"""A federation: training data on the device, the samples of every client, test data and optional public data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.data.augmentation_sum import AugmentationSum, read_augmentation
from holdfast.data.batch import Batch
from holdfast.data.client_maker import ClientMaker, CohortSamples
from holdfast.data.client_tests import with_client_tests
from holdfast.data.dataset import DataSet
from holdfast.data.deal import Deal
from holdfast.data.feature_noise import perturb
from holdfast.data.federated_moments import with_federated_moments
from holdfast.data.given_clients import brought_clients, check_names, client_names, decide_clients
from holdfast.data.normalisation import FEDERATED, OFF
from holdfast.data.packed_inputs import unpack
from holdfast.data.split_sum import deal
from holdfast.data.targets import with_task
from holdfast.data.usual_split import GIVEN
from holdfast.data.validation import (
    CLIENTS,
    POOL,
    VALIDATION,
    HeldOut,
    hold_out_of_clients,
    pooled_validation,
    refuse_nothing,
)
from holdfast.tasks.task import NUMBERS, Task
from holdfast.tasks.task_names import read_task

NO_AUGMENTATION = AugmentationSum()
NOTHING = HeldOut()
SAME = "same"  # public data is augmented as the clients' data where clients train on it


@dataclass(frozen=True)
class Federation:
    """A data set dealt to clients. Made by ``federate``; ``to`` moves it to a device.

    Attributes:
        data: All samples.
        deal: The samples of every client.
        split: The split that made the deal.
        seed: The seed of the split and of its noise.
        public: The numbers of the samples that belong to the server, not to a client.
        augment: How training images are changed at random.
        augment_public: The same for public data; None: as ``augment`` where clients train on it, otherwise not at all.
        dtype: The precision of the inputs.
        leaks: Whether the public samples are the test samples.
        numbers: The samples' numbers in the whole data set, if only some samples are here.
        tokens: Whether integers reach the network as they are.
        validation: The samples that are held out of training to choose by: those of every client, or one pool.
        client_test: The test samples of every client, which are not trained on; None: clients have none of their own.
        held_out: How much is held out of training.
        weight: A factor per output on the loss of its class or label; None: 1.
        client_names: The names of the clients, if they have any.
        settings: What ``federate`` was asked for besides split, clients and seed, by the names of a run's settings.
    """

    data: DataSet
    deal: Deal
    split: str
    seed: int
    public: Tensor
    augment: AugmentationSum = NO_AUGMENTATION
    dtype: torch.dtype = torch.float32
    leaks: bool = False
    numbers: Tensor | None = None
    tokens: bool = False
    augment_public: AugmentationSum | None = None
    validation: Deal | None = None
    client_test: Deal | None = None
    held_out: HeldOut = NOTHING
    weight: Tensor | None = None
    client_names: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"Federation({self.data!r} over {self.clients} clients by {self.split}, seed {self.seed})"

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.deal.offsets) - 1 if self.on_demand is None else self.on_demand.clients

    @property
    def on_demand(self) -> ClientMaker | None:
        """Makes the clients, if they are made when a round needs them; ``deal`` has none of them then."""
        return self.data.on_demand

    @property
    def classes(self) -> int:
        """The number of the network's outputs: classes, labels, targets or tokens."""
        return len(self.data.classes)

    @cached_property
    def strata(self) -> np.ndarray:
        """The group of every sample by its target, int64 [n], as splits deal them: for classes the class."""
        return self.strata_of(self.data.y)[0]

    @cached_property
    def strata_names(self) -> tuple[str, ...]:
        """The names of these groups."""
        return self.strata_of(self.data.y)[1] or self.data.classes

    def counts(self) -> np.ndarray:
        """Return how many training samples of each class, or group of targets, every client holds, [clients, classes].

        >>> import holdfast
        >>> holdfast.federate(holdfast.load("digits"), "shards(2)", clients=20).counts().shape
        (20, 10)
        """
        self.need_all_clients("a table of all clients")
        return self.deal.counts(self.strata, len(self.strata_names))

    def strata_of(self, y: Tensor) -> tuple[np.ndarray, tuple[str, ...] | None]:
        """Group samples by their targets, as the task does; groups that depend on all samples are one on demand."""
        if self.on_demand is not None and not self.data.task.has_classes:
            return np.zeros(len(y), np.int64), ("all",)
        return self.data.task.strata(y.cpu().numpy().copy(), self.data.classes)

    def make_clients(self, ids: np.ndarray) -> CohortSamples:
        """Make clients on demand, in ascending order, with targets as the task's loss takes them."""
        assert self.on_demand is not None
        made = self.on_demand.cohort(ids)
        return made._replace(y=self.data.task.scaled(made.y))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input of the network: that of an augmented sample."""
        return self.augment.shape(tuple(self.data.x.shape[1:]))

    @property
    def device(self) -> torch.device:
        """The device of the samples."""
        return self.data.x.device

    @property
    def normalisation(self) -> str:
        """Where the mean and standard deviation of inputs come from: one of ``data.normalisation.CHOICES``."""
        return OFF if self.tokens else self.data.normalisation

    def name_of(self, client: int) -> str:
        """Return what to call a client: its name, or its number if it has none."""
        return self.client_names[client] if self.client_names else str(client)

    @property
    def occupied(self) -> np.ndarray | range:
        """The clients that have samples; the others never join a cohort."""
        return np.flatnonzero(self.deal.sizes) if self.on_demand is None else range(self.on_demand.clients)

    def need_all_clients(self, what: str, remedy: str = "leave it out") -> None:
        """Raise an error for what needs the samples of every client, if clients are made on demand."""
        if self.on_demand is not None:
            raise HoldfastError(
                f"{what} needs the samples of every client, but this data makes clients on demand: {remedy}"
            )

    def to(self, device: torch.device, dtype: torch.dtype) -> Federation:
        """Return the same federation with its samples on a device and its inputs in a precision."""
        d = self.data
        data = replace(d, x=d.x.to(device), y=d.y.to(device), test_x=d.test_x.to(device), test_y=d.test_y.to(device))
        numbers = None if self.numbers is None else self.numbers.to(device)
        weight = None if self.weight is None else self.weight.to(device, dtype)
        return replace(self, data=data, public=self.public.to(device), numbers=numbers, dtype=dtype, weight=weight)

    def only(self, clients: Sequence[int], *, server: bool = False, test: bool = False) -> Federation:
        """Return the same federation with the samples of these clients only, held-out ones included.

        Args:
            clients: The clients whose samples are kept.
            server: Whether to keep test, public and all validation data as well.
            test: Whether to keep the test data as well.

        Returns:
            The smaller federation.
        """
        self.need_all_clients("a federation of several machines", "let every node bring its own data")
        d, nobody = self.data, np.zeros(1, np.int64)
        dealt, tests = self.deal.only(clients), self.client_test and self.client_test.only(clients)
        public = Deal(self.public.cpu().numpy() if server else nobody[:0], nobody)
        judged = self.validation
        if judged is not None and not server:
            judged = judged.only(() if self.held_out.validation_from == POOL else clients)
        here = np.concatenate([held.index for held in (dealt, public, judged, tests) if held is not None])
        rows = torch.from_numpy(here).to(self.device)
        test_x, test_y = (d.test_x, d.test_y) if server or test else (d.test_x[:0], d.test_y[:0])
        data = replace(d, x=d.x[rows], y=d.y[rows], test_x=test_x, test_y=test_y, groups=None, test_groups=None)
        first, second = len(dealt.index), len(dealt.index) + len(public.index)
        return replace(
            self,
            data=data,
            deal=dealt.placed(0),
            public=torch.arange(first, second, device=self.device),
            numbers=rows if self.numbers is None else self.numbers[rows],
            validation=judged and judged.placed(second),
            client_test=tests and tests.placed(len(here) - len(tests.index)),
        )

    def held(self, purpose: str) -> Deal | None:
        """Return the samples that are held out for a purpose: ``validation`` or ``client_test``."""
        return self.validation if purpose == VALIDATION else self.client_test

    def held_batches(self, held: Deal, size: int) -> Iterator[tuple[Any, Tensor]]:
        """Yield the inputs and targets of samples that are held out, as their clients see them."""
        sigma = np.zeros(held.clients) if held.noise is None else held.noise.sigma
        index = torch.from_numpy(held.index).to(self.device)
        spread = torch.from_numpy(sigma[held.owners]).to(self.device)
        for numbers, noise in zip(torch.split(index, size), torch.split(spread, size), strict=True):
            yield self.samples(numbers, noise)

    def test_batches(self, size: int) -> Iterator[tuple[Any, Tensor]]:
        """Yield the inputs and targets of the test samples."""
        for x, y in zip(torch.split(self.data.test_x, size), torch.split(self.data.test_y, size), strict=True):
            yield self.inputs(x), y

    def as_batch(self, x: Any, y: Tensor, mask: Tensor, padded: bool = True) -> Batch:
        """Return samples as a batch of this federation's task.

        Args:
            x: Inputs.
            y: Targets.
            mask: Which rows are samples.
            padded: Whether some rows may be padding.

        Returns:
            The batch.
        """
        return Batch(x, y, mask, padded, self.data.task, self.weight)

    def with_public(self, x: Tensor, y: Tensor) -> Federation:
        """Return the same federation with other public samples, given as they are stored."""
        d, new = self.data, torch.arange(len(self.data.y), len(self.data.y) + len(y))
        data = replace(d, x=torch.cat([d.x, x.to(d.x)]), y=torch.cat([d.y, y.to(d.y)]), groups=None)
        numbers = torch.arange(len(d.y)) if self.numbers is None else self.numbers
        numbers = torch.cat([numbers, torch.full((len(y),), -1).to(numbers)])
        return replace(self, data=data, public=new.to(self.device), numbers=numbers)

    @property
    def integers(self) -> bool:
        """Whether samples are integers that are not pixels, so that they may be tokens."""
        return not self.data.fields and self.data.x.dtype == torch.int64

    def as_tokens(self) -> Federation:
        """Return the same federation, whose integers reach the network as they are: neither scaled nor normalised."""
        return replace(self, tokens=True)

    def as_images(self) -> Federation:
        """Return the same federation; samples of two axes get a channel axis, as named networks expect of images."""
        if self.data.x.dim() != 3 or self.data.fields:
            return self
        d = self.data
        return replace(self, data=replace(d, x=d.x[:, None], test_x=d.test_x[:, None]))

    def example(self) -> Any:
        """Return two inputs of the network: zeros, or the smallest and largest integers."""
        x = self.data.x if len(self.data.x) else self.data.test_x
        stored = x.new_zeros(2, *x.shape[1:])
        if x.dtype == torch.int64 or self.data.fields:
            low, high = x.amin(0), x.amax(0)
            stored = torch.stack([low, high])
        return self.inputs(stored)

    def for_public_trip(self) -> Federation:
        """Return the same federation as clients see it that train on the public data."""
        return self if self.augment_public is None else replace(self, augment=self.augment_public)

    def inputs(self, stored: Tensor) -> Any:
        """Turn stored samples into network inputs. Any leading axes.

        They are scaled, normalised, and cropped if training crops. Samples of several tensors are taken apart instead,
        and tokens stay as they are.
        """
        if self.data.fields:
            return unpack(stored, self.data.fields, self.dtype)
        return stored if self.tokens else self.augment.centrally(self.normalised(self.scaled(stored)))

    def scaled(self, stored: Tensor) -> Tensor:
        """Turn stored samples into numbers, pixels in [0, 1]: the scale of the feature noise."""
        x = stored.to(self.dtype)
        return x / 255 if stored.dtype == torch.uint8 else x

    def normalised(self, x: Tensor) -> Tensor:
        """Shift and scale every channel by the data set's mean and standard deviation, if it has any."""
        if not self.data.mean:
            return x
        mean, std = self.moments
        return (x - mean) / std

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """The mean and standard deviation per channel, on the device, in the shape of an input."""
        shape = (-1,) + (1,) * (len(self.shape) - 1)
        both = (torch.tensor(v, dtype=self.dtype, device=self.device) for v in (self.data.mean, self.data.std))
        mean, std = (v.reshape(shape) for v in both)
        return mean, std

    def samples(self, index: Tensor, sigma: Tensor) -> tuple[Any, Tensor]:
        """Return the inputs and labels of sample numbers as their client sees them: with its feature noise."""
        if self.tokens or self.data.fields:
            return self.inputs(self.data.x[index]), self.data.y[index]
        return self.augment.centrally(self._whole(index, sigma)), self.data.y[index]

    def _whole(self, index: Tensor, sigma: Tensor) -> Tensor:
        """Return the samples with their client's feature noise, normalised and in their full size."""
        x = self.stored(index).to(self.dtype)  # a copy, which may be overwritten
        if self.data.x.dtype == torch.uint8:
            x.div_(255)
        if self.deal.noise is not None:
            noise = self.deal.noise
            spread = sigma.to(x.dtype).reshape(sigma.shape + (1,) * (index.dim() - sigma.dim())).expand(index.shape)
            number = index if self.numbers is None else self.numbers[index]
            x = perturb(x, number, spread, noise.mean, noise.share, self.seed)
        if not self.data.mean:
            return x
        mean, std = self.moments
        return x.sub_(mean).div_(std)

    def stored(self, index: Tensor) -> Tensor:
        """Return a copy of samples as they are stored; selecting whole rows is many times faster than indexing."""
        rows = torch.index_select(self.data.x, 0, index.reshape(-1))
        return rows.reshape(*index.shape, *rows.shape[1:])

    def batch(self, index: Tensor, sigma: Tensor, key: Tensor | None) -> tuple[Any, Tensor]:
        """Return a batch like ``samples``, with its images augmented if there is a key.

        Args:
            index: The numbers of the samples, with any leading axes.
            sigma: The standard deviation of the feature noise.
            key: The key of the augmentation, one per client; None: none.

        Returns:
            The inputs and the labels.
        """
        if key is None:
            return self.samples(index, sigma)
        return self.augment.randomly(self._whole(index, sigma), key), self.data.y[index]

    def public_batches(self, size: int, key: Tensor | None = None) -> Iterator[Batch]:
        """Yield the public data in batches; with a key they are augmented, if the public data is to be."""
        for number, index in enumerate(torch.split(self.public, size) if len(self.public) else ()):
            x, y = self.inputs(self.data.x[index]), self.data.y[index]
            if key is not None and self.augment_public:
                whole = self.normalised(self.scaled(self.data.x[index]))
                x = self.augment_public.randomly(whole, rng.key(key, rng.AUGMENT, number))
            yield self.as_batch(x, y, torch.ones(len(y), dtype=torch.bool, device=y.device))


def federate(
    data: DataSet,
    split: str | None = None,
    clients: int | None = None,
    seed: int = 0,
    public: float | str = 0.0,
    augment: bool | str = False,
    augment_public: bool | str = SAME,
    validation: float = 0.0,
    validation_from: str = CLIENTS,
    task: str | Task | None = None,
    client_test: float = 0.0,
) -> Federation:
    """Deal a data set to clients.

    Args:
        data: The data set, from ``load`` or from your own arrays.
        split: How samples are dealt, such as ``iid``, ``dirichlet(0.3)`` or ``given``. By default ``given`` if the data
            brings clients, otherwise ``dirichlet(0.3)``.
        clients: The number of clients. By default those that the data brings if the split is ``given``, otherwise 20.
        seed: The seed of the split, of its noise, and of what is held out.
        public: The fraction of every class that is held out for the server before the split; ``"test"`` makes the test
            samples public instead. That leaks the test set: parts refuse it unless ``allow_test_leak`` is set.
        augment: How to change training images at random: a sum such as ``"crop(4, padding=reflect)+flip(0.5)"``; True
            is ``"standard"``, False ``"none"``.
        augment_public: The same for public data. ``"same"``: as ``augment`` where clients train on it, otherwise not
            at all.
        validation: The fraction of training samples to hold out, by which a run chooses.
        validation_from: Whether this fraction is taken from every client (``"clients"``) or, before the split, from the
            whole data set (``"pool"``).
        task: What is predicted, if it is not what the data set says.
        client_test: Above 0: give every client test samples of its own, on which models are scored. They are those that
            the data brings for its clients under ``given``, otherwise this fraction of the client's samples.

    Returns:
        The federation, on the CPU.
    """
    _check_data_set(data)
    if task is not None:
        data = with_task(data, read_task(task) if isinstance(task, str) else task)
    refuse_bad_samples(data)
    check_names(data.name, data.clients)
    split, clients = decide_clients(data, split, clients)
    if data.on_demand is not None:
        _check_on_demand(data, split, clients)
        made = _federation_on_demand(data, data.on_demand, seed, *read_augmentations(data, augment, augment_public))
        for what, asked in (("public data", public), ("validation", validation), ("client_eval", client_test)):
            if asked:
                made.need_all_clients(what)
        return made
    leaks, known = public == "test", len(data.y)
    if leaks:
        x, y = torch.cat([data.x, data.test_x]), torch.cat([data.y, data.test_y])
        data, held_out = replace(data, x=x, y=y), np.arange(known, len(y))
    labels = data.task.strata(data.y.cpu().numpy())[0]
    if not leaks:
        held_out = choose_public(labels, float(public), seed) if public else np.empty(0, np.int64)
    rest = np.setdiff1d(np.arange(len(labels)), held_out)
    judged: Deal | None = None
    if validation and validation_from == POOL:
        judged = pooled_validation(labels, rest, validation, seed)
        rest = np.setdiff1d(rest, judged.index)
    groups = None if data.groups is None else data.groups.cpu().numpy()[rest]
    dealt = deal(split, labels[rest], clients, seed, groups)
    dealt = Deal(rest[dealt.index], dealt.offsets, dealt.noise)
    data, dealt, tests = with_client_tests(data, dealt, split, client_test, seed)
    if validation and validation_from == CLIENTS:
        dealt, judged = hold_out_of_clients(dealt, validation, seed)
        refuse_nothing(judged, validation, VALIDATION, ", or validation_from pool")
    data = standardised(data, dealt)
    if dealt.noise is not None and (data.fields or data.x.dtype == torch.int64):
        raise HoldfastError(f"feature noise needs real numbers, but {data.name} has others; use a split without noise")
    private, shared = read_augmentations(data, augment, augment_public)
    data, held, names = with_federated_moments(data, dealt), torch.from_numpy(held_out), client_names(data, split)
    settings = {"public": public, "augment": augment, "augment_public": augment_public}
    settings |= {} if task is None else {"task": str(task)}
    return Federation(
        data, dealt, split, seed, held, private, leaks=leaks, augment_public=shared, validation=judged,
        client_test=tests, held_out=HeldOut(validation, validation_from, client_test), client_names=names,
        settings=tuple(settings.items()),
    )  # fmt: skip


def standardised(data: DataSet, deal: Deal) -> DataSet:
    """Return the data set with targets as the task's loss takes them, by the scale of the clients' samples."""
    task = data.task.standardised(data.y, torch.from_numpy(deal.index))
    return replace(data, task=task, y=task.scaled(data.y), test_y=task.scaled(data.test_y))


def _federation_on_demand(
    data: DataSet, maker: ClientMaker, seed: int, augment: AugmentationSum, augment_public: AugmentationSum | None
) -> Federation:
    """Return a federation whose clients are made on demand; inputs and targets get the scale of some of them."""
    if data.task.targets == NUMBERS or (data.normalise == FEDERATED and not data.fields):
        some = maker.some()
        known = Deal(np.arange(len(some.y)), some.deal.offsets)
        seen = with_federated_moments(standardised(replace(data, x=some.x, y=some.y), known), known)
        data = replace(data, task=seen.task, mean=seen.mean, std=seen.std)
    data = replace(data, y=data.task.scaled(data.y), test_y=data.task.scaled(data.test_y))
    nobody, nothing = Deal(np.empty(0, np.int64), np.zeros(1, np.int64)), torch.empty(0, dtype=torch.int64)
    return Federation(data, nobody, GIVEN, seed, nothing, augment, augment_public=augment_public)


def read_augmentations(
    data: DataSet, augment: bool | str, augment_public: bool | str
) -> tuple[AugmentationSum, AugmentationSum | None]:
    """Read and check how the samples of a data set are augmented.

    Args:
        data: The data set.
        augment: How clients augment their samples.
        augment_public: How public samples are augmented, or ``"same"``.

    Returns:
        Both sums; None for public data that is not augmented separately.
    """
    shape = tuple(data.x.shape[1:])
    private = read_augmentation(augment)
    private.check(shape, data.name)
    if augment_public == SAME:
        return private, None
    shared = read_augmentation(augment_public)
    shared.check(shape, data.name)
    wanted, found = private.shape(shape), shared.shape(shape)
    if wanted != found:
        raise HoldfastError(
            f"augment makes inputs of shape {wanted}, augment_public of shape {found}: crop both to the same size"
        )
    return private, shared


def choose_public(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Choose samples at random, the same fraction of every class and at least one of each; return their numbers."""
    if not 0 < fraction < 1:
        raise HoldfastError(f"public must be a fraction in (0, 1), not {fraction:g}; use one such as 0.05")
    draw = np.random.default_rng([seed, rng.PART])
    chosen = []
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        chosen.append(draw.choice(members, max(1, round(fraction * len(members))), replace=False))
    return np.sort(np.concatenate(chosen))


def _check_data_set(data: object) -> None:
    """Raise an error if a name or an array was given where a data set belongs."""
    if not isinstance(data, DataSet):
        kind = type(data).__name__
        raise HoldfastError(f"federate needs a data set, not a {kind}; use load('digits') or from_arrays(x, y)")


def _check_on_demand(data: DataSet, split: str, clients: int) -> None:
    """Raise an error for another split or number of clients than those that are made on demand."""
    if split != GIVEN:
        raise HoldfastError(f"the clients of {data.name} are made on demand, not dealt by {split}: use the split given")
    if clients != brought_clients(data):
        raise HoldfastError(
            f"clients is {clients}, but {data.name} brings {brought_clients(data)}, made on demand: leave out clients"
        )


def refuse_bad_samples(data: DataSet) -> None:
    """Raise an error for NaN, infinities and labels without a class, which would corrupt every client's update."""
    for name, x in (("training", data.x), ("test", data.test_x)):
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            bad = (~torch.isfinite(x.reshape(len(x), -1)).all(1)).nonzero()[0, 0]
            raise HoldfastError(
                f"the {name} data of {data.name} has NaN or infinite numbers, first in sample {int(bad)}; clean it"
            )
    for name, y in (("training", data.y), ("test", data.test_y)):
        if len(y) == 0:
            raise HoldfastError(f"the {name} data of {data.name} is empty; give at least one sample")
        data.task.check(f"the {name} labels of {data.name}", y, len(data.classes))
