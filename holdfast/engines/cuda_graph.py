"""One local step of a whole cohort, traced once and run for every step of a round; on a GPU a replayed CUDA graph.

The step is traced through all its Python into a flat graph of tensor operations, and compiled where asked. On a GPU it
is also captured: everything it reads or writes lives in buffers of its own, the step counter included, so that a replay
needs nothing from the host; a round copies its model, messages and batches in and replays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from holdfast.engines.client_update import Broadcast, ClientInfo, ClientUpdate, PerPart, settle
from holdfast.engines.cohort import Cohort

OPTIONS: dict[str, Any] = {
    "realize_reads_threshold": 3,  # what a pool gives is read by every window of a convolution: compute it once
    "size_asserts": False,  # buffers never change their shape
    "assert_indirect_indexing": False,  # sample numbers are those of the deal
}


@dataclass(frozen=True)
class CohortShape:
    """The shape that all cohorts of a run fit into, so that one captured step serves them all."""

    rows: int  # clients trained at once
    slots: int  # most local steps of a client in a round
    batch: int
    ragged: bool  # whether clients differ in their number of steps

    def fill(self, plan: Tensor) -> Tensor:
        """[C, slots, batch] from a plan of fewer steps or smaller batches; what is added is padding."""
        _, slots, batch = plan.shape
        return torch.nn.functional.pad(plan, [0, self.batch - batch, 0, self.slots - slots])


class StepInputs(NamedTuple):
    """What a step reads and does not change."""

    job: Broadcast
    who: ClientInfo
    states: PerPart
    samples: Tensor  # [C, slots, batch]: the sample numbers of every step
    mask: Tensor
    steps: Tensor  # [C] steps per epoch of each client
    most: Tensor  # the largest of them


class StepState(NamedTuple):
    """What a step changes."""

    w: Tensor  # [C, P]
    scratch: PerPart
    loss: Tensor  # [C] summed over the steps
    k: Tensor  # [C] steps taken
    slot: Tensor  # the step of the round, counted for the whole cohort


class CapturedStep:
    """A traced step for cohorts of one shape. ``step`` is the local step under ``vmap``."""

    def __init__(
        self,
        local: ClientUpdate,
        step: Callable[..., Any],
        fixed: StepInputs,
        moving: StepState,
        ragged: bool,
        compiled: bool,
    ) -> None:
        self.local, self.step, self.ragged = local, step, ragged
        self.fixed: StepInputs = own(fixed)
        self.moving: StepState = own(moving)._replace(w=aligned(moving.w))
        self.buffers, _ = tree_flatten((self.fixed, self.moving))
        self.once = in_place(self._once, self.fixed, self.moving, compiled)  # what a graph reads must stay alive
        self.run = capture(self.once) if moving.w.is_cuda else self.once

    def steps(self, fixed: StepInputs, moving: StepState, times: int) -> StepState:
        """Take so many steps. What comes back lives in buffers that the next call writes over."""
        values, _ = tree_flatten((fixed, moving))
        for buffer, value in zip(self.buffers, values, strict=True):
            if buffer is not value:
                buffer.copy_(value)
        for _ in range(times):
            self.run()
        return self.moving

    def _once(self, f: StepInputs, m: StepState) -> StepState:
        """One step of every client that is not idle."""
        index, mask = (t.index_select(1, m.slot.reshape(1)).squeeze(1) for t in (f.samples, f.mask))
        active = f.steps > m.slot % f.most
        k = m.k + active
        x, y = self.local.federation.batch(index, f.who.sigma, self.local.augment_key(f.job, f.who.id, k))
        epoch = m.slot // f.most
        w, scratch, loss = self.step(f.job, f.who, f.states, m.scratch, m.w, x, y, mask, k, epoch)
        if self.ragged:
            w, scratch, loss = tree_map(
                lambda new, old: torch.where(active.reshape(-1, *[1] * (new.dim() - 1)), new, old),
                (w, scratch, loss),
                (m.w, m.scratch, torch.zeros_like(m.loss)),
            )
        return StepState(w, scratch, m.loss + loss, k, m.slot + 1)


def in_place(
    function: Callable[[StepInputs, StepState], StepState], fixed: StepInputs, moving: StepState, compiled: bool
) -> Callable[[], object]:
    """``moving = function(fixed, moving)`` on these very tensors, traced through its Python; compiled where asked."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import, and only some runs need it

    inputs, spec = tree_flatten((fixed, moving))
    changed = len(tree_flatten(moving)[0])

    def flat(*tensors: Tensor) -> list[Tensor]:
        outputs, _ = tree_flatten(function(*tree_unflatten(list(tensors), spec)))
        settle(list(tensors[-changed:]), outputs)
        return []

    traced = make_fx(flat)(*inputs)
    inputs = inputs + lift_constants(traced)
    if not compiled:
        return partial(traced, *inputs)
    from torch import _inductor as inductor

    return partial(inductor.compile(traced, inputs, options=OPTIONS), *inputs)


def lift_constants(traced: torch.fx.GraphModule) -> list[Tensor]:
    """Make the tensors in a graph inputs of it: a compiler would copy them, the data set above all, into its cache."""
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
    """The same work as a CUDA graph, which the host only has to start."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # once, for what libraries set up at their first call; a second run might lie behind the last step
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def own(tree: Any) -> Any:
    """The same tensors in memory of their own."""
    return tree_map(lambda t: t.clone(memory_format=torch.contiguous_format), tree)


def aligned(w: Tensor) -> Tensor:
    """The rows of ``w`` in memory that starts each at a multiple of 128 bytes: matrix products want that."""
    step = 128 // w.element_size()
    room = w.new_zeros(w.shape[0], -(-w.shape[1] // step) * step)
    rows = room[:, : w.shape[1]]
    rows.copy_(w)
    return rows


def shape_of(*trees: Any) -> tuple[Any, ...]:
    """What tells two cohorts apart for a captured step."""
    tensors, spec = tree_flatten(trees)
    return (spec, *((t.shape, t.dtype) for t in tensors))


def fixed_part(job: Broadcast, cohort: Cohort, room: CohortShape) -> StepInputs:
    """The round as a step reads it. The clients' own sample lists stay behind: no step needs them."""
    plan, device = cohort.plan, job.w0.device
    nothing = cohort.who.own[:, :0]
    who = cohort.who._replace(own=nothing, there=nothing)
    steps = torch.tensor(plan.steps, device=device)
    samples, mask = (room.fill(t.flatten(1, 2)) for t in (plan.index, plan.mask))
    return StepInputs(job, who, cohort.states, samples, mask, steps, steps.max())


def with_idle_rows(cohort: Cohort, rows: int) -> Cohort:
    """The cohort filled up with copies of its first client that never take a step."""
    more = rows - cohort.size
    if not more:
        return cohort
    filled = cohort.pick([*range(cohort.size), *[0] * more])
    plan = replace(filled.plan, steps=[*cohort.plan.steps, *[0] * more])
    return replace(filled, plan=plan)
