"""A network as a pure function of a flat vector: ``net(w, x)`` returns logits and features."""

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

from holdfast.models.corner_pooling import pool_before_relu
from holdfast.models.dropout import Dropout, dropping
from holdfast.models.layout import trace
from holdfast.models.module_checks import (
    refuse_frozen_parameters,
    refuse_running_statistics,
    refuse_unsupported_dropout,
)
from holdfast.models.product_convolution import with_products
from holdfast.models.trial_run import find_head, run_two_samples


def _headless(features: Tensor) -> Tensor:
    raise NotImplementedError("this output was not made by a network, so it has no head")


class Out(NamedTuple):
    """The output of a network for a batch.

    Attributes:
        logits: One number per class: [batch, classes].
        features: The input of the head.
        head: The head of the model that was run, as a function from features to logits.
    """

    logits: Tensor
    features: Tensor
    head: Callable[[Tensor], Tensor] = _headless


class Net:
    """Any ``nn.Module`` that ends in a linear head, as a function of a vector. The module is copied.

    Attributes:
        module: An untouched copy of the module.
        layout: The names of the vector's slices.
        initial: The vector of the module's own weights.
        head: The module whose output is the model's output; its input are the features.
        body: The module without its head.
        shape: The shape of one input.
        inputs: The numbers in one input.
        classes: The number of classes.
        device: Where the model runs.
        precision: ``fp32``, ``tf32``, ``bf16`` or ``fp64``.
        dtype: The type of the vector.
        footprint: The activations that one sample makes.
        dropout: Whether the model has dropout.
        convolutional: Whether the model has convolutions.
        tied: Whether layers share parameters.
        channels_last: Whether convolutions see images with the channels innermost.
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
        """Wrap a module.

        Args:
            module: Any module that returns the logits of a last ``nn.Linear``.
            shape: The shape of one input, without the batch axis.
            classes: The number of classes.
            head: The name of the last linear layer; by default it is detected.
            device: Where to run the model.
            precision: ``fp32``, ``tf32``, ``bf16`` or ``fp64``.
        """
        self.device, self.precision = torch.device(device), precision
        self.dtype = torch.float64 if precision == "fp64" else torch.float32
        refuse_running_statistics(module)
        refuse_frozen_parameters(module)
        refuse_unsupported_dropout(module)
        self.module = copy.deepcopy(module)
        body = _with_keyed_dropout(copy.deepcopy(module)).eval().to(self.device, self.dtype)
        trial = run_two_samples(body, torch.zeros((2, *shape), device=self.device, dtype=self.dtype), classes)
        self.head, self.footprint = find_head(body, trial, head), trial.activations
        self.layout = trace(body, list(trial.runs), trial.norm_input, self.head, self.device)
        self.initial = self.layout.join({n: p.detach() for n, p in body.named_parameters()}).clone()
        self.dropout = any(isinstance(m, Dropout) and m.p > 0 for m in body.modules())
        self.convolutional = any(isinstance(m, nn.modules.conv._ConvNd) for m in body.modules())
        self.classes, self.shape, self.inputs = classes, shape, math.prod(shape)
        self.body = _without_head(body, self.head).requires_grad_(False)
        self.tied = len(list(body.named_parameters(remove_duplicate=False))) > len(list(body.parameters()))
        pool_before_relu(self.body)
        self.channels_last = False

    def twin(self) -> Net:
        """Return the same network with its own copy of the module: two threads must not run one module at once."""
        twin = copy.copy(self)
        twin.body = copy.deepcopy(self.body)
        return twin

    def use_channels_last(self) -> None:
        """Let convolutions see images with the channels innermost, which is faster on a CPU."""
        self.channels_last = self.convolutional and len(self.shape) == 3

    def use_products(self) -> None:
        """Compute convolutions as matrix products, which batch better over clients on a GPU."""
        with_products(self.body)

    def __call__(self, w: Tensor | Mapping[str, Tensor], x: Tensor, key: Tensor | None = None) -> Out:
        """Run the model on inputs.

        Args:
            w: The model: a vector, or its parameters by name.
            x: Inputs.
            key: The key of dropout; without it nothing is dropped.

        Returns:
            Logits, features, and the head of this model.
        """
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
        """Return the parameters inside a vector, to be differentiated one by one.

        Large ones are in the precision in which their layers compute, so that their gradients need no conversion. The
        head's parameters stay as they are.
        """
        low = {n for n in self.layout.owner if n not in self.layout.head} if self.precision == "bf16" else set()
        pieces = {name: p.detach() for name, p in self.layout.split(w).items()}
        return {name: p.bfloat16() if name in low and p.dim() > 1 else p for name, p in pieces.items()}

    def neurons(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the activation of every neuron: ReLU of the layer's output after its norm, [batch, neurons].

        For a convolution a neuron is an output channel, and the mean is taken over positions. The head is a layer too.
        """
        outputs: dict[str, Tensor] = {}

        def store(name: str) -> Callable[[nn.Module, object, Tensor], None]:
            def hook(_: nn.Module, __: object, out: Tensor) -> None:
                outputs[name] = out

            return hook

        names = [layer.norm or layer.name for layer in self.layout.layers]
        handles = [self.body.get_submodule(n).register_forward_hook(store(n)) for n in names if n != self.head]
        try:
            outputs[self.head] = self(w, x).logits
        finally:
            for handle in handles:
                handle.remove()
        return torch.cat(
            [_per_neuron(outputs[n], layer.neurons) for n, layer in zip(names, self.layout.layers, strict=True)], 1
        )

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def channels_last(t: Tensor) -> Tensor:
    """Store images and kernels with the channels innermost in memory; return anything else as it is."""
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


def inner_channels(x: Tensor) -> Tensor:
    """Store images with the channels innermost, and set the strides accordingly.

    With a single channel both orders are the same memory, so that only the strides tell them apart. All layers keep the
    order of the first one, and a max-pool is many times slower in the other order.
    """
    x = channels_last(x)
    _, channels, height, width = x.shape
    return x.as_strided(x.shape, (height * width * channels, 1, width * channels, channels))


def _per_neuron(out: Tensor, neurons: int) -> Tensor:
    """Return the mean activation over positions, [batch, neurons]; channels are second in images, last in sequences."""
    active = torch.relu(out)
    if active.dim() == 2:
        return active
    if active.shape[1] == neurons:
        return active.flatten(2).mean(2)
    return active.flatten(1, -2).mean(1)


def _with_keyed_dropout(module: nn.Module) -> nn.Module:
    """Replace ``nn.Dropout`` by the keyed one, and give every dropout layer its own number."""
    for name, sub in list(module.named_modules(remove_duplicate=False)):
        if isinstance(sub, nn.Dropout) and name:
            parent, _, child = name.rpartition(".")
            setattr(module.get_submodule(parent), child, Dropout(sub.p))
    for number, sub in enumerate(m for m in module.modules() if isinstance(m, Dropout)):
        sub.layer = number
    return module


def _without_head(module: nn.Module, head: str) -> nn.Module:
    if not head:
        return nn.Identity()
    parent, _, child = head.rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    return module
