"""Clients made on demand train as if all of them were in memory, and nothing takes memory or time for the others."""

from __future__ import annotations

import math
import threading
import tracemalloc
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import holdfast
from helpers.clients_on_demand import CLASSES, FEATURES, federated, held_out, listed, make, on_demand
from helpers.exact_errors import raises_exactly
from helpers.toys import Halving
from holdfast import Part, Trip
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.runs.setup import prepare_simulation
from holdfast.training.client_sampling import draw

CLIENTS = 12
SETTINGS = {"rounds": 4, "cohort": 4, "epochs": 2, "batch": 4, "model": "mlp", "device": "cpu"}


def outcome(result: holdfast.Result) -> tuple[list[dict], dict]:
    """Everything that a run found, without the time it took."""
    rounds = [{k: v for k, v in asdict(r).items() if k != "seconds"} for r in result.history]
    kept = ("final", "best", "last5", "accuracy_by_class", "upload_bytes", "download_bytes")
    return rounds, {k: result.summary[k] for k in kept}


def same(first: holdfast.Result, second: holdfast.Result) -> bool:
    return torch.equal(first.w, second.w) and outcome(first) == outcome(second)


# -- the same run ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["loop", "vector"])
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {}),
        ("fedavg", {"steps": 3, "epochs": None}),
        ("fedavg", {"epochs": "1-3", "drift": True}),
        ("scaffold", {}),
        ("scaffold", {"states": "disk"}),
        ("fedbug(0.4)+feddyn(0.1)", {}),
        ("moon+momentum(0.9)", {}),
        ("fedagg", {"drift": True}),
        ("fedlc", {}),
        ("latest", {}),
    ],
)
def test_a_run_is_that_of_the_same_clients_in_memory(method, settings, engine):
    settings = SETTINGS | settings | {"engine": engine}
    assert same(holdfast.run(method, listed(CLIENTS), **settings), holdfast.run(method, federated(CLIENTS), **settings))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedexp"])
def test_a_cohort_in_several_slices_is_that_of_the_same_clients_in_memory(method):
    settings = SETTINGS | {"engine": "vector", "slice": 2, "cohort": 7}
    assert same(holdfast.run(method, listed(CLIENTS), **settings), holdfast.run(method, federated(CLIENTS), **settings))


@dataclass(frozen=True)
class Encore(Part):
    """The two clients with the most samples train again, with other learning rates."""

    name = "toy-encore"

    def trips(self) -> tuple[Trip, ...]:
        return (
            Trip(
                sum=(Halving(),), who=lambda r: torch.argsort(r.n, descending=True, stable=True)[:2],
                message=lambda r: {}, state=lambda r, rows: {}, epochs=2,
            ),
        )  # fmt: skip


def test_inputs_normalised_by_their_own_clients_are_those_of_the_same_clients_in_memory():
    pairs = [make(i) for i in range(CLIENTS)]
    both = [
        holdfast.from_clients(pairs, held_out()),
        holdfast.from_clients(make, held_out(), clients=CLIENTS),
    ]
    assert same(*(holdfast.run("fedavg", holdfast.federate(data), **SETTINGS) for data in both))


def test_a_further_trip_finds_the_samples_of_the_round():
    found = [
        holdfast.run(Encore(), federation, **SETTINGS | {"engine": "vector"})
        for federation in (listed(CLIENTS), federated(CLIENTS))
    ]
    assert same(*found)


@pytest.mark.parametrize("sizes", [(4, 30, 30), (8, 12, 3)], ids=["more samples", "more steps alone"])
def test_the_traced_step_reads_every_new_cohort_and_follows_larger_clients(monkeypatch, sizes):
    """Later rounds need more memory, or just more steps, than the step was traced for."""
    traces: list[int] = []

    def as_it_is(traced: torch.fx.GraphModule, tensors: list[torch.Tensor]) -> torch.fx.GraphModule:
        traces.append(len(tensors))
        return traced

    monkeypatch.setattr("holdfast.engines.cuda_graph.compile_traced", as_it_is)

    def growing(i: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = make(i)
        n = sizes[0] if i in first else sizes[1] if i == large else sizes[2]
        return np.resize(x, (n, FEATURES)), np.resize(y, n)

    config = Config(clients=CLIENTS, cohort=2)
    drawn = [draw(config, range(CLIENTS), t).tolist() for t in range(1, 9)]
    first = {0, *drawn[0], *drawn[1]}
    large = max({i for ids in drawn[2:] for i in ids} - first)
    settings = SETTINGS | {"engine": "vector", "cohort": 2, "rounds": 8}
    plain = holdfast.run("scaffold", listed(CLIENTS, growing), compile=False, **settings)
    traced = holdfast.run("scaffold", federated(CLIENTS, growing), compile=True, **settings)
    assert [r.cohort for r in traced.history] == drawn
    assert 1 < len(traces) <= 4
    torch.testing.assert_close(plain.w, traced.w, rtol=1e-5, atol=1e-6)


def test_augmented_images_are_those_of_the_same_clients_in_memory():
    def images(i: int) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.default_rng(i)
        return draw.integers(0, 256, (4 + i % 3, 6, 6), dtype=np.uint8), draw.integers(0, 2, 4 + i % 3)

    options = {"mean": [0.4], "std": [0.3], "classes": ["a", "b"]}
    test = images(99)
    lists = holdfast.from_clients([images(i) for i in range(8)], test, **options)
    demand = holdfast.from_clients(images, test, clients=8, **options)
    settings = SETTINGS | {"model": "cnn", "engine": "loop", "rounds": 2}
    runs = [
        holdfast.run(
            "fedavg", holdfast.federate(data, "given", 8, augment="crop(1, padding=zeros)+flip(0.5)"), **settings
        )
        for data in (lists, demand)
    ]
    assert same(*runs)


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_tasks_too(task):
    def targets(i: int) -> tuple[np.ndarray, np.ndarray]:
        x = make(i)[0]
        return x, (100 + 7 * x[:, :2] if task == "regression" else (x[:, :3] > 0).astype(int))

    test, scale = targets(10**6), {"mean": [0.0] * FEATURES, "std": [1.0] * FEATURES, "task": task}
    demand = holdfast.federate(holdfast.from_clients(targets, test, clients=CLIENTS, **scale), "given", CLIENTS)
    pairs = [targets(i) for i in range(CLIENTS)]
    owner = np.repeat(np.arange(CLIENTS), [len(y) for _, y in pairs])
    x, y = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
    lists = holdfast.federate(holdfast.from_arrays(x, y, *test, groups=owner, **scale), "given", CLIENTS)
    runs = [holdfast.run("scaffold", federation, **SETTINGS) for federation in (lists, demand)]
    assert torch.equal(runs[0].w, runs[1].w)
    assert [r.test for r in runs[0].history] == [r.test for r in runs[1].history]
    if task == "regression":
        assert demand.data.task.mean == pytest.approx(y.astype(np.float64).mean(0), rel=1e-6)


# -- resuming --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("states", ["memory", "disk"])
def test_a_resumed_run_is_the_uninterrupted_one(states, tmp_path: Path):
    settings = SETTINGS | {"states": states}
    whole = holdfast.run("scaffold", federated(CLIENTS), **settings)
    rounds = iter([False, True])
    stopped = holdfast.run("scaffold", federated(CLIENTS), out=tmp_path / "r", stop=lambda: next(rounds), **settings)
    assert len(stopped.history) == 2
    resumed = holdfast.run("scaffold", federated(CLIENTS), out=tmp_path / "r", resume=True)
    assert same(whole, resumed)


def test_a_client_that_cannot_be_made_stops_the_run_which_can_be_resumed(tmp_path: Path):
    config = Config(clients=CLIENTS, cohort=4)
    seen = {0, *draw(config, range(CLIENTS), 1).tolist(), *draw(config, range(CLIENTS), 2).tolist()}
    bad = min({*draw(config, range(CLIENTS), 3).tolist(), *draw(config, range(CLIENTS), 4).tolist()} - seen)

    def broken(i: int) -> tuple[np.ndarray, np.ndarray]:
        if i == bad:
            raise OSError("the disk is gone")
        return make(i)

    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "the disk is gone" in text)
    message = f"client {bad}: the function that makes clients raised OSError: the disk is gone"
    with raises_exactly(f"{message} (test_clients_on_demand.py, line {line})"):
        holdfast.run("scaffold", federated(CLIENTS, broken), out=tmp_path / "run", **SETTINGS)
    resumed = holdfast.run("scaffold", federated(CLIENTS), out=tmp_path / "run", resume=True)
    assert same(holdfast.run("scaffold", federated(CLIENTS), **SETTINGS), resumed)


def test_a_client_that_changes_between_rounds_is_noticed():
    calls: dict[int, int] = {}

    def moody(i: int) -> tuple[np.ndarray, np.ndarray]:
        calls[i] = calls.get(i, 0) + 1
        x, y = make(i)
        return x + (calls[i] > 3), y

    with pytest.raises(
        HoldfastError, match=r"^client \d+ has other samples than before: make it from its number alone"
    ):
        holdfast.run("fedavg", federated(5, moody), **SETTINGS | {"rounds": 20})


# -- what needs every client -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "method", "settings"),
    [
        ("personal", "fedavg", {"personal": 1}),
        ("ccvr", "ccvr", {}),
        ("client_eval", "fedavg", {"client_eval": True}),
        ("class_weights = balanced", "fedavg", {"class_weights": "balanced"}),
    ],
)
def test_what_needs_every_client_is_refused(what, method, settings):
    reason = f"{what} needs the samples of every client, but this data makes clients on demand: leave it out"
    with raises_exactly(reason):
        prepare_simulation(Config(clients=CLIENTS, **settings), as_method(method), federated(CLIENTS))


def test_batchnorm_layers_that_stay_at_clients_are_refused():
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, CLASSES))
    with raises_exactly(
        "batchnorm = local needs the samples of every client, but this data makes clients on demand: leave it out"
    ):
        holdfast.run("fedavg", federated(CLIENTS), model, batchnorm="local")


# -- nothing of the others -------------------------------------------------------------------------------------------
def test_only_the_cohort_and_the_next_one_are_made():
    made: list[int] = []

    def counted(i: int) -> tuple[np.ndarray, np.ndarray]:
        made.append(i)
        return make(i)

    federation = federated(10**6, counted)
    assert set(made) == {0}
    made.clear()
    result = holdfast.run("fedavg", federation, **SETTINGS)
    assert made == [i for record in result.history for i in record.cohort], "each client of each round once, in order"
    made.clear()
    stopped = holdfast.run("fedavg", federation, **SETTINGS, stop=lambda: True)
    later = draw(Config(clients=10**6, cohort=4), range(10**6), 2).tolist()
    so_far = list(made)  # the thread may still be at it
    assert so_far == [*stopped.history[0].cohort, *later][: len(so_far)]


def test_the_next_cohort_is_made_by_another_thread_and_the_last_round_makes_none():
    threads: dict[int, list[bool]] = {}
    main = threading.current_thread()
    federation = federated(
        10**6, lambda i: (threads.setdefault(i, []).append(threading.current_thread() is main), make(i))[1]
    )
    threads.clear()
    result = holdfast.run("fedavg", federation, **SETTINGS)
    first, *others = [record.cohort for record in result.history]
    assert all(threads[i] == [True] for i in first)
    assert all(threads[i] == [False] for ids in others for i in ids)
    assert len(threads) == 4 * 4


def test_samples_are_dropped_when_their_round_is_over():
    """At no time are the arrays of more than two cohorts alive: those of the round, and those being made."""
    alive: set[int] = set()
    most = 0

    def watched(i: int) -> tuple[np.ndarray, np.ndarray]:
        nonlocal most
        x, y = make(i)
        alive.add(id(x))
        weakref.finalize(x, alive.discard, id(x))
        most = max(most, len(alive))
        return x, y

    holdfast.run("fedavg", federated(10**6, watched), **SETTINGS | {"rounds": 12})
    assert 4 <= most <= 8


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "feddyn(0.1)"])
def test_memory_does_not_depend_on_the_number_of_clients(method, tmp_path: Path):
    """A billion clients: an array of one byte each would be a gigabyte."""

    def peak(clients: int) -> int:
        tracemalloc.start()
        result = holdfast.run(
            method, federated(clients), out=tmp_path / str(clients), states="disk", drift=True, **SETTINGS
        )
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len({i for r in result.history for i in r.cohort}) > 10
        return used

    peak(10**3)  # what is imported on the way
    few, many = peak(10**4), peak(10**9)
    assert many < few + 2**20
    kept = {p.name: p.stat().st_size for p in (tmp_path / str(10**9)).iterdir() if p.is_file()}
    assert max(kept.values()) < 10**5


# -- who is drawn ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("clients", "cohort"), [(10, 3), (10, 10), (20_000, 7), (20_000, 900), (100_000, 1000)])
def test_the_cohort_is_that_of_a_list_of_all_clients(clients, cohort):
    config = Config(clients=clients, cohort=cohort, seed=5)
    for t in range(1, 20):
        drawn = draw(config, range(clients), t)
        assert np.array_equal(drawn, draw(config, np.arange(clients), t))
        assert len(np.unique(drawn)) == cohort


def test_cohorts_of_very_many_clients_have_no_repeats_and_are_uniform():
    clients, parts = 10**12, 10
    config = Config(clients=clients, cohort=1000, seed=1)
    cohorts = [draw(config, range(clients), t) for t in range(1, 101)]
    assert all((np.diff(ids) > 0).all() and ids[0] >= 0 and ids[-1] < clients for ids in cohorts)
    counts = np.bincount(np.concatenate(cohorts) * parts // clients, minlength=parts)
    expected = 1000 * 100 / parts
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < 27.9  # 9 degrees of freedom: one in a thousand


def test_by_participation_every_subset_has_its_probability():
    p, clients, rounds = 0.3, 4, 20_000
    config = Config(clients=clients, participation=p)
    subsets = np.array([sum(1 << int(i) for i in draw(config, range(clients), t)) for t in range(1, rounds + 1)])
    for subset in range(1, 16):
        size = subset.bit_count()
        share = p**size * (1 - p) ** (clients - size) / (1 - (1 - p) ** clients)
        assert abs((subsets == subset).mean() - share) <= 5 * math.sqrt(share * (1 - share) / rounds)
    assert 0 not in subsets


def test_participation_takes_time_for_the_cohort_alone():
    clients = 10**12
    for p, expected in ((1e-9, 1000), (1e-12, 1.58), (1e-15, 1)):
        config = Config(clients=clients, participation=p)
        cohorts = [draw(config, range(clients), t) for t in range(1, 201)]
        assert all((np.diff(ids) > 0).all() and len(ids) and ids[-1] < clients for ids in cohorts)
        assert np.mean([len(ids) for ids in cohorts]) == pytest.approx(expected, rel=0.15)
    one = Config(clients=1, participation=1.0)
    assert draw(one, range(1), 1).tolist() == [0]


# -- around a run ----------------------------------------------------------------------------------------------------
def test_methods_are_compared_on_clients_made_on_demand(tmp_path: Path):
    settings = {k: v for k, v in SETTINGS.items() if k != "model"} | {"rounds": 2}
    made = holdfast.compare(["fedavg", "scaffold"], on_demand(CLIENTS), "mlp", seeds=2, out=tmp_path / "c", **settings)
    assert made.finished
    assert made.study is not None
    alone = holdfast.run("scaffold", federated(CLIENTS), seed=1, **SETTINGS | {"rounds": 2})
    stored = holdfast.load_run(next((tmp_path / "c").glob("scaffold*/seed-1"), tmp_path))
    assert torch.equal(stored.w, alone.w)


def test_a_run_is_loaded_and_predicts_without_its_clients(tmp_path: Path):
    result = holdfast.run("fedavg", federated(CLIENTS), out=tmp_path / "run", **SETTINGS)
    x, _ = held_out()
    assert np.array_equal(holdfast.load_run(tmp_path / "run").predict(x), result.predict(x))
    holdfast.report(tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()


def test_the_data_set_stays_as_it_is():
    """Client 0, the largest, is its example, and must not be the memory into which cohorts are written."""
    data = on_demand(CLIENTS, lambda i: make(i + 3))
    holdfast.run("fedavg", holdfast.federate(data, "given", CLIENTS), **SETTINGS | {"cohort": 1})
    assert np.array_equal(data.x, make(3)[0])
    assert np.array_equal(data.y, make(3)[1])
