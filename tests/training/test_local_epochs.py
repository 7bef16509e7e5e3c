"""Clients that train for different numbers of epochs: who trains how long, alike in every engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import holdfast
from helpers.commands import config, good, refused
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import SMALL, on_grid
from helpers.toys import FEDERATION, Anchor, assert_close, assert_same, mlp, quadratic, train
from holdfast import Client, Part, Tensors
from holdfast.engines.batches import plan
from holdfast.method.config import Config
from holdfast.parts.nova import Nova
from holdfast.parts.scaffold import Scaffold
from holdfast.training.local_epochs import draw_epochs
from holdfast.training.simulation import Simulation

RANGE = "1-4"
WAYS = {
    "vector": {"engine": "vector"},
    "slices": {"engine": "vector", "slice": 2},
    "traced": {"engine": "vector", "compile": True},
    "traced, in slices": {"engine": "vector", "compile": True, "slice": 2},
}


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traced step runs as it was traced: compiling it takes long and is tested elsewhere."""
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)


# -- how many --------------------
def test_every_number_of_the_range_is_equally_likely():
    """Of 40,000 draws each of four numbers gets 10,000, give or take five standard deviations."""
    drawn = np.concatenate([draw_epochs(Config(epochs="2-5"), np.arange(100), t) for t in range(1, 401)])
    counts = np.bincount(drawn)
    assert counts[:2].tolist() == [0, 0]
    assert len(counts) == 6
    assert np.abs(counts[2:] - 10_000).max() < 5 * (40_000 * 0.25 * 0.75) ** 0.5
    assert drawn.mean() == pytest.approx(3.5, abs=5 * (1.25 / 40_000) ** 0.5)


def test_the_draw_depends_on_seed_round_and_client_and_on_nothing_else():
    ids = np.arange(50)
    first = draw_epochs(Config(epochs="2-5"), ids, 3)
    assert np.array_equal(first, draw_epochs(Config(epochs="2-5", rounds=9, cohort=2), ids, 3))
    assert np.array_equal(first[[7, 3]], draw_epochs(Config(epochs="2-5"), np.array([7, 3]), 3)), "alone as together"
    for other in (draw_epochs(Config(epochs="2-5", seed=1), ids, 3), draw_epochs(Config(epochs="2-5"), ids, 4)):
        assert 0 < (first != other).sum() < 50
    by_client = np.corrcoef(first[:-1], first[1:])[0, 1]
    assert abs(by_client) < 0.5


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, (5, 5)), ({"epochs": 3}, (3, 3)), ({"epochs": "2-5"}, (2, 5)), ({"steps": 7}, (1, 1))],
)
def test_range_of_a_run(settings: dict, expected: tuple[int, int]):
    assert Config(**settings).epoch_range == expected
    assert Config(**settings).passes == expected[1]


def test_the_plan_ends_with_a_client_s_own_epochs():
    owned, n = torch.arange(30).reshape(3, 10), torch.tensor([10, 4, 7])
    made = plan(owned, n, torch.arange(3), words=(0, 1, 0), batch=3, epochs=[2, 3, 1], steps=None)
    assert (made.epochs, made.steps, made.passes) == (3, [4, 2, 3], [2, 3, 1])
    assert made.mask.sum((1, 2, 3)).tolist() == [20, 12, 7]
    assert [made.training_in(e) for e in range(3)] == [[0, 1, 2], [0, 1], [1]]
    for c, epochs in enumerate([2, 3, 1]):
        alone = plan(
            owned[c : c + 1], n[c : c + 1], torch.tensor([c]), words=(0, 1, 0), batch=3, epochs=[epochs], steps=None
        )
        whole, steps = made.rows(c, c + 1), made.steps[c]
        assert whole.index.shape[1] == epochs, "no further than its last epoch"
        assert torch.equal(whole.mask, alone.mask[:, :, :steps])
        assert torch.equal(whole.index[whole.mask], alone.index[alone.mask])


# -- engines --------------------
@dataclass(frozen=True)
class Diary(Part):
    """Notes the epochs that a client starts, its steps, and what it was told about them."""

    name = "toy-diary"

    def begin(self, c: Client) -> Tensors:
        zero = torch.zeros_like(c.K)
        return {"epochs": zero, "last": zero - 1, "steps": zero}

    def epoch(self, c: Client, w: Tensor) -> Tensors:
        return {"epochs": c.local["epochs"] + 1, "last": c.epoch + 0 * c.K, "steps": c.local["steps"]}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g, c.local | {"steps": c.local["steps"] + 1}

    def init_client(self, w: Tensor) -> Tensors:
        return {name: torch.zeros((), dtype=torch.int64) for name in ("epochs", "last", "steps", "K", "S", "most")}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, c.local | {"K": c.K, "S": c.S, "most": c.epochs + 0 * c.K}


@pytest.mark.parametrize("way", [{"engine": "loop"}, *WAYS.values()], ids=["loop", *WAYS])
def test_a_client_trains_for_its_own_epochs_and_its_scratch_is_left_alone_afterwards(way: dict):
    ran = train(Diary(), epochs=RANGE, cohort=4, rounds=1, **way)
    clients = FEDERATION.occupied
    epochs = draw_epochs(Config(epochs=RANGE), clients, 1)
    assert len(set(epochs.tolist())) > 1, "a seed in which they differ"
    known = ran.after[1]
    for client, drawn in zip(clients.tolist(), epochs.tolist(), strict=True):
        S = -(-int(FEDERATION.deal.sizes[client]) // 5)
        expected = {"epochs": drawn, "last": drawn - 1, "steps": drawn * S, "K": drawn * S, "S": S, "most": 4}
        assert {name: int(known[f"{client}/toy-diary/{name}"]) for name in expected} == expected, client


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fednova", "fedbug", "moon+feddyn", "anchor"])
def test_every_engine_gives_the_same(method: str, way: str):
    sum: str | Part = Anchor() if method == "anchor" else method
    runs = [train(sum, epochs=RANGE, cohort=4, rounds=3, **how) for how in ({"engine": "loop"}, WAYS[way])]
    for loop, other in zip(runs[0].after, runs[1].after, strict=True):
        assert_close(other, loop, 1e-12 if method != "moon+feddyn" else 1e-10)
    for loop, other in zip(runs[0].history, runs[1].history, strict=True):
        assert other.train_loss == pytest.approx(loop.train_loss, rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_clients_of_one_size_may_differ_in_their_epochs(way: str):
    """A step that is traced for clients of one size has to leave those alone that are done."""
    clients = [(8.0, 2), (-4.0, 2), (1.0, 2), (3.0, 2)]
    ways = ({"engine": "loop"}, WAYS[way])
    loop, other = (quadratic(Scaffold(), *clients, epochs=RANGE, rounds=3, **how) for how in ways)
    assert len(set(draw_epochs(Config(epochs=RANGE), np.arange(4), 1).tolist())) > 1
    assert_close(other.after[3], loop.after[3], 1e-12)


@pytest.mark.parametrize("way", ["loop", *WAYS])
def test_a_range_of_one_number_is_that_number(way: str):
    how = WAYS.get(way, {"engine": "loop"})
    plain, ranged = (train("scaffold+fedbug", epochs=epochs, **how) for epochs in (3, "3-3"))
    for found, expected in zip(ranged.after, plain.after, strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("epochs", [[3, 1], [1, 2]])
def test_fednova_with_unequal_epochs_by_hand(epochs: list[int]):
    """Two clients, targets 8 and -4, of 1 and 3 samples; batches of one, rate 1/2, from 0."""
    seed = next(s for s in range(99) if draw_epochs(Config(epochs="1-3", seed=s), np.arange(2), 1).tolist() == epochs)
    K, targets, p = np.array([1, 3]) * epochs, np.array([8.0, -4.0]), np.array([0.25, 0.75])
    deltas = targets * (1 - 0.5**K)
    expected = (p * K).sum() * (p * deltas / K).sum()
    found = quadratic(Nova(), (8.0, 1), (-4.0, 3), epochs="1-3", seed=seed)
    assert float(found.after[1]["w"]) == pytest.approx(expected, rel=1e-12)


def test_further_trips_and_fine_tuning_keep_their_own_epochs():
    """FNR's second trip, and --personal, state their epochs themselves."""
    settings = {"precision": "fp64", "cohort": 4, "rounds": 2, "personal": 2, "batch": 5}
    made: list[Simulation] = []
    results = [
        holdfast.run("fnr", FEDERATION, mlp(), epochs=RANGE, engine=e, on_start=lambda s, d: made.append(s), **settings)
        for e in ("loop", "vector")
    ]
    torch.testing.assert_close(results[1].w, results[0].w, rtol=1e-10, atol=1e-11)
    assert results[0].summary["personal_accuracy"] == pytest.approx(results[1].summary["personal_accuracy"])
    assert [engine.training.epochs for engine in made[0].engines] == [4, 5]


def test_prefetched_batches_are_the_same():
    """On a GPU the batches of a round are prepared while the last one trains."""
    made: list[Simulation] = []
    holdfast.run("fedavg", FEDERATION, mlp(), epochs=RANGE, rounds=1, on_start=lambda s, d: made.append(s))
    ids = FEDERATION.occupied
    simulation = made[0]
    for t in (1, 2, 3):
        simulation.config = simulation.config.changed(cohort=None, participation=1.0)
        (prepared,) = simulation._upcoming(t).groups
        info, batches = simulation._batches(t, ids)
        assert np.array_equal(prepared.ids, ids)
        assert torch.equal(prepared.info.K, info.K)
        assert prepared.batches.passes == batches.passes == draw_epochs(simulation.config, ids, t).tolist()
        assert torch.equal(prepared.batches.index, batches.index)


def test_nodes_draw_what_a_simulation_draws():
    settings = SMALL | {"epochs": "1-3"}
    expected = holdfast.run("scaffold+nova", engine="loop", **settings)
    found = on_grid("scaffold+nova", epochs="1-3")
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)
    plain = holdfast.run("scaffold+nova", engine="loop", **SMALL | {"epochs": 3})
    assert not torch.allclose(plain.w, expected.w, rtol=1e-2, atol=1e-3)


def test_a_resumed_run_continues_exactly(tmp_path):
    settings = {"precision": "fp64", "cohort": 3, "epochs": RANGE}
    whole = holdfast.run("scaffold", FEDERATION, mlp(), rounds=5, **settings)
    holdfast.run("scaffold", FEDERATION, mlp(), rounds=2, out=tmp_path, **settings)
    rest = holdfast.run("scaffold", FEDERATION, mlp(), rounds=5, out=tmp_path, resume=True)
    assert torch.equal(rest.w, whole.w)


# -- input --------------------
@pytest.mark.usefixtures("elsewhere")
def test_a_range_is_a_flag_a_setting_and_a_line_of_the_config():
    tiny = ("--model", "linear", "--clients", "6", "--cohort", "2", "--rounds", "1")
    said = good("run", "fedavg", *tiny, "--epochs", "2-3", "--out", "one")
    assert "2-3 local epochs" in said.err
    good("run", "--config", "one/config.toml", "--set", "epochs=1-2", "--quiet", "--out", "two")
    assert (config("one")["epochs"], config("two")["epochs"]) == ("2-3", "1-2")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "text", ["'5-2'", "'0-3'", "'2-'", "'-3-5'", "'2-5-7'", "a-b", "'2.5-3'", "'2..5'", "'٢-5'", "0", "'2.5'"]
)
def test_a_bad_range_is_one_line(text: str):
    value = text.strip("'")
    assert refused("run", "fedavg", f"--epochs={value}") == (
        f"holdfast: epochs must be a whole number of at least 1 or a range such as 2-5, not {text}\n"
    )


def test_only_epochs_may_be_a_range():
    with raises_exactly("rounds must be a whole number of at least 1, not '2-5'"):
        Config(rounds="2-5")
    with raises_exactly("epochs and steps cannot be used together: set one of them"):
        Config(epochs="2-5", steps=3)


def test_fedagg_refuses_unequal_epochs():
    for method in ("fedagg", "fedagg(mode=fixed_point)+prox"):
        with raises_exactly(
            "fedagg finds a rate for every epoch, so clients must train equally many, not 1-4: use --epochs 4"
        ):
            train(method, epochs=RANGE)
