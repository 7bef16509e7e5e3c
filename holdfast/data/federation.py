"""A federation: training data on the device, one list of samples per client, test data, optional public data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.data.augment import crop_and_flip
from holdfast.data.dataset import DataSet
from holdfast.data.feature_noise import perturb
from holdfast.data.splits import Deal, deal
from holdfast.method.part import Batch


@dataclass(frozen=True)
class Federation:
    """Who holds what. Made by ``federate``; ``to`` moves it to a device."""

    data: DataSet
    deal: Deal
    split: str
    seed: int
    public: Tensor  # sample numbers held out of training for the server
    augment: bool = False
    dtype: torch.dtype = torch.float32
    leaks: bool = False  # whether the public samples are the test samples
    numbers: Tensor | None = None  # the samples' numbers in the whole data set, where only some of them are here

    def __repr__(self) -> str:
        return f"Federation({self.data!r} over {self.clients} clients by {self.split}, seed {self.seed})"

    @property
    def clients(self) -> int:
        return len(self.deal.offsets) - 1

    @property
    def classes(self) -> int:
        return len(self.data.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.data.x.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.data.x.device

    @property
    def occupied(self) -> np.ndarray:
        """The clients that have samples: the others are never drawn."""
        return np.flatnonzero(self.deal.sizes)

    def to(self, device: torch.device, dtype: torch.dtype) -> Federation:
        """The same federation with its samples on a device and its inputs in a precision."""
        d = self.data
        data = replace(d, x=d.x.to(device), y=d.y.to(device), test_x=d.test_x.to(device), test_y=d.test_y.to(device))
        numbers = None if self.numbers is None else self.numbers.to(device)
        return replace(self, data=data, public=self.public.to(device), numbers=numbers, dtype=dtype)

    def only(self, clients: Sequence[int], *, server: bool = False) -> Federation:
        """The same federation with the samples of these clients alone; the server also has test and public data."""
        owned = [self.deal.client(i) if i in set(clients) else self.deal.index[:0] for i in range(self.clients)]
        own = torch.from_numpy(np.concatenate(owned)).to(self.device)
        held = self.public if server else self.public[:0]
        here, d = torch.cat([own, held]), self.data
        test_x, test_y = (d.test_x, d.test_y) if server else (d.test_x[:0], d.test_y[:0])
        data = replace(d, x=d.x[here], y=d.y[here], test_x=test_x, test_y=test_y, groups=None)
        offsets = np.cumsum([0, *(len(samples) for samples in owned)])
        dealt = Deal(np.arange(len(own)), offsets, self.deal.noise)
        public = torch.arange(len(own), len(here), device=self.device)
        numbers = here if self.numbers is None else self.numbers[here]
        return replace(self, data=data, deal=dealt, public=public, numbers=numbers)

    def with_public(self, x: Tensor, y: Tensor) -> Federation:
        """The same federation with other public samples, as they are stored."""
        d, new = self.data, torch.arange(len(self.data.y), len(self.data.y) + len(y))
        data = replace(d, x=torch.cat([d.x, x.to(d.x)]), y=torch.cat([d.y, y.to(d.y)]), groups=None)
        numbers = torch.arange(len(d.y)) if self.numbers is None else self.numbers
        numbers = torch.cat([numbers, torch.full_like(y, -1, dtype=torch.int64).to(numbers)])
        return replace(self, data=data, public=new.to(self.device), numbers=numbers)

    def inputs(self, stored: Tensor) -> Tensor:
        """Stored samples as the network wants them: scaled and normalised. Any leading axes."""
        return self.normalised(self.scaled(stored))

    def scaled(self, stored: Tensor) -> Tensor:
        """Stored samples as numbers, pixels in [0, 1]: the scale on which feature noise is measured."""
        x = stored.to(self.dtype)
        return x / 255 if stored.dtype == torch.uint8 else x

    def normalised(self, x: Tensor) -> Tensor:
        if not self.data.mean:
            return x
        mean, std = self.moments
        return (x - mean) / std

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation per channel, on the device, in the shape of an input."""
        shape = (-1,) + (1,) * (len(self.shape) - 1)
        both = (torch.tensor(v, dtype=self.dtype, device=self.device) for v in (self.data.mean, self.data.std))
        mean, std = (v.reshape(shape) for v in both)
        return mean, std

    def samples(self, index: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of sample numbers, as their client sees them: with its feature noise."""
        x = self.scaled(self.data.x[index])
        if self.deal.noise is not None:
            noise = self.deal.noise
            spread = sigma.to(x.dtype).reshape(sigma.shape + (1,) * (index.dim() - sigma.dim())).expand(index.shape)
            number = index if self.numbers is None else self.numbers[index]
            x = perturb(x, number, spread, noise.mean, noise.share, self.seed)
        return self.normalised(x), self.data.y[index]

    def batch(self, index: Tensor, sigma: Tensor, key: Tensor | None) -> tuple[Tensor, Tensor]:
        """Like ``samples``, augmented where the run asks for it: one key per client."""
        x, y = self.samples(index, sigma)
        return (x if key is None else crop_and_flip(x, key)), y

    def public_batches(self, size: int) -> Iterator[Batch]:
        """The public data in batches; none where there are no such data."""
        for index in torch.split(self.public, size) if len(self.public) else ():
            x, y = self.inputs(self.data.x[index]), self.data.y[index]
            yield Batch(x, y, torch.ones_like(y, dtype=torch.bool))


def federate(
    data: DataSet,
    split: str = "dirichlet(0.3)",
    clients: int = 20,
    seed: int = 0,
    public: float | str = 0.0,
    augment: bool = False,
) -> Federation:
    """Deal a data set to clients, after holding out a stratified ``public`` fraction of the training data.

    ``public="test"`` makes the test samples public: a leak, which parts refuse unless told otherwise.
    """
    refuse_other_things(data)
    refuse_bad_samples(data)
    leaks, known = public == "test", len(data.y)
    if leaks:
        x, y = torch.cat([data.x, data.test_x]), torch.cat([data.y, data.test_y])
        data, held = replace(data, x=x, y=y), np.arange(known, len(y))
    labels = data.y.cpu().numpy()
    if not leaks:
        held = hold_out(labels, float(public), seed) if public else np.empty(0, np.int64)
    rest = np.setdiff1d(np.arange(len(labels)), held)
    groups = None if data.groups is None else data.groups.cpu().numpy()[rest]
    dealt = deal(split, labels[rest], clients, seed, groups)
    dealt = Deal(rest[dealt.index], dealt.offsets, dealt.noise)
    if augment and data.x.dim() != 4:
        raise HoldfastError(
            f"augmentation needs images, but the samples of {data.name} have shape {tuple(data.x.shape[1:])}"
        )
    return Federation(data, dealt, split, seed, torch.from_numpy(held), augment, leaks=leaks)


def hold_out(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """A stratified choice of samples: the same share of every class, at least one of each."""
    if not 0 < fraction < 1:
        raise HoldfastError(f"public must be a fraction in (0, 1), not {fraction:g}")
    draw = np.random.default_rng([seed, rng.PART])
    picked = []
    for c in np.unique(labels):
        own = np.flatnonzero(labels == c)
        picked.append(draw.choice(own, max(1, round(fraction * len(own))), replace=False))
    return np.sort(np.concatenate(picked))


def refuse_other_things(data: object) -> None:
    """A name or arrays where a data set belongs: say how to make one."""
    if not isinstance(data, DataSet):
        kind = type(data).__name__
        raise HoldfastError(f"federate needs a data set, not a {kind}: use load('digits') or from_arrays(x, y)")


def refuse_bad_samples(data: DataSet) -> None:
    """NaN or inf in the data, or labels without a class, would spoil every client: refuse them at the door."""
    for name, x in (("training", data.x), ("test", data.test_x)):
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            bad = (~torch.isfinite(x.reshape(len(x), -1)).all(1)).nonzero()[0, 0]
            raise HoldfastError(
                f"the {name} data of {data.name} hold NaN or inf, first in sample {int(bad)}: clean them"
            )
    for name, y in (("training", data.y), ("test", data.test_y)):
        if len(y) == 0 or int(y.min()) < 0 or int(y.max()) >= len(data.classes):
            raise HoldfastError(f"the {name} labels of {data.name} must be 0..{len(data.classes) - 1} and not empty")
