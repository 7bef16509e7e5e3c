"""Inputs of a network: one tensor, or several by name or in order; and the logits in whatever the module returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._pytree import tree_leaves


def run_module(call: Callable[[tuple[Any, ...], dict[str, Any]], Any], x: Any) -> Any:
    """Run a module on inputs and return its logits.

    Args:
        call: Runs the module with positional and named arguments.
        x: A tensor; a dictionary, whose tensors are passed by name; or a tuple, whose tensors are passed in order.

    Returns:
        What the module returns, or the ``logits`` in it, where modules of Hugging Face have them.
    """
    args = x if isinstance(x, tuple) else (x,)
    found = call((), dict(x)) if isinstance(x, Mapping) else call(args, {})
    if isinstance(found, Mapping):
        return found.get("logits", found)
    return getattr(found, "logits", found)


def first_axis(x: Any) -> int:
    """Return the number of samples in inputs."""
    return len(tree_leaves(x)[0])
