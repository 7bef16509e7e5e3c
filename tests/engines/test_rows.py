"""Clients that take turns in the rows of a traced step: the schedule, and that nobody notices it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch._inductor
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from helpers.toys import FEDERATION, Anchor, Keeper, Number, Quadratic, assert_close, mlp, points, train
from holdfast import Part
from holdfast.engines.row_schedule import best_width, cut, length, schedule
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.runs.setup import prepare_simulation
from holdfast.testing.laws import assert_agree
from holdfast.training.shared_rows import why_not

clients_steps = st.lists(st.integers(1, 40), min_size=1, max_size=15)


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traced step runs as it was traced: compiling it takes long and is tested elsewhere."""
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)


# -- the schedule --------------------
@given(clients_steps, st.integers(1, 12))
def test_a_schedule_is_as_short_as_possible_and_every_client_takes_its_steps_in_order(steps: list[int], width: int):
    found = schedule(steps, width)
    assert max(s.end for s in found) == length(steps, width) == max(max(steps), -(-sum(steps) // width))
    assert {s.row for s in found} <= set(range(width))
    taken: dict[int, int] = {}
    for s in sorted(found, key=lambda s: s.start):
        assert s.first == taken.get(s.client, 0), "after its own steps before, and none of them twice"
        taken[s.client] = s.first + s.steps
    assert taken == dict(enumerate(steps))
    for one in found:
        for other in found:
            if one is not other and (one.row == other.row or one.client == other.client):
                assert one.end <= other.start or other.end <= one.start, "a row and a client do one thing at a time"


@given(clients_steps, st.integers(1, 12))
def test_few_clients_change_their_row(steps: list[int], width: int):
    """Moving costs copies."""
    found = schedule(steps, width)
    assert len(found) < len(steps) + width
    whole = [s for s in found if s.steps == steps[s.client]]
    assert len(whole) > len(steps) - width


@given(clients_steps, st.integers(1, 5), st.integers(1, 9))
def test_a_cut_falls_on_the_start_of_an_epoch(steps: list[int], width: int, epoch: int):
    whole = schedule(steps, width)
    pieces = cut(whole, [epoch] * len(steps))
    assert all(s.first // epoch == (s.first + s.steps - 1) // epoch for s in pieces)
    assert sum(s.steps for s in pieces) == sum(steps)
    for s in whole:
        inside = [p for p in pieces if (p.client, p.row) == (s.client, s.row)]
        assert (inside[0].start, inside[-1].end, inside[0].first) == (s.start, s.end, s.first)
        assert all(a.end == b.start and a.first + a.steps == b.first for a, b in pairwise(inside))


@given(st.integers(1, 40), st.integers(1, 60))
def test_equal_clients_get_a_row_each(clients: int, steps: int):
    assert best_width([[steps] * clients], 99) == clients


@given(st.lists(clients_steps, min_size=1, max_size=4), st.integers(1, 20))
def test_no_other_width_takes_less_time(rounds: list[list[int]], most: int):
    """Time as measured on a GPU: 0.2 ms for a step and 0.08 ms for each of its rows."""

    def time(width: int) -> float:
        return sum(length(steps, width) for steps in rounds) * (0.2 + 0.08 * width)

    found = best_width(rounds, most)
    assert 1 <= found <= min(most, max(map(len, rounds)))
    assert time(found) <= min(time(w) for w in range(1, min(most, max(map(len, rounds))) + 1)) * (1 + 1e-12)


# -- engines --------------------
METHODS = [
    "fedavg",
    "scaffold+clip(1)+fedbug(0.4)+decay",
    "moon+sam+prox(0.1)+nova",
    "fedagg+momentum(0.5, keep=true)",
    "feddyn+adamw(keep=true)",
    "fedmrur(rho=0.05)+fednlr",
    "fnr",
]
CHOSEN = {"engine": "vector", "compile": True, "cohort": 4, "rounds": 2}


@pytest.mark.parametrize(("method", "rows"), [*((m, 2) for m in METHODS), (METHODS[1], 1), (METHODS[3], 3)])
def test_few_rows_train_many_clients(method: str, rows: int):
    """Ragged clients with padded batches and epochs of their own; more of them than rows, so that some change rows."""
    epochs = {"epochs": "1-3"} if "fedagg" not in method else {"epochs": 2}
    loop = train(method, engine="loop", cohort=4, rounds=2, **epochs)
    assert_agree(loop, train(method, step_rows=rows, **CHOSEN, **epochs))


@pytest.mark.parametrize("part", [Anchor(), Keeper()])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_parts_that_act_at_the_start_of_an_epoch(part: Part, rows: int):
    ways = ({"engine": "loop", "cohort": 4, "rounds": 2}, CHOSEN | {"step_rows": rows})
    loop, other = (train(part, epochs="1-4", **way) for way in ways)
    for found, expected in zip(other.after, loop.after, strict=True):
        assert_close(found, expected, 1e-12)


@pytest.mark.parametrize("settings", [{"steps": 7}, {"cohort": None, "participation": 0.6}], ids=["steps", "chance"])
def test_few_rows_with(settings: dict):
    ways = ({"engine": "loop", "cohort": 4, "rounds": 2}, CHOSEN | {"step_rows": 2})
    assert_agree(*(train("scaffold+fedbug", **(way | settings)) for way in ways))


def test_a_row_is_left_as_it_is_when_its_client_is_done():
    """One client of many steps and three of few in two rows, by hand: w = target * (1 - 0.5^K)."""
    ran = train(
        Quadratic(), points((8.0, 7), (4.0, 2), (-4.0, 3), (2.0, 1)), Number(0.0), lr=0.5, batch=1, epochs=1, rounds=1,
        cohort=4, step_rows=2, engine="vector", compile=True,
    )  # fmt: skip
    targets, K = (8.0, 4.0, -4.0, 2.0), (7, 2, 3, 1)
    expected = sum(k * t * (1 - 0.5**k) for t, k in zip(targets, K, strict=True)) / sum(K)
    assert float(ran.after[1]["w"]) == pytest.approx(expected, rel=1e-12)


def test_steps_are_those_that_were_predicted(monkeypatch):
    taken: list[int] = []
    simulation = prepare_simulation(
        Config(clients=FEDERATION.clients, **(CHOSEN | {"step_rows": 2, "batch": 5})),
        Method.parse("fedavg"),
        FEDERATION,
        mlp(),
    )
    simulation.play(1)
    (step,) = simulation.engines[0].rows.made.values()
    run = step.run
    monkeypatch.setattr(step, "run", lambda: (taken.append(1), run()))
    for t in (2,):
        taken.clear()
        ids = simulation.play(t).cohort
        assert len(taken) == length([-(-int(FEDERATION.deal.sizes[i]) // 5) * 5 for i in ids], 2)


def test_the_width_follows_from_the_clients_and_is_recorded():
    """Of ragged clients a few fill the rows while the largest one trains."""
    config = Config(clients=FEDERATION.clients, batch=5, cohort=4, engine="vector", compile=True)
    made = prepare_simulation(config, Method.parse("fedavg"), FEDERATION, mlp())
    sizes = -(-FEDERATION.deal.sizes[FEDERATION.occupied] // 5) * config.passes
    assert len(FEDERATION.occupied) == 4
    expected = best_width([sizes.tolist()], 99)
    assert made.config.step_rows == made.engines[0].rows.width == expected < 4
    assert prepare_simulation(config.changed(compile=False), made.method, FEDERATION, mlp()).config.step_rows is None
    sliced = prepare_simulation(config.changed(slice=1, step_rows=3), made.method, FEDERATION, mlp())
    assert sliced.engines[0].rows.width == 1


def test_repeated_and_resumed_runs_are_the_same_bit_for_bit(tmp_path):
    settings = {"precision": "fp64", "batch": 5, "cohort": 4, "epochs": "1-3", "engine": "vector", "compile": True}
    method = "scaffold+momentum(0.5, keep=true)"
    whole = holdfast.run(method, FEDERATION, mlp(), rounds=4, **settings)
    holdfast.run(method, FEDERATION, mlp(), rounds=2, out=tmp_path, **settings)
    rest = holdfast.run(method, FEDERATION, mlp(), rounds=4, out=tmp_path, resume=True)
    assert torch.equal(rest.w, whole.w)
    assert rest.config.step_rows == whole.config.step_rows


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("fedavg", "median", True),
        ("norm_bound(2)+trimmed", "geometric_median", True),
        ("scaffold", "scaffold+median", True),
        ("fedavg", "scaffold", False),
        ("prox(0.1)", "decay(0.1)", False),
    ],
)
def test_sums_that_differ_at_the_server_alone_share_steps(one: str, other: str, same: bool):
    made = [
        prepare_simulation(Config(clients=FEDERATION.clients, batch=5, **CHOSEN), Method.parse(s), FEDERATION, mlp())
        for s in (one, other)
    ]
    assert (why_not(*made) is None) is same
