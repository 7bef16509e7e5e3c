"""BatchNorm in a federation: running statistics beside the flat vector, and batch statistics without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import Tensors

STATISTICS = "batchnorm"  # the name under which statistics are kept and sent, where parts have theirs


class NormLayer(NamedTuple):
    """A BatchNorm layer that keeps running statistics.

    Attributes:
        name: The module.
        channels: Its channels.
        first: Where its running mean starts in the vector of statistics; the running variance follows.
        momentum: The weight of a new batch; None: the mean of all batches.
    """

    name: str
    channels: int
    first: int
    momentum: float | None


class Moments(NamedTuple):
    """The running statistics of one layer: mean, variance, and the number of batches they are from."""

    mean: Tensor
    variance: Tensor
    batches: Tensor


class UnsharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """What becomes of ``nn.SyncBatchNorm``: clients do not share batches, and it insists on a counter of its own."""

    def _check_input_dim(self, input: Tensor) -> None: ...


class Statistics:
    """The running statistics of all BatchNorm layers of a model.

    As tensors they are ``running``, one vector of means and variances, and ``batches``, the batches that each layer has
    seen, an integer. The module's own counters are removed, since a layer would count in place.

    Attributes:
        layers: The layers, in the order of the module.
        initial: The statistics that the module came with.
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        self.layers: list[NormLayer] = []
        pieces, batches = [], []
        first = 0
        for name, sub in batchnorm_layers(module).items():
            if sub.running_mean is None or sub.running_var is None:
                continue
            self.layers.append(NormLayer(name, len(sub.running_mean), first, sub.momentum))
            pieces += [sub.running_mean, sub.running_var]
            batches.append(0 if sub.num_batches_tracked is None else int(sub.num_batches_tracked))
            sub.num_batches_tracked = None
            if isinstance(sub, nn.SyncBatchNorm):
                sub.__class__ = UnsharedBatchNorm  # type: ignore[assignment]
            first += 2 * len(sub.running_mean)
        self.initial: Tensors = {}
        if self.layers:
            self.initial["running"] = torch.cat(pieces).to(device, dtype)
            self.initial["batches"] = torch.tensor(batches, device=device)

    def moments(self, values: Tensors) -> list[Moments]:
        """Return the statistics of every layer."""
        found = []
        for number, (_, channels, first, _) in enumerate(self.layers):
            mean = values["running"][first : first + channels]
            variance = values["running"][first + channels : first + 2 * channels]
            found.append(Moments(mean, variance, values["batches"][number]))
        return found

    def buffers(self, values: Tensors) -> Tensors:
        """Return the statistics under the names of the module's buffers, without the counters."""
        result = {}
        for layer, moments in zip(self.layers, self.moments(values), strict=True):
            result[_buffer(layer, "running_mean")] = moments.mean
            result[_buffer(layer, "running_var")] = moments.variance
        return result

    def counters(self, values: Tensors) -> Tensors:
        """Return the counters under the names of the module's buffers."""
        batches = values["batches"]
        return {_buffer(layer, "num_batches_tracked"): batches[i].clone() for i, layer in enumerate(self.layers)}

    def possible(self, rows: Tensors) -> Tensor:
        """Tell which clients' statistics can be true: no variance and no count is negative. bool [C]."""
        parts = [rows["running"][:, first + size : first + 2 * size] for _, size, first, _ in self.layers]
        return (torch.cat(parts, 1) >= 0).all(1) & (rows["batches"] >= 0).all(1)


def joined(moments: Sequence[Moments]) -> Tensors:
    """Undo ``Statistics.moments``."""
    return {
        "running": torch.cat([t for m in moments for t in (m.mean, m.variance)]),
        "batches": torch.stack([m.batches for m in moments]),
    }


def batchnorm_layers(module: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """Return the BatchNorm layers of a module, by name."""
    return {n: m for n, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}


class BatchNorms:
    """What the BatchNorm layers do during one pass: they use statistics of the batch and update the running ones.

    Attributes:
        now: The running statistics of every layer, as they are at this moment of the pass.
        calls: How often a layer has run.
    """

    def __init__(self, statistics: Statistics, values: Tensors, buffers: Tensors, frozen: bool) -> None:
        """Begin a pass.

        Args:
            statistics: The layers.
            values: The running statistics before the pass.
            buffers: The very tensors that the module gets as its buffers, by which a layer is recognised.
            frozen: Whether layers use the running statistics and leave them as they are.
        """
        self.statistics, self.frozen, self.calls = statistics, frozen, 0
        self.now = statistics.moments(values) if statistics.layers else []
        self.number = {id(buffers[_buffer(layer, "running_mean")]): i for i, layer in enumerate(statistics.layers)}

    def values(self) -> Tensors:
        """Return the running statistics after the pass."""
        return {name: t.detach() for name, t in joined(self.now).items()} if self.now else {}

    def normalise(
        self, x: Tensor, running_mean: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float,
        mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Normalise the input of one layer in training.

        Args:
            x: The input: [rows, channels, ...].
            running_mean: The layer's buffer, by which it is recognised; None: it keeps no statistics.
            weight: The scale, if any.
            bias: The shift, if any.
            eps: What is added to the variance.
            mask: False where a row of the batch is padding; None: there is no padding.

        Returns:
            The output.
        """
        self.calls += 1
        at = self.number.get(id(running_mean))
        old = None if at is None else self.now[at]
        if self.frozen and old is not None:
            return F.batch_norm(x, old.mean, old.variance, weight, bias, False, 0.0, eps)
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        mean, variance, count = batch_moments(wide, mask)
        if old is not None and at is not None:
            momentum = self.statistics.layers[at].momentum
            self.now[at] = updated(old, mean.detach(), variance.detach(), count, momentum)
            lonely = count <= 1  # a single value has no variance
            mean = torch.where(lonely, old.mean.to(mean.dtype), mean)
            variance = torch.where(lonely, old.variance.to(mean.dtype), variance)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        scale = torch.rsqrt(variance + eps)
        scale = scale if weight is None else scale * weight
        out = (wide - mean.reshape(shape)) * scale.reshape(shape)
        return (out if bias is None else out + bias.reshape(shape)).to(x.dtype)


def batch_moments(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and variance per channel over the rows that count, and over how many values they are."""
    axes = [0, *range(2, x.dim())]
    per_row = x[0, :1].numel()
    if mask is None:
        count = torch.tensor(len(x) * per_row, device=x.device)
        variance, mean = torch.var_mean(x, axes, correction=0)
        return mean, variance, count
    rows = row_mask(mask, len(x)).reshape(-1, *[1] * (x.dim() - 1))
    count = rows.sum() * per_row
    share = 1 / count.clamp(min=1).to(x.dtype)
    mean = torch.where(rows, x, 0).sum(axes) * share
    centred = torch.where(rows, x - mean.reshape(1, -1, *[1] * (x.dim() - 2)), 0)
    return mean, centred.square().sum(axes) * share, count


def row_mask(mask: Tensor, rows: int) -> Tensor:
    """Return the mask of a layer's rows, where every sample of the batch has become the same number of rows."""
    if rows % len(mask):
        raise HoldfastError(
            f"a BatchNorm layer sees {rows} rows for a batch of {len(mask)} samples, so padding cannot be told apart; "
            "use --engine loop"
        )
    return mask if rows == len(mask) else mask.repeat_interleave(rows // len(mask))


def updated(old: Moments, mean: Tensor, variance: Tensor, count: Tensor, momentum: float | None) -> Moments:
    """Return a layer's running statistics after a batch; a batch of a single value changes nothing."""
    counts = count > 1
    batches = old.batches + counts
    factor = 1 / batches.clamp(min=1).to(old.mean.dtype) if momentum is None else momentum
    unbiased = variance * (count.to(variance.dtype) / (count - 1).clamp(min=1))
    means = old.mean + factor * (mean.to(old.mean.dtype) - old.mean)
    variances = old.variance + factor * (unbiased.to(old.variance.dtype) - old.variance)
    return Moments(torch.where(counts, means, old.mean), torch.where(counts, variances, old.variance), batches)


def _buffer(layer: NormLayer, name: str) -> str:
    return f"{layer.name}.{name}" if layer.name else name
