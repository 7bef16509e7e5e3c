"""Which sample goes into which batch: every one once per pass, alike in every engine."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.batches import BatchPlan, plan
from holdfast.engines.choose import choose
from holdfast.method.config import Config
from holdfast.training.client_sampling import draw

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=4)


def owned(sizes: list[int]) -> torch.Tensor:
    """Client c owns the samples 100c, 100c + 1, ...; padding is -1."""
    rows = torch.full((len(sizes), max(sizes)), -1)
    for c, n in enumerate(sizes):
        rows[c, :n] = 100 * c + torch.arange(n)
    return rows


def deal(
    sizes: list[int], batch: int, epochs: int = 1, steps: int | None = None, words: tuple[int, ...] = (0, 1, 0),
    ids: list[int] | None = None,
) -> BatchPlan:  # fmt: skip
    client = torch.arange(len(sizes)) if ids is None else torch.tensor(ids)
    return plan(owned(sizes), torch.tensor(sizes), client, words=words, batch=batch, epochs=epochs, steps=steps)


def batches(p: BatchPlan, c: int) -> list[list[list[int]]]:
    """Client c's samples by epoch and step, without padding."""
    return [
        [p.index[c, e, s][p.mask[c, e, s]].tolist() for s in range(p.steps[c])] for e in range(p.epochs)
    ]  # fmt: skip


def flat(steps: list[list[int]]) -> list[int]:
    return [sample for step in steps for sample in step]


@given(SIZES, st.integers(1, 9), st.integers(1, 3))
def test_every_sample_once_per_epoch_in_full_batches_and_a_rest(sizes: list[int], batch: int, epochs: int):
    p = deal(sizes, batch, epochs)
    assert p.epochs == epochs
    for c, n in enumerate(sizes):
        for steps in batches(p, c):
            full, rest = divmod(n, batch)
            assert [len(step) for step in steps] == [batch] * full + [rest] * (rest > 0)
            assert sorted(flat(steps)) == [100 * c + i for i in range(n)]
        assert p.mask[c].sum() == epochs * n, "nothing beyond the client's own steps"


@given(SIZES, st.integers(1, 9), st.integers(1, 30))
def test_with_steps_passes_follow_one_another(sizes: list[int], batch: int, steps: int):
    p = deal(sizes, batch, steps=steps)
    assert p.epochs == 1
    assert p.steps == [steps] * len(sizes)
    for c, n in enumerate(sizes):
        (found,) = batches(p, c)
        each = -(-n // batch)
        own = [100 * c + i for i in range(n)]
        for first in range(0, steps, each):
            one = found[first : first + each]
            assert all(one)
            seen = flat(one)
            assert len(set(seen)) == len(seen)
            assert sorted(seen) == own if len(one) == each else set(seen) < set(own)


@given(SIZES, st.integers(1, 9), st.integers(1, 3))
def test_steps_see_the_batches_of_epochs(sizes: list[int], batch: int, epochs: int):
    for c, n in enumerate(sizes):
        count = epochs * -(-n // batch)
        by_epochs = [step for steps in batches(deal(sizes, batch, epochs), c) for step in steps]
        assert batches(deal(sizes, batch, steps=count), c) == [by_epochs]


@given(SIZES, st.integers(1, 9), st.integers(1, 3), st.booleans())
def test_a_client_alone_sees_what_it_sees_among_others(sizes: list[int], batch: int, epochs: int, by_steps: bool):
    """The loop's rows are the padded rows: neither the company nor the padding changes a batch."""
    how = {"steps": 7} if by_steps else {"epochs": epochs}
    together = deal(sizes, batch, **how)
    for c, n in enumerate(sizes):
        alone = plan(
            owned(sizes)[c : c + 1, :n], torch.tensor([n]), torch.tensor([c]), words=(0, 1, 0), batch=batch,
            epochs=how.get("epochs", 1), steps=how.get("steps"),
        )  # fmt: skip
        assert batches(alone, 0) == batches(together, c)


@given(SIZES, st.integers(1, 9), st.data())
def test_some_rows_of_a_plan_are_the_same_batches(sizes: list[int], batch: int, data: st.DataObject):
    start = data.draw(st.integers(0, len(sizes) - 1))
    stop = data.draw(st.integers(start + 1, len(sizes)))
    whole = deal(sizes, batch, epochs=2)
    part = whole.rows(start, stop)
    assert [batches(part, c - start) for c in range(start, stop)] == [batches(whole, c) for c in range(start, stop)]


def test_the_order_depends_on_seed_round_trip_client_and_pass_and_on_nothing_else():
    def order(words: tuple[int, ...] = (0, 1, 0), client: int = 3, epoch: int = 0) -> list[int]:
        return flat(batches(deal([30], 7, epochs=2, words=words, ids=[client]), 0)[epoch])

    other = [order((1, 1, 0)), order((0, 2, 0)), order((0, 1, 1)), order(client=4), order(epoch=1)]
    assert len({tuple(o) for o in [order(), *other]}) == 6
    torch.manual_seed(99)
    assert order() == order()
    assert order() != sorted(order())


def test_the_batch_size_does_not_change_the_order():
    orders = [flat(batches(deal([23], b), 0)[0]) for b in (1, 5, 23, 1000)]
    assert all(order == orders[0] for order in orders)


def test_every_place_is_equally_likely():
    """Where sample 0 of ten comes in 2000 rounds: each place about 200 times (five standard deviations)."""
    places = [flat(batches(deal([10], 10, words=(0, t, 0)), 0)[0]).index(0) for t in range(2000)]
    counts = torch.bincount(torch.tensor(places), minlength=10)
    assert counts.min() > 200 - 5 * 13.4
    assert counts.max() < 200 + 5 * 13.4


# -- cohorts and engines --------------------
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(1, 12))
def test_a_cohort_is_drawn_without_repetition_among_the_occupied(seed: int, round: int, size: int):
    occupied = torch.arange(0, 20, 2).numpy()
    ids = draw(Config(seed=seed, clients=20, cohort=size), occupied, round).tolist()
    assert len(ids) == min(size, 10)
    assert ids == sorted(set(ids))
    assert set(ids) <= set(occupied.tolist())


def test_every_client_is_drawn_equally_often():
    occupied = torch.arange(10).numpy()
    for config in (Config(clients=10, cohort=3), Config(clients=10, participation=0.3)):
        drawn = torch.tensor([i for t in range(1, 2001) for i in draw(config, occupied, t).tolist()])
        assert ((torch.bincount(drawn, minlength=10) - 600).abs() < 110).all()


@pytest.mark.parametrize(
    ("asked", "convolutional", "device", "cohort", "engine"),
    [
        ("auto", True, "cpu", 10, "loop"), ("auto", False, "cpu", 10, "vector"), ("auto", True, "cuda", 10, "vector"),
        ("auto", False, "cpu", 1, "loop"), ("loop", False, "cuda", 10, "loop"), ("vector", True, "cpu", 1, "vector"),
    ],
)  # fmt: skip
def test_the_engine_is_chosen_by_fixed_rules_and_says_why(
    asked: str, convolutional: bool, device: str, cohort: int, engine: str
):
    name, why = choose(asked, convolutional, device, cohort)
    assert name == engine
    assert why
