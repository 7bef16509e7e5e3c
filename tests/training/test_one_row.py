"""What parts declare about their uploads, and the hooks at both ends of the way to the server."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from helpers.toys import ENGINES, Number, Quadratic, points, train
from holdfast import HoldfastError, Method, Part
from holdfast.core.tensors import PerPart, Tensors
from holdfast.method.one_row import as_one_row
from holdfast.method.part import Client, Round, Sent, keep, parts
from holdfast.method.recipes import RECIPES
from holdfast.testing.laws import ROUNDING, assert_close

every_engine = pytest.mark.parametrize("engine", ENGINES)
NAMES = [n for n, c in parts().items() if c.__module__.startswith("holdfast.")]
SUMS = ["fedagg(mode=aggregated)", "latest(of=cohort)", "scaffold+fedcm+fedbug+clip(1)", "feddyn+mean(uniform)+fedcm"]
WITHOUT_READERS = [s for s in [*NAMES, *RECIPES, *SUMS] if not (Method.parse(s).row_readers or Method.parse(s).private)]


@dataclass(frozen=True)
class OnlySums(Part):
    """Keeps single clients from the server."""

    name = "toy-only-sums"
    sum: str = ""

    def admit(self, s: Tensors, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        return as_one_row(Method.parse(self.sum), r, uploads)


@pytest.mark.parametrize("method", WITHOUT_READERS)
def test_sums_are_all_that_linear_parts_need(method):
    """The law of ``Part.linear``: the server does the same with one row in place of the cohort."""
    plain = train(method, engine="loop", rounds=3)
    hidden = train(Method.parse(method) + OnlySums(method), engine="loop", rounds=3)
    for found, expected in zip(hidden.after, plain.after, strict=True):
        assert_close(found, expected, ROUNDING)
    assert [r.cohort for r in hidden.history] == [r.cohort for r in plain.history]


def test_every_upload_of_a_linear_part_is_declared():
    for name in WITHOUT_READERS:
        for part in Method.parse(name).parts:
            assert set(uploaded(part).get(part.name, {})) <= set(part.linear or {}), part


def uploaded(part: Part) -> PerPart:
    """Return what clients upload under a part."""
    seen: list[PerPart] = []

    @dataclass(frozen=True)
    class Spy(Part):
        name = "toy-spy"
        internal = True

        def admit(self, s: Tensors, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
            seen.append(uploads)
            return r, uploads

    train(part + Spy(), engine="loop", rounds=1)
    return seen[0]


def test_the_total_of_deltas_is_known_only_if_the_mean_counts_every_client_once():
    assert not Method.parse("feddyn").row_readers
    assert [p.name for p in Method.parse("feddyn+mean(samples)").row_readers] == ["feddyn"]


def test_visits_before_the_round_see_single_clients():
    assert not Method.parse("fedagg").row_readers
    assert [p.name for p in Method.parse("fedagg(mode=fixed_point)").row_readers] == ["fedagg"]


@pytest.mark.parametrize(
    "name", ["fedexp", "fednova", "normalized", "fnr", "feddf", "fedftg", "fedgen", "ccvr", "finetune"]
)
def test_other_parts_look_at_single_clients(name):
    assert Method.parse(name).row_readers


# -- send ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rounded(Part):
    """Sends whole numbers, and what was lost with the next update."""

    name = "toy-rounded"

    def init_client(self, w: Tensor) -> Tensors:
        return {"lost": torch.zeros_like(w)}

    def send(self, c: Client, sent: Sent) -> tuple[Sent, Tensors]:
        wanted = sent.delta + c.state["lost"]
        return sent._replace(delta=torch.round(wanted)), {"lost": wanted - torch.round(wanted)}


@dataclass(frozen=True)
class Twice(Part):
    """Sends twice the delta, and how often it did."""

    name = "toy-twice"
    linear = {"sent": "total"}  # noqa: RUF012

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"sent": w.new_zeros(())}

    def send(self, c: Client, sent: Sent) -> tuple[Sent, Tensors]:
        return Sent(2 * sent.delta, sent.uploads | {self.name: {"sent": torch.ones_like(c.lr)}}), {}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"sent": s["sent"] + r.total(r.uploads["sent"])}


@every_engine
def test_what_is_sent_may_differ_from_what_was_trained(engine):
    # One step at 1/2 towards 5: 2.5, of which 2 is sent (round half to even); then from 2 towards 5: 1.5 + 0.5.
    settings = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 2, "cohort": 1, "engine": engine}
    ran = train(Quadratic() + Rounded(), points((5.0, 1)), Number(0.0), **settings)
    assert [after["w"].item() for after in ran.after] == [0.0, 2.0, 4.0]
    assert [after["0/toy-rounded/lost"].item() for after in ran.after[1:]] == [0.5, 0.0]


@every_engine
def test_parts_change_what_is_sent_in_the_order_of_the_sum(engine):
    settings = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 1, "cohort": 1, "engine": engine}
    first, last = (
        train(Quadratic() + one + other, points((5.0, 1)), Number(0.0), **settings).after[1]["w"].item()
        for one, other in ((Twice(), Rounded()), (Rounded(), Twice()))
    )
    assert (first, last) == (5.0, 4.0)


@every_engine
def test_a_part_may_add_an_upload_when_it_sends(engine):
    ran = train(Twice(), engine=engine, rounds=2)
    plain = train("fedavg", engine=engine, rounds=2)
    assert ran.after[2]["toy-twice/sent"].item() == 6  # three clients in two rounds
    assert ran.history[0].upload_bytes == plain.history[0].upload_bytes + 3 * 8


# -- admit -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Shorter(Part):
    """Leaves out clients whose delta is longer than one."""

    name = "toy-shorter"

    def admit(self, s: Tensors, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        return keep(r, uploads, torch.linalg.vector_norm(r.deltas, dim=1) <= 1)


@every_engine
def test_clients_may_be_left_out_before_the_mean(engine):
    settings = {"lr": 0.5, "batch": 4, "epochs": 1, "rounds": 1, "cohort": 3, "engine": engine}
    clients = points((1.0, 1), (400.0, 1), (2.0, 3))
    ran = train(Quadratic() + Shorter(), clients, Number(0.0), **settings)
    assert ran.after[1]["w"].item() == pytest.approx(0.5 * 1 / 4 + 1.0 * 3 / 4)
    assert ran.history[0].skipped == [1]
    assert ran.history[0].cohort == [0, 1, 2]


def test_a_round_in_which_nobody_is_admitted_stops_the_run():
    settings = {"lr": 0.5, "batch": 4, "epochs": 1, "rounds": 1, "cohort": 2}
    with pytest.raises(HoldfastError, match="round 1: every client's update was refused"):
        train(Quadratic() + Shorter(), points((100.0, 1), (400.0, 1)), Number(0.0), **settings)


# -- robust means ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Lowest(Part):
    """The lowest entry of all clients takes the place of the mean."""

    name = "toy-lowest"
    robust = True

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        return rows.amin(0)

    def aggregate(self, r: Round) -> Tensor:
        return self.combine(r, r.deltas)


@every_engine
def test_a_robust_mean_reaches_what_other_parts_upload(engine):
    # One step at 1/2 from 0: gradients -8 and 8; SCAFFOLD's changes are -8 and 8.
    settings = {"lr": 0.5, "batch": 4, "epochs": 1, "rounds": 1, "cohort": 2, "engine": engine}
    ran = train(Quadratic() + "scaffold" + Lowest(), points((8.0, 1), (-8.0, 3)), Number(0.0), **settings)
    assert ran.after[1]["w"].item() == -4.0
    assert ran.after[1]["scaffold/c"].item() == pytest.approx(2 * -8.0 / 2)  # |S|/N times the lowest change


def test_a_robust_mean_is_refused_where_a_part_looks_at_single_clients():
    with pytest.raises(HoldfastError, match="toy-lowest and fnr cannot be summed: fnr looks at single clients"):
        Method.parse("fnr") + Lowest()
