"""Inputs of a network: one tensor, or several by name or in order; and the logits in whatever the module returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from holdfast.core.errors import HoldfastError


def run_module(call: Callable[[tuple[Any, ...], dict[str, Any]], Any], x: Any) -> Tensor:
    """Run a module on inputs and return its logits.

    Args:
        call: Runs the module with positional and named arguments.
        x: A tensor; a dictionary, whose tensors are passed by name; or a tuple, whose tensors are passed in order.

    Returns:
        What the module returns, if it is a tensor, or its ``logits``, as those of Hugging Face return them.
    """
    if isinstance(x, Mapping):
        found = call((), dict(x))
    else:
        found = call(x if isinstance(x, tuple) else (x,), {})
    logits = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", found)
    if not isinstance(logits, Tensor):
        kind = "None" if logits is None else f"a {type(found).__name__}"
        raise HoldfastError(f"the model returns {kind}, expected a tensor of logits; change what its forward returns")
    return logits


def first_axis(x: Any) -> int:
    """Return the number of samples in inputs."""
    return len(tree_leaves(x)[0])
