"""Simulations that train their clients in the rows of one traced step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from holdfast.engines.row_pool import RowPool, SharedRows, Trainees
from holdfast.engines.row_schedule import best_width
from holdfast.engines.sharing import difference
from holdfast.engines.vector import Vector
from holdfast.training.simulation import Simulation

Submit = Callable[[Sequence[Trainees]], object]


def row_engine(simulation: Simulation) -> Vector | None:
    """Return the engine of local training, if its steps are traced."""
    engine = simulation.engines[0]
    return engine if isinstance(engine, Vector) and engine.rows is not None else None


def why_not(first: Simulation, other: Simulation) -> str | None:
    """Tell why a simulation cannot share steps with the first one, to complete "it runs alone: ..."; None: it can."""
    mine, theirs = row_engine(first), row_engine(other)
    if mine is None or theirs is None:
        return "its steps are not captured"
    if other.federation.on_demand is not None:
        return "its clients are made on demand"
    found = difference(mine.training, theirs.training)
    return None if found is None else f"it has {found}"


def room(simulation: Simulation) -> int:
    """Return how many clients fit into memory at a time."""
    return simulation.engines[0].width(simulation.config.batch)


def share_rows(simulations: Sequence[Simulation], submits: Sequence[Submit], rows: int | None = None) -> RowPool:
    """Let simulations train their clients in the rows of one step, whose number all of them record.

    Args:
        simulations: The simulations, which can share steps and have played no round.
        submits: For each of them, what hands in its clients and returns when the pool has trained them.
        rows: The number of rows; None: it follows from the steps of all their clients.

    Returns:
        The rows.
    """
    engines = [engine for engine in map(row_engine, simulations) if engine is not None]
    rounds = [list(chain(*each)) for each in zip(*(made.foreseen() for made in simulations), strict=True)]
    most = room(simulations[0])
    width = min(rows or best_width(rounds, most), most)
    slots = max(engine.shape.slots for engine in engines if engine.shape is not None)
    for made, engine, submit in zip(simulations, engines, submits, strict=True):
        engine.share(SharedRows(width, submit), slots)
        made.config = made.config.changed(step_rows=width)
    return RowPool(width, engines[0].traced_step)
