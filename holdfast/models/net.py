"""A network as a pure function of a flat vector: ``net(w, x)`` gives logits and features."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from holdfast.core.errors import HoldfastError
from holdfast.models.dropout import Dropout, dropping
from holdfast.models.layout import NORMS, trace
from holdfast.models.matconv import with_products
from holdfast.models.matpool import pools_first


def _headless(features: Tensor) -> Tensor:
    raise NotImplementedError("this output was not made by a network, so that it has no head")


# Norms whose statistics run over the batch or from batch to batch.
BATCHED = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class Out(NamedTuple):
    """What a network says about a batch: logits, the features that its head read, and that head as a function."""

    logits: Tensor
    features: Tensor
    head: Callable[[Tensor], Tensor] = _headless  # of the very model that was run: features -> logits


class Net:
    """Wraps any ``nn.Module`` that ends in a linear head.

    The module is copied. Its head is found (the linear layer whose output is the model's output) or named; the features
    are the head's input. ``initial`` is the vector of the module's own weights.
    """

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        classes: int,
        *,
        head: str | None = None,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
    ) -> None:
        self.device, self.precision = torch.device(device), precision
        self.dtype = torch.float64 if precision == "fp64" else torch.float32
        refuse_running_statistics(module)
        refuse_what_would_be_ignored(module)
        body = _number_dropout(copy.deepcopy(module)).eval().to(self.device, self.dtype)
        order, behind, self.head, self.footprint = _watch(body, shape, classes, head, self.device, self.dtype)
        self.layout = trace(body, order, behind, self.head, self.device)
        self.initial = self.layout.join({n: p.detach() for n, p in body.named_parameters()}).clone()
        self.dropout = any(isinstance(m, Dropout) and m.p > 0 for m in body.modules())
        self.convolutional = any(isinstance(m, nn.modules.conv._ConvNd) for m in body.modules())
        self.classes, self.shape, self.inputs = classes, shape, math.prod(shape)
        self.body = _without_head(body, self.head).requires_grad_(False)
        self.tied = len(list(body.named_parameters(remove_duplicate=False))) > len(list(body.parameters()))
        pools_first(self.body)
        self.channels_last = False

    def twin(self) -> Net:
        """The same network around a module of its own: running a module is not safe in two threads at once."""
        twin = copy.copy(self)
        twin.body = copy.deepcopy(self.body)
        return twin

    def use_channels_last(self) -> None:
        """Let convolutions see images with the channels innermost, which suits a CPU's."""
        self.channels_last = self.convolutional and len(self.shape) == 3

    def use_products(self) -> None:
        """Compute convolutions as matrix products, which batch better over clients on a GPU."""
        with_products(self.body)

    def __call__(self, w: Tensor | Mapping[str, Tensor], x: Tensor, key: Tensor | None = None) -> Out:
        """Run the model ``w`` (a vector, or its parameters) on inputs; ``key`` seeds dropout, none means no dropout."""
        parameters = dict(self.layout.split(w) if isinstance(w, Tensor) else w)
        weight, bias = (parameters.pop(f"{self.head}.{n}" if self.head else n, None) for n in ("weight", "bias"))
        assert weight is not None
        if self.channels_last:
            x, parameters = inner_channels(x), {name: channels_last(p) for name, p in parameters.items()}

        def head(features: Tensor) -> Tensor:
            with self._autocast():
                return F.linear(features, weight, bias).to(weight.dtype)

        with dropping(key), self._autocast():
            features = functional_call(self.body, parameters, (x,), tie_weights=self.tied)
        return Out(head(features), features.to(weight.dtype), head)

    def leaves(self, w: Tensor) -> dict[str, Tensor]:
        """The parameters inside a vector, to be differentiated one by one. Large ones are in the precision in which
        their layers compute, so that their gradients are made but not converted; the head's stay as they are."""
        low = {n for n in self.layout.owner if n not in self.layout.head} if self.precision == "bf16" else set()
        pieces = {name: p.detach() for name, p in self.layout.split(w).items()}
        return {name: p.bfloat16() if name in low and p.dim() > 1 else p for name, p in pieces.items()}

    def neurons(self, w: Tensor, x: Tensor) -> Tensor:
        """What every neuron of every layer says: ReLU of the layer's output behind its norm, [batch, neurons].

        For a convolution a neuron is an output channel, and the mean runs over positions. The head is a layer too.
        """
        seen: dict[str, Tensor] = {}

        def watch(name: str) -> Callable[[nn.Module, object, Tensor], None]:
            def hook(_: nn.Module, __: object, out: Tensor) -> None:
                seen[name] = out

            return hook

        names = [layer.norm or layer.name for layer in self.layout.layers]
        handles = [self.body.get_submodule(n).register_forward_hook(watch(n)) for n in names if n != self.head]
        try:
            seen[self.head] = self(w, x).logits
        finally:
            for handle in handles:
                handle.remove()
        return torch.cat(
            [_per_neuron(seen[n], layer.neurons) for n, layer in zip(names, self.layout.layers, strict=True)], 1
        )

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def channels_last(t: Tensor) -> Tensor:
    """Images and kernels with the channels innermost in memory; anything else as it is."""
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


def inner_channels(x: Tensor) -> Tensor:
    """The same of images. With a single channel both orders are one: the strides must say which is meant, since all
    layers take over what the first one finds, and a max-pool is many times slower in the other order."""
    x = channels_last(x)
    _, channels, height, width = x.shape
    return x.as_strided(x.shape, (height * width * channels, 1, width * channels, channels))


def _per_neuron(out: Tensor, neurons: int) -> Tensor:
    """[batch, neurons]: the mean activation over positions; channels come second in images, last in sequences."""
    active = torch.relu(out)
    if active.dim() == 2:
        return active
    if active.shape[1] == neurons:
        return active.flatten(2).mean(2)
    return active.flatten(1, -2).mean(1)


def refuse_running_statistics(module: nn.Module) -> None:
    """BatchNorm's running statistics are not parameters: clients cannot average them as part of the vector."""
    for name, sub in module.named_modules():
        running = getattr(sub, "running_mean", None) is not None
        if running or isinstance(sub, nn.modules.batchnorm._BatchNorm):
            raise HoldfastError(
                f"the model's layer {name!r} ({type(sub).__name__}) keeps running statistics, or those of the batch, "
                "which federated averaging corrupts: convert the model with holdfast.to_groupnorm(module)"
            )


def refuse_what_would_be_ignored(module: nn.Module) -> None:
    """Frozen parameters, which would be trained, and kinds of dropout that would do nothing."""
    for name, p in module.named_parameters():
        if not p.requires_grad:
            raise HoldfastError(
                f"the model's parameter {name!r} has requires_grad=False, but every parameter is trained: make it a "
                "buffer, or freeze layers with a part such as freeze(1)"
            )
    for name, sub in module.named_modules():
        if isinstance(sub, nn.modules.dropout._DropoutNd) and not isinstance(sub, nn.Dropout):
            raise HoldfastError(f"the model's layer {name!r} ({type(sub).__name__}) is not supported: use nn.Dropout")


def to_groupnorm(module: nn.Module, groups: int = 2) -> nn.Module:
    """A copy of the module with every BatchNorm and InstanceNorm replaced by a GroupNorm over the same channels.

    >>> to_groupnorm(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))[1].num_groups
    2
    """
    result = copy.deepcopy(module)
    if isinstance(result, BATCHED):
        return _groupnorm(result, groups)
    for name, sub in list(result.named_modules()):
        for child, value in list(sub.named_children()):
            if isinstance(value, BATCHED):
                setattr(result.get_submodule(name), child, _groupnorm(value, groups))
    return result


def _groupnorm(
    norm: nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm, groups: int
) -> nn.GroupNorm:
    channels = norm.num_features
    fitting = max(g for g in range(1, groups + 1) if channels % g == 0)
    new = nn.GroupNorm(fitting, channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        new.weight.data.copy_(norm.weight.data)
        new.bias.data.copy_(norm.bias.data)
    return new


def _number_dropout(module: nn.Module) -> nn.Module:
    """Replace ``nn.Dropout`` by the keyed one, and give every dropout layer its own number."""
    for name, sub in list(module.named_modules(remove_duplicate=False)):
        if isinstance(sub, nn.Dropout) and name:
            parent, _, child = name.rpartition(".")
            setattr(module.get_submodule(parent), child, Dropout(sub.p))
    for number, sub in enumerate(m for m in module.modules() if isinstance(m, Dropout)):
        sub.layer = number
    return module


def _watch(
    module: nn.Module,
    shape: tuple[int, ...],
    classes: int,
    head: str | None,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[list[str], dict[str, str], str, int]:
    """Run two samples: the order in which layers run, which layer each norm reads, the head's name, and how many
    activations a sample makes."""
    ran: dict[str, Tensor] = {}
    order: dict[str, int] = {}  # how often each layer ran, in the order of its first run
    behind: dict[str, str] = {}  # norm -> the layer whose output it reads
    total = 0

    def note(name: str) -> object:
        def hook(sub: nn.Module, inputs: tuple[object, ...], out: object) -> None:
            nonlocal total
            if isinstance(sub, NORMS) and inputs:
                for layer in [n for n, made in ran.items() if made is inputs[0]]:
                    behind[name] = layer
            order[name] = order.get(name, 0) + 1
            if isinstance(out, Tensor):
                total += out.numel() // 2
                ran[name] = out

        return hook

    handles = [m.register_forward_hook(note(n)) for n, m in module.named_modules() if owns(m)]
    try:
        with torch.no_grad():
            out = module(torch.zeros((2, *shape), device=device, dtype=dtype))
    except Exception as error:
        if isinstance(error, HoldfastError):
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise HoldfastError(f"the model fails on a batch of shape {(2, *shape)}: {what}") from error
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(out, Tensor) or out.shape != (2, classes):
        what = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise HoldfastError(f"the model returns {what} for 2 samples; expected logits of shape (2, {classes})")
    found = _find_head(module, ran, out, head)
    if order[found] > 1 or shared(module, found):
        raise HoldfastError(f"the model's head {found!r} is used elsewhere in the model, too: give it its own weights")
    return list(order), behind, found, total


def shared(module: nn.Module, head: str) -> bool:
    """Whether the head, or a weight of it, stands in the module under another name, too."""
    sub = module.get_submodule(head)
    uses = sum(m is sub for _, m in module.named_modules(remove_duplicate=False))
    own = {id(p) for p in sub.parameters()}
    names = [n for n, p in module.named_parameters(remove_duplicate=False) if id(p) in own]
    return uses > 1 or any(n.rpartition(".")[0] != head for n in names)


def owns(module: nn.Module) -> bool:
    """Layers, and whatever has parameters of its own."""
    return not list(module.children()) or any(True for _ in module.parameters(recurse=False))


def _find_head(module: nn.Module, ran: dict[str, Tensor], out: Tensor, named: str | None) -> str:
    linear = [n for n in ran if isinstance(module.get_submodule(n), nn.Linear)]
    if named is not None and named not in linear:
        raise HoldfastError(
            f"the model has no linear layer {named!r} to be its head; it has {', '.join(linear) or 'none'}"
        )
    found = [n for n in ([named] if named is not None else linear) if ran[n] is out]
    if not found:
        raise HoldfastError(
            f"the model's output is not that of {'its head ' + repr(named) if named else 'a linear layer'}: return the "
            "logits of a last nn.Linear, without softmax behind it"
        )
    return found[-1]


def _without_head(module: nn.Module, head: str) -> nn.Module:
    if not head:
        return nn.Identity()
    parent, _, child = head.rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    return module
