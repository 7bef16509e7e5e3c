"""What really travels in a run, and what is kept at clients, against what the sum declares."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from holdfast.core.tensors import flatten
from holdfast.engines.cohort import CohortUpdate
from holdfast.method.composition import composition
from holdfast.method.method import Method
from holdfast.models.batchnorm import STATISTICS
from holdfast.training.simulation import Simulation


@dataclass
class Seen:
    """The names of the uploads of local training, and the parts that keep something, since this was last emptied."""

    sent: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)

    def note(self, update: CohortUpdate) -> None:
        self.sent |= {name for name in flatten(update.uploads) if not name.startswith(STATISTICS)}
        self.kept |= {part for part, state in update.states.items() if state} - {STATISTICS}


def watched(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Watch what the clients of every simulation send and keep."""
    seen, train = Seen(), Simulation.train

    def noted(self, broadcast, ids):
        update = train(self, broadcast, ids)
        seen.note(update)
        return update

    monkeypatch.setattr(Simulation, "train", noted)
    return seen


def assert_declared(method: Method, seen: Seen) -> None:
    """Compare what was seen with what the parts of a sum declare."""
    found = composition(method)
    declared = {f"{u.part}/{u.name}" for u in found.uploads if u.part}
    surveyed = {f"{p.name}/{name}" for p in method.filling("survey") for name in p.sends}
    where_weighted = {"nova/a"}  # nobody sends it where every step is plain
    assert seen.sent <= declared, method
    assert declared - seen.sent <= surveyed | where_weighted, method
    assert seen.kept == set(found.kept), method
