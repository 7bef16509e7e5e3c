"""Trace a step with all its Python into a flat graph of tensor operations, compile it, and capture it on a GPU.

Everything that a captured step reads or writes is in buffers of its own, including its counters, so that a replay needs
nothing from the host.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from holdfast.core.errors import HoldfastError
from holdfast.engines.local_training import write_back

log = logging.getLogger("holdfast.step")

OPTIONS: dict[str, Any] = {
    "realize_reads_threshold": 3,  # a pool's output is read by every window of a convolution: compute it once
    "size_asserts": False,  # buffers never change their shape
    "assert_indirect_indexing": False,  # sample numbers come from the split
}


def in_place(function: Callable[[Any, Any], Any], inputs: Any, state: Any, compiled: bool) -> Callable[[], object]:
    """Trace ``state = function(inputs, state)`` on these very tensors, and compile it on request."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import, and only some runs need it

    tensors, spec = tree_flatten((inputs, state))
    changed = len(tree_flatten(state)[0])

    def flat(*tensors: Tensor) -> list[Tensor]:
        outputs, _ = tree_flatten(function(*tree_unflatten(list(tensors), spec)))
        write_back(list(tensors[-changed:]), outputs)
        return []

    started = time.perf_counter()
    with tracing_context():  # without it, a description of every tensor would be made from nothing
        traced = make_fx(flat)(*tensors)
    tensors = tensors + lift_constants(traced)
    log.debug("traced in %.1f s", time.perf_counter() - started)
    if not compiled:
        return partial(traced, *tensors)
    started = time.perf_counter()
    step = compile_traced(traced, tensors)
    log.debug("compiled in %.1f s", time.perf_counter() - started)
    return partial(step, *tensors)


def compile_traced(traced: torch.fx.GraphModule, tensors: list[Tensor]) -> Callable[..., object]:
    """Compile a traced step for these tensors; a compiler that is missing or has no disk space is a one-line error."""
    from torch import _inductor as inductor

    # Only in a context such as that of torch.compile does PyTorch use its caches on the disk. Their keys are the graph,
    # these options, PyTorch's own code and the device, so that no entry is ever stale.
    try:
        with tracing_context():
            step: Callable[..., object] = inductor.compile(traced, list[Any](tensors), options=OPTIONS)
    except compiler_errors() as error:
        said = str(error).strip().splitlines()
        reason = next((line.rpartition("error: ")[2] for line in said if "error: " in line), said[0])
        raise HoldfastError(
            f"cannot compile the training step: {reason}; what was recorded is kept: fix that, or add --no-compile"
        ) from error
    return step


def tracing_context() -> AbstractContextManager[object]:
    """Return a context such as that of ``torch.compile``, for shapes that never change."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv(assume_static_by_default=True))))


def compiler_errors() -> tuple[type[Exception], ...]:
    """Return what a failed compilation raises: one kind since PyTorch 2.7, in 2.6 the errors of its stages."""
    from torch._inductor import exc

    wrapped: type[Exception] | None = getattr(exc, "InductorError", None)
    return (RuntimeError, OSError) if wrapped is None else (wrapped,)


def lift_constants(traced: torch.fx.GraphModule) -> list[Tensor]:
    """Turn the tensors in a graph into inputs: a compiler would copy them, above all the data set, into its cache."""
    graph = traced.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    constants: list[Tensor] = []
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        with graph.inserting_after(last):
            last = graph.placeholder(f"constant_{len(constants)}")
        node.replace_all_uses_with(last)
        graph.erase_node(node)
        constants.append(getattr(traced, str(node.target)))
    traced.recompile()
    return constants


def can_capture(run: Callable[[], object]) -> bool:
    """Tell whether work on a GPU never waits for it, by doing it once."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    except RuntimeError as error:
        log.debug("not captured: %s", error)
        return False
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return True


def capture(run: Callable[[], object]) -> Callable[[], object]:
    """Capture work as a CUDA graph, which the host only has to start."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # once, for what libraries set up on their first call; a second run could step past the last slot
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def copied(tree: Any) -> Any:
    """Return the same tensors in memory of their own."""
    return tree_map(lambda t: t.clone(memory_format=torch.contiguous_format), tree)


def aligned(w: Tensor) -> Tensor:
    """Copy ``w`` so that each row starts at a multiple of 128 bytes, which makes matrix products faster."""
    step = 128 // w.element_size()
    room = w.new_zeros(w.shape[0], -(-w.shape[1] // step) * step)
    rows = room[:, : w.shape[1]]
    rows.copy_(w)
    return rows
