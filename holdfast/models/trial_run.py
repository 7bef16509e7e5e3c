"""Run a module once to see the order of its layers, its head and its activations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.models.inputs import run_module

NORMS = (nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm, nn.modules.batchnorm._BatchNorm)


class TrialRun(NamedTuple):
    """What running two samples shows about a module.

    Attributes:
        runs: How often each layer ran, in the order of their first runs.
        outputs: The last output of each layer.
        norm_input: The layer whose output each norm reads.
        activations: The numbers that one sample makes in all layers.
        logits: The output of the module.
    """

    runs: dict[str, int]
    outputs: dict[str, Tensor]
    norm_input: dict[str, str]
    activations: int
    logits: Tensor


def run_two_samples(module: nn.Module, x: Any, output: tuple[int, ...]) -> TrialRun:
    """Run two samples and note what every layer does.

    Args:
        module: The module.
        x: Two inputs.
        output: The shape that the output must have for one sample.

    Returns:
        What the layers did.
    """
    outputs: dict[str, Tensor] = {}
    runs: dict[str, int] = {}
    norm_input: dict[str, str] = {}
    total = 0

    def note(name: str) -> object:
        def hook(sub: nn.Module, inputs: tuple[object, ...], out: object) -> None:
            nonlocal total
            if isinstance(sub, NORMS) and inputs:
                for layer in [n for n, made in outputs.items() if made is inputs[0]]:
                    norm_input[name] = layer
            runs[name] = runs.get(name, 0) + 1
            if isinstance(out, Tensor):
                total += out.numel() // 2
                outputs[name] = out

        return hook

    handles = [m.register_forward_hook(note(n)) for n, m in module.named_modules() if is_layer(m)]
    try:
        with torch.no_grad(), _named_failure(x, "fails"):
            logits = run_module(lambda args, kwargs: module(*args, **kwargs), x)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(logits, Tensor) or logits.shape != (2, *output):
        kind = "None" if logits is None else f"a {type(logits).__name__}"
        what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else kind
        raise HoldfastError(
            f"the model returns {what} for 2 samples, expected logits of shape {(2, *output)}; change its last layer"
        )
    return TrialRun(runs, outputs, norm_input, total, logits)


def refuse_probabilities(output: Tensor) -> None:
    """Raise an error if a model's output looks like that of a softmax: every row of it sums to one."""
    if output.shape[-1] > 1 and bool((output >= 0).all()) and bool((output.sum(-1) - 1).abs().max() < 1e-5):
        raise HoldfastError(
            "the model returns probabilities, which sum to one, expected logits; leave out its last softmax"
        )


@contextmanager
def _named_failure(x: Any, fails: str) -> Iterator[None]:
    """Turn what goes wrong inside a module into one line."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        shape = ", ".join(str(tuple(t.shape)) for t in tree_leaves(x))
        raise HoldfastError(
            f"the model {fails} on a batch of shape {shape}: {problem}; choose a model for this data"
        ) from error


@dataclass
class TrainingFacts:
    """What a training pass shows about a module.

    Attributes:
        random: Whether it drew random numbers from a generator.
    """

    random: bool = False


@contextmanager
def watched_training(module: nn.Module, x: Any) -> Iterator[TrainingFacts]:
    """Watch a training pass; a module that changes its buffers is refused, since its clients would share them.

    Args:
        module: The module that runs.
        x: Its inputs.

    Yields:
        The facts, complete after the block.
    """
    facts = TrainingFacts()
    before = {name: (id(b), b._version) for name, b in module.named_buffers()}
    cuda = next((t.device for t in tree_leaves(x) if t.is_cuda), None)
    with rng.lent_generators(device=cuda):
        states = _generator_states(cuda)
        with torch.no_grad(), _named_failure(x, "fails in training"):
            yield facts
        facts.random = any(not torch.equal(a, b) for a, b in zip(states, _generator_states(cuda), strict=True))
    for name, b in module.named_buffers():
        if before.get(name) != (id(b), b._version):
            raise HoldfastError(
                f"the model changes its buffer {name!r} in forward, as only BatchNorm may, since clients would share "
                "it; make forward leave it alone"
            )


def _generator_states(cuda: torch.device | None) -> list[Tensor]:
    return [torch.get_rng_state()] if cuda is None else [torch.get_rng_state(), torch.cuda.get_rng_state(cuda)]


def is_shared(module: nn.Module, head: str) -> bool:
    """Tell whether the head, or a weight of it, has another name in the module too."""
    sub = module.get_submodule(head)
    uses = sum(m is sub for _, m in module.named_modules(remove_duplicate=False))
    own = {id(p) for p in sub.parameters()}
    names = [n for n, p in module.named_parameters(remove_duplicate=False) if id(p) in own]
    return uses > 1 or any(n.rpartition(".")[0] != head for n in names)


def is_layer(module: nn.Module) -> bool:
    """Tell whether a module has no submodules, or parameters of its own."""
    return not list(module.children()) or any(True for _ in module.parameters(recurse=False))


def find_head(module: nn.Module, trial: TrialRun, name: str | None) -> str | None:
    """Find the linear layer whose output is the model's output.

    Args:
        module: The module.
        trial: What its layers did.
        name: The layer that it must be, if the user named one.

    Returns:
        The name of the layer; None if there is none whose weights are its own.
    """
    linear = [n for n in trial.outputs if isinstance(module.get_submodule(n), nn.Linear)]
    if name is not None and name not in linear:
        remedy = (
            f"use {', '.join(linear[:-1]) + ' or ' * bool(linear[1:]) + linear[-1]}"
            if linear
            else "end it with an nn.Linear"
        )
        raise HoldfastError(f"the model has no linear layer {name!r} to be its head; {remedy}")
    heads = [n for n in ([name] if name is not None else linear) if trial.outputs[n] is trial.logits]
    alone = [n for n in heads if trial.runs[n] == 1 and not is_shared(module, n)]
    if name is None:
        return alone[-1] if alone else None
    if not heads:
        raise HoldfastError(
            f"the model's output is not that of its head {name!r}; return the logits of a last nn.Linear, without a "
            "softmax after it"
        )
    if not alone:
        raise HoldfastError(f"the model's head {name!r} is also used elsewhere in the model; give it its own weights")
    return name
