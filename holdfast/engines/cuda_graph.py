"""The local step of a whole cohort, traced once and repeated for every step of a round; on a GPU as a CUDA graph.

Tracing turns the step with all its Python into a flat graph of tensor operations, which is compiled on request. On a
GPU the step is also captured: everything it reads or writes is in buffers of its own, including the step counter, so
that a replay needs nothing from the host. A round copies its model, messages and batches into the buffers and replays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import PerPart
from holdfast.engines.cohort import Cohort
from holdfast.engines.local_training import Broadcast, ClientTask, LocalTraining, write_back

OPTIONS: dict[str, Any] = {
    "realize_reads_threshold": 3,  # a pool's output is read by every window of a convolution: compute it once
    "size_asserts": False,  # buffers never change their shape
    "assert_indirect_indexing": False,  # sample numbers come from the split
}


@dataclass(frozen=True)
class CohortShape:
    """The shape that all cohorts of a run fit into, so that one captured step serves them all."""

    rows: int  # clients trained at a time
    slots: int  # the most local steps of any client in a round
    batch: int
    ragged: bool  # whether clients differ in their number of steps

    def fill(self, plan: Tensor) -> Tensor:
        """Pad a plan of fewer steps or smaller batches to [C, slots, batch]."""
        _, slots, batch = plan.shape
        return torch.nn.functional.pad(plan, [0, self.batch - batch, 0, self.slots - slots])


class StepInputs(NamedTuple):
    """What a step reads and does not change."""

    task: ClientTask  # with a client axis
    samples: Tensor  # [C, slots, batch]: the sample numbers of every step
    mask: Tensor  # false where ``samples`` is padding
    most: Tensor  # the most steps per epoch of any client


class StepState(NamedTuple):
    """What a step changes."""

    w: Tensor  # [C, P]
    scratch: PerPart
    loss: Tensor  # [C] summed over the steps
    k: Tensor  # [C] steps taken
    slot: Tensor  # the number of the step, counted for the whole cohort


class CapturedStep:
    """A traced step for cohorts of one shape.

    Args:
        training: The local training that the step belongs to.
        step: The local step under ``vmap``.
        inputs: What the step reads, as an example of its shape.
        state: What the step changes, likewise.
        ragged: Whether clients differ in their number of steps.
        compiled: Whether to compile the traced step.
    """

    def __init__(
        self,
        training: LocalTraining,
        step: Callable[..., Any],
        inputs: StepInputs,
        state: StepState,
        ragged: bool,
        compiled: bool,
    ) -> None:
        self.training, self.step, self.ragged = training, step, ragged
        self.inputs: StepInputs = copied(inputs)
        self.state: StepState = copied(state)._replace(w=aligned(state.w))
        self.buffers, _ = tree_flatten((self.inputs, self.state))
        self.once = in_place(self._once, self.inputs, self.state, compiled)  # what a graph reads must stay alive
        self.run = capture(self.once) if state.w.is_cuda else self.once

    def steps(self, inputs: StepInputs, state: StepState, times: int) -> StepState:
        """Take ``times`` steps. The result is in buffers that the next call overwrites."""
        values, _ = tree_flatten((inputs, state))
        for buffer, value in zip(self.buffers, values, strict=True):
            if buffer is not value:
                buffer.copy_(value)
        for _ in range(times):
            self.run()
        return self.state

    def _once(self, f: StepInputs, m: StepState) -> StepState:
        """Take one step of every client that has steps left."""
        index, mask = (t.index_select(1, m.slot.reshape(1)).squeeze(1) for t in (f.samples, f.mask))
        active = mask.any(1)
        k = m.k + active
        info = f.task.info
        key = self.training.augment_key(f.task.broadcast, info.id, k)
        x, y = self.training.federation.batch(index, info.sigma, key)
        epoch = m.slot // f.most
        w, scratch, loss = self.step(f.task, m.scratch, m.w, x, y, mask, k, epoch)
        if self.ragged:
            w, scratch, loss = where_rows(active, (w, scratch, loss), (m.w, m.scratch, torch.zeros_like(m.loss)))
        return StepState(w, scratch, m.loss + loss, k, m.slot + 1)


def where_rows(active: Tensor, new: Any, old: Any) -> Any:
    """Return the rows of ``new`` for active clients, those of ``old`` for the others."""
    return tree_map(lambda n, o: torch.where(active.reshape(-1, *[1] * (n.dim() - 1)), n, o), new, old)


def in_place(
    function: Callable[[StepInputs, StepState], StepState], inputs: StepInputs, state: StepState, compiled: bool
) -> Callable[[], object]:
    """Trace ``state = function(inputs, state)`` on these very tensors, and compile it on request."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import, and only some runs need it

    tensors, spec = tree_flatten((inputs, state))
    changed = len(tree_flatten(state)[0])

    def flat(*tensors: Tensor) -> list[Tensor]:
        outputs, _ = tree_flatten(function(*tree_unflatten(list(tensors), spec)))
        write_back(list(tensors[-changed:]), outputs)
        return []

    traced = make_fx(flat)(*tensors)
    tensors = tensors + lift_constants(traced)
    if not compiled:
        return partial(traced, *tensors)
    return partial(compile_traced(traced, tensors), *tensors)


def compile_traced(traced: torch.fx.GraphModule, tensors: list[Tensor]) -> Callable[..., object]:
    """Compile a traced step for these tensors; a compiler that is missing or has no disk space is a one-line error."""
    from torch import _inductor as inductor
    from torch._inductor.exc import InductorError

    try:
        step: Callable[..., object] = inductor.compile(traced, list[Any](tensors), options=OPTIONS)
    except InductorError as error:
        said = str(error).strip().splitlines()
        reason = next((line.rpartition("error: ")[2] for line in said if "error: " in line), said[0])
        raise HoldfastError(
            f"cannot compile the training step: {reason}; what was recorded is kept: fix that, or add --no-compile"
        ) from error
    return step


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


def shape_of(*trees: Any) -> tuple[Any, ...]:
    """Return what must be equal for two cohorts to share a captured step."""
    tensors, spec = tree_flatten(trees)
    return (spec, *((t.shape, t.dtype) for t in tensors))


def step_inputs(broadcast: Broadcast, cohort: Cohort, shape: CohortShape) -> StepInputs:
    """Return the round as a step reads it. The clients' own sample lists are left out, since no step needs them."""
    plan, device = cohort.plan, broadcast.w0.device
    nothing = cohort.info.samples[:, :0]
    info = cohort.info._replace(samples=nothing, valid=nothing)
    most = torch.tensor(max(plan.steps), device=device)
    samples, mask = (shape.fill(t.flatten(1, 2)) for t in (plan.index, plan.mask))
    return StepInputs(ClientTask(broadcast, info, cohort.states), samples, mask, most)


def with_idle_rows(cohort: Cohort, rows: int) -> Cohort:
    """Fill the cohort up with copies of its first client that never take a step."""
    more = rows - cohort.size
    if not more:
        return cohort
    filled = cohort.pick([*range(cohort.size), *[0] * more])
    idle, mask = [0] * more, filled.plan.mask.clone()
    mask[cohort.size :] = False
    plan = replace(filled.plan, mask=mask, steps=[*cohort.plan.steps, *idle], passes=[*cohort.plan.passes, *idle])
    return replace(filled, plan=plan)
