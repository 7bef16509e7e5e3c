"""A network as a pure function of a flat vector: ``net(w, x)`` returns logits and features."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from holdfast.core import rng
from holdfast.core.tensors import Tensors
from holdfast.models.batched_clients import batched, without_shortcuts
from holdfast.models.batchnorm import BatchNorms, Statistics, batchnorm_layers
from holdfast.models.corner_pooling import pool_before_relu
from holdfast.models.dropout import Dropout, dropping, masks_drawn
from holdfast.models.inputs import first_axis, run_module
from holdfast.models.layout import trace
from holdfast.models.module_checks import refuse_tracking_instance_norm, require_trainable
from holdfast.models.product_convolution import with_products
from holdfast.models.recurrent import keep_weights_apart
from holdfast.models.training_pass import EvaluationPass, TrainingPass
from holdfast.models.trial_run import find_head, refuse_probabilities, run_two_samples, watched_training


def of_sample(features: Tensor) -> Tensor:
    """Return features with one row per sample: those of a text, which has positions, are averaged over them."""
    return features.mean(1) if features.dim() == 3 else features


def _headless(features: Tensor) -> Tensor:
    raise NotImplementedError("this output was not made by a network with a head")


class Out(NamedTuple):
    """The output of a network for a batch.

    Attributes:
        logits: One number per class: [batch, classes].
        features: The input of the head, its mean over the positions of a text; the logits, if the network has no head.
        head: The head of the model that was run, as a function from features to logits.
    """

    logits: Tensor
    features: Tensor
    head: Callable[[Tensor], Tensor] = _headless


class Net:
    """Any ``nn.Module`` that returns logits, as a function of a vector. The module is copied.

    The vector holds the parameters that are trained. Frozen parameters (``requires_grad=False``) and buffers are part
    of the function and exist once. The running statistics of BatchNorm are beside the vector.

    Attributes:
        module: An untouched copy of the module.
        layout: The names of the vector's slices.
        initial: The vector of the module's own weights.
        statistics: The BatchNorm layers that keep running statistics.
        stats: The running statistics with which the network evaluates; empty without such layers.
        batchnorm: ``average``, ``local`` or ``frozen``.
        kept: The places in the vector that stay at each client, ascending: the BatchNorm parameters under ``local``.
        kept_mask: The same as a mask.
        head: The linear layer whose output is the model's output, and whose input are the features; None: there is
            no such layer.
        body: The module without its head.
        shape: The shape of one input.
        inputs: The numbers in one input.
        takes_numbers: Whether an input is one tensor of real numbers, not tokens or several tensors.
        classes: The number of classes.
        device: Where the model runs.
        precision: ``fp32``, ``tf32``, ``bf16`` or ``fp64``.
        dtype: The type of the vector.
        footprint: The activations that one sample makes.
        dropout: Whether training draws masks from a key.
        random: Whether training draws other random numbers, which differ between engines.
        convolutional: Whether the model has convolutions.
        attentive: Whether the model has attention layers of PyTorch.
        intercepted: Whether training computes some layers otherwise than PyTorch does.
        unbatchable: Whether PyTorch can batch some layers over clients only while it differentiates.
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
        batchnorm: str = "average",
        example: Any = None,
        positions: tuple[int, ...] = (),
    ) -> None:
        """Copy a module and find its head, layers and blocks by running two samples.

        Args:
            module: Any module that returns logits, or an object with ``logits`` as those of Hugging Face.
            shape: The shape of one input, without the batch axis.
            classes: The number of outputs: classes, labels, targets or tokens.
            head: The name of the last linear layer; by default it is detected.
            device: Where to run the model.
            precision: ``fp32``, ``tf32``, ``bf16`` or ``fp64``.
            batchnorm: How BatchNorm is federated: ``average``, ``local`` or ``frozen``.
            example: Two inputs: a tensor, or a dictionary or tuple of tensors; by default zeros of the shape.
            positions: The axes of an output between the samples and the classes, as of a text.
        """
        self.device, self.precision = torch.device(device), precision
        self.dtype = torch.float64 if precision == "fp64" else torch.float32
        self.classes, self.shape, self.inputs = classes, shape, math.prod(shape)
        self.batchnorm, self.channels_last = batchnorm, False
        refuse_tracking_instance_norm(module)
        require_trainable(module)
        self.module = copy.deepcopy(module)
        body = _with_keyed_dropout(copy.deepcopy(module)).eval().to(self.device, self.dtype)
        self.statistics = Statistics(body, self.device, self.dtype)
        self.stats = self.statistics.initial
        if example is None:
            example = torch.zeros((2, *shape), device=self.device, dtype=self.dtype)
        self.takes_numbers = isinstance(example, Tensor) and example.is_floating_point()
        trial = run_two_samples(body, example, (*positions, classes))
        self.head, self.footprint = find_head(body, trial, head), trial.activations
        if self.head is None:
            refuse_probabilities(trial.logits)
        self.layout = trace(body, trial, self.head, self.device)
        self.kept_mask = self._stays_at_clients(body)
        self.kept = self.kept_mask.nonzero().flatten()
        trainable = {name: p.detach() for name, p in body.named_parameters() if p.requires_grad}
        self.initial = self.layout.join(trainable).clone()
        self.convolutional = any(isinstance(m, nn.modules.conv._ConvNd) for m in body.modules())
        self.attentive = any(isinstance(m, nn.MultiheadAttention) for m in body.modules())
        self.tied = len(list(body.named_parameters(remove_duplicate=False))) > len(list(body.parameters()))
        self.names = _names(module)
        self.fixed_head = _head_parameters(body, self.head)
        self.body = _without_head(body, self.head).requires_grad_(False)
        pool_before_relu(self.body)
        keep_weights_apart(self.body)
        self.single: nn.Module | None = None  # the body for one client at a time, if it differs
        self._note_submodules()
        self.intercepted = self.unbatchable = self.dropout = self.random = False
        self._note_training(example)

    def _note_training(self, example: Any) -> None:
        """Train on two samples and note what the module calls."""
        self.set_training(True)
        buffers = self.statistics.buffers(self.stats) if self.stats else {}
        norms = BatchNorms(self.statistics, self.stats, buffers, frozen=False)
        with watched_training(self.body, example) as facts, dropping(rng.key(0).to(self.device)):
            with TrainingPass(norms, None, first_axis(example)) as passed:
                self._run(self.initial, example, buffers)
            drawn = masks_drawn()
        self.unbatchable = passed.unbatchable > 0
        self.intercepted = norms.calls + drawn.functional > 0 or self.unbatchable
        self.dropout, self.random = drawn.all > 0, facts.random

    def _stays_at_clients(self, body: nn.Module) -> Tensor:
        """Return a mask of the parameters that stay at each client."""
        norms = batchnorm_layers(body) if self.batchnorm == "local" else {}
        own = {_inside(n, p) for n, m in norms.items() for p, _ in m.named_parameters(recurse=False)}
        masks = [torch.full((size,), name in own, device=self.device) for name, size in self.layout.names_and_sizes]
        return torch.cat(masks)

    @property
    def carries(self) -> bool:
        """Whether running statistics change in training."""
        return bool(self.stats) and self.batchnorm != "frozen"

    def kept_at_clients(self) -> Tensors:
        """Return what a new client starts with and keeps: the BatchNorm layers under ``local``, else nothing."""
        if self.batchnorm != "local" or not (self.stats or len(self.kept)):
            return {}
        return {"own": self.initial[self.kept], **self.stats}

    @property
    def travelling(self) -> int:
        """The bytes of a model that travel between server and clients, without running statistics."""
        return (self.initial.numel() - len(self.kept)) * self.initial.element_size()

    def shared(self, w: Tensor) -> Tensor:
        """Return the part of a vector that travels between server and clients."""
        return w[~self.kept_mask] if len(self.kept) else w

    def whole(self, shared: Tensor, kept: Tensor) -> Tensor:
        """Undo ``shared``; what stays at clients is taken from the vector ``kept``."""
        if not len(self.kept):
            return shared
        return kept.masked_scatter(~self.kept_mask, shared)

    def with_stats(self, stats: Tensors) -> Net:
        """Return the same network with other running statistics; if there are none, the network itself."""
        if not stats:
            return self
        other = copy.copy(self)
        other.stats = stats
        return other

    def twin(self) -> Net:
        """Return the same network with its own copy of the module: two threads must not run one module at once."""
        twin = copy.copy(self)
        twin.body = _with_same_tensors(self.body)
        twin.single = self.single and _with_same_tensors(self.single)
        twin._note_submodules()
        return twin

    def use_channels_last(self) -> None:
        """Let convolutions see images with the channels innermost, which is faster on a CPU."""
        self.channels_last = self.convolutional and len(self.shape) == 3

    def use_convolutions(self, how: str) -> None:
        """Compute convolutions in a way that batches better over clients on a GPU.

        Args:
            how: As matrix ``product``, with the ``window`` read in place, or ``direct``: as PyTorch does.
        """
        if how != "direct":
            self.single = _with_same_tensors(self.body)
        if how == "product":
            with_products(self.body)
        elif how == "window":
            from holdfast.models.window_convolution import with_windows  # slow to import, and only some runs need it

            with_windows(self.body, self.precision == "tf32")
        self._note_submodules()

    def _note_submodules(self) -> None:
        self.submodules = [*self.body.modules(), *(self.single.modules() if self.single else ())]

    def __call__(self, w: Tensor | Mapping[str, Tensor], x: Any) -> Out:
        """Run the model on inputs, as in evaluation: nothing is dropped, BatchNorm uses its running statistics.

        Args:
            w: The model: a vector, or its trained parameters by name.
            x: Inputs.

        Returns:
            Logits, features, and the head of this model.
        """
        self.set_training(False)
        buffers = self.statistics.buffers(self.stats) if self.stats else {}
        with EvaluationPass() if self.unbatchable else nullcontext():
            return self._run(w, x, buffers)

    def training_pass(
        self, w: Tensor | Mapping[str, Tensor], x: Any, mask: Tensor | None, key: Tensor | None
    ) -> tuple[Out, Tensors]:
        """Run the model on a batch, as in training.

        Args:
            w: The model: a vector, or its trained parameters by name.
            x: Inputs.
            mask: False where a row is padding; None: there is no padding.
            key: The key of dropout; without it nothing is dropped.

        Returns:
            The outputs, and the running statistics after the batch, empty if they do not change.
        """
        self.set_training(True)
        buffers = self.statistics.buffers(self.stats) if self.stats else {}
        with dropping(key), self._seeded(key):
            if not self.intercepted:
                return self._run(w, x, buffers), {}
            norms = BatchNorms(self.statistics, self.stats, buffers, self.batchnorm == "frozen")
            with TrainingPass(norms, mask, first_axis(x)):
                out = self._run(w, x, buffers)
        return out, norms.values() if self.carries else {}

    def _run(self, w: Tensor | Mapping[str, Tensor], x: Any, buffers: Tensors) -> Out:
        parameters = dict(self.layout.split(w) if isinstance(w, Tensor) else w)
        head = self.pop_head(parameters)
        if self.channels_last:
            x, parameters = inner_channels(x), {name: channels_last(p) for name, p in parameters.items()}
        tensors = parameters | buffers
        with self._surroundings():
            features = run_module(
                lambda args, kwargs: functional_call(self._body(), tensors, args, kwargs, tie_weights=self.tied), x
            )
        wide = features.to(self.dtype)
        if head is None:
            return Out(wide, of_sample(wide))
        return Out(head(features), of_sample(wide), head)

    def _body(self) -> nn.Module:
        """Return the module for what is computed now: for several clients, or for a single one."""
        return self.body if self.single is None or batched() else self.single

    def _seeded(self, key: Tensor | None) -> AbstractContextManager[object]:
        """Let random numbers that the module draws by itself come from the key as well."""
        return seeded(key, self.device) if self.random and key is not None else nullcontext()

    def pop_head(self, parameters: Tensors) -> Callable[[Tensor], Tensor] | None:
        """Take the head's parameters out; return the head as a function, or None if there is none."""
        if self.head is None:
            return None
        weight, bias = (parameters.pop(_inside(self.head, n), self.fixed_head.get(n)) for n in ("weight", "bias"))
        assert weight is not None

        def head(features: Tensor) -> Tensor:
            with self._autocast():
                return F.linear(features, weight, bias).to(weight.dtype)

        return head

    def set_training(self, on: bool) -> None:
        """Switch the module to training or evaluation; its own ``train`` would take a while on large models."""
        if self.body.training is not on:
            for module in self.submodules:
                module.__dict__["training"] = on

    def _surroundings(self) -> AbstractContextManager[object]:
        several = batched()
        if self.precision != "bf16" and not self.attentive and not several:
            return nullcontext()
        stack = ExitStack()
        if several:
            stack.enter_context(without_shortcuts())
        stack.enter_context(self._autocast())
        if self.attentive:
            stack.enter_context(_without_attention_shortcut())
        return stack

    def state_dict(self, w: Tensor) -> Tensors:
        """Return a model's parameters and buffers under the names of the module that was given.

        Args:
            w: The model as a vector; its statistics are ``stats``.

        Returns:
            Copies of all tensors, to be loaded into the module with ``load_state_dict``.
        """
        found: Tensors = dict((*self.body.named_parameters(), *self.body.named_buffers()))
        if self.head is not None:
            found |= {_inside(self.head, name): p for name, p in self.fixed_head.items()}
        found |= self.layout.split(w)
        if self.stats:
            found |= self.statistics.buffers(self.stats) | self.statistics.counters(self.stats)
        return {name: found[source].detach().clone() for name, source in self.names.items() if source in found}

    def leaves(self, w: Tensor) -> dict[str, Tensor]:
        """Return the parameters inside a vector, to be differentiated one by one.

        Large ones are in the precision in which their layers compute, so that their gradients need no conversion. The
        head's parameters stay as they are.
        """
        low = {n for n in self.layout.owner if n not in self.layout.head} if self.precision == "bf16" else set()
        pieces = {name: p.detach() for name, p in self.layout.split(w).items()}
        return {name: p.bfloat16() if name in low and p.dim() > 1 else p for name, p in pieces.items()}

    def neurons(self, w: Tensor, x: Tensor, by_position: bool = False) -> Tensor:
        """Return the activation of every neuron: ReLU of the layer's output after its norm, [batch, neurons].

        The head is a layer too.

        Args:
            w: The model.
            x: Inputs.
            by_position: Whether a convolution has a neuron per output channel and position, neighbours being positions
                of one channel. By default, a neuron is an output channel, and the mean is taken over positions.

        Returns:
            The activations, layer after layer.
        """
        outputs: dict[str, Tensor] = {}

        def store(name: str) -> Callable[[nn.Module, object, Tensor], None]:
            def hook(_: nn.Module, __: object, out: Tensor) -> None:
                outputs[name] = out

            return hook

        names = [layer.norm or layer.name for layer in self.layout.layers]
        body = self._body()
        handles = [body.get_submodule(n).register_forward_hook(store(n)) for n in names if n != self.head]
        try:
            logits = self(w, x).logits
        finally:
            for handle in handles:
                handle.remove()
        if self.head is not None:
            outputs[self.head] = logits
        layers = zip(names, self.layout.layers, strict=True)
        per_layer = [_per_neuron(outputs[n], layer.channels_first) for n, layer in layers]
        return torch.cat([a.flatten(1) if by_position else a.mean(2) for a in per_layer], 1)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


@contextmanager
def _without_attention_shortcut() -> Iterator[None]:
    """Switch off PyTorch's fused encoder layer for evaluation, which cannot be batched over clients."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def seeded(key: Tensor, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's generators with a key for the duration of a block."""
    with rng.lent_generators(int(key), device):
        yield


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


def _with_same_tensors(module: nn.Module) -> nn.Module:
    """Return a copy of a module with the same parameters and buffers."""
    shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared)


def _per_neuron(out: Tensor, channels_first: bool) -> Tensor:
    """Return the activation of a layer, [batch, neurons, positions]."""
    active = torch.relu(out)
    if active.dim() == 2:
        return active[:, :, None]
    return active.flatten(2) if channels_first else active.flatten(1, -2).transpose(1, 2)


def _with_keyed_dropout(module: nn.Module) -> nn.Module:
    """Replace ``nn.Dropout`` by the keyed one, and give every dropout layer its own number."""
    for name, sub in list(module.named_modules(remove_duplicate=False)):
        if isinstance(sub, nn.Dropout) and name:
            parent, _, child = name.rpartition(".")
            setattr(module.get_submodule(parent), child, Dropout(sub.p))
    for number, sub in enumerate(m for m in module.modules() if isinstance(m, Dropout)):
        sub.layer = number
    return module


def _inside(module: str, name: str) -> str:
    """Return the name of a module's own tensor, as seen from the model."""
    return f"{module}.{name}" if module else name


def _names(module: nn.Module) -> dict[str, str]:
    """Return for every tensor in a module's state the name under which it is found: that of its first use."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(t), name) for name, t in module.state_dict(keep_vars=True).items()}


def _head_parameters(module: nn.Module, head: str | None) -> Tensors:
    """Return the head's parameters that are not trained."""
    if head is None:
        return {}
    own = module.get_submodule(head).named_parameters(recurse=False)
    return {name: p.detach() for name, p in own if not p.requires_grad}


def _without_head(module: nn.Module, head: str | None) -> nn.Module:
    if head is None:
        return module
    if not head:
        return nn.Identity()
    parent, _, child = head.rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    return module
