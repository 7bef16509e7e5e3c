"""Run a module once to see the order of its layers, its head and its activations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.models.layout import NORMS


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


def run_two_samples(module: nn.Module, x: Tensor, classes: int) -> TrialRun:
    """Run two samples and note what every layer does.

    Args:
        module: The module.
        x: Two inputs.
        classes: The number of classes that the output must have.

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
        with torch.no_grad():
            logits = module(x)
    except Exception as error:
        if isinstance(error, HoldfastError):
            raise
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise HoldfastError(
            f"the model fails on a batch of shape {tuple(x.shape)}: {problem}; choose a model for this data"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(logits, Tensor) or logits.shape != (2, classes):
        kind = "None" if logits is None else f"a {type(logits).__name__}"
        what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else kind
        raise HoldfastError(
            f"the model returns {what} for 2 samples, expected logits of shape (2, {classes}); change its last layer"
        )
    return TrialRun(runs, outputs, norm_input, total, logits)


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


def find_head(module: nn.Module, trial: TrialRun, name: str | None) -> str:
    """Find the linear layer whose output is the model's output.

    Args:
        module: The module.
        trial: What its layers did.
        name: The layer that it must be, if the user named one.

    Returns:
        The name of the layer.
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
    if not heads:
        raise HoldfastError(
            f"the model's output is not that of {'its head ' + repr(name) if name else 'a linear layer'}; return the "
            "logits of a last nn.Linear, without a softmax after it"
        )
    head = heads[-1]
    if trial.runs[head] > 1 or is_shared(module, head):
        raise HoldfastError(f"the model's head {head!r} is also used elsewhere in the model; give it its own weights")
    return head
