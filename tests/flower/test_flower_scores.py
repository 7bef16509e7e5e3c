"""Scores and statistics over the network: clients' own test samples, validation, sums of nodes' own data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from flwr.app import Message
from torch import Tensor, nn

import holdfast
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import MemoryGrid, Trouble, changed
from holdfast.flower.app import client_app, serve
from holdfast.flower.messages import PERSONAL, SCORE, SUMS, TRAIN
from holdfast.flower.node_data import Outputs, node_federation, server_federation
from holdfast.flower.secure_messages import MASKED_MOMENTS
from holdfast.method.config import FIELDS, Config

SIZES = (30, 12, 21, 9)
SETTINGS: dict[str, Any] = {
    "clients": 4, "cohort": 3, "epochs": 2, "rounds": 3, "batch": 8, "lr": 0.1, "precision": "fp64", "device": "cpu",
}  # fmt: skip
DEPLOYED = {"nodes": 4, "patience": 1.0, "timeout": 0.3}
OWNERS = np.repeat(np.arange(4), SIZES)


def same(request: Message, reply: Message) -> Message:
    return reply


def rows(seed: int = 0) -> np.ndarray:
    """Features of very different sizes."""
    return np.random.default_rng(seed).normal(size=(len(OWNERS), 4)) * [1, 100, 0.01, 5] + [0, 1e4, 3, -2]


def targets(task: str, x: np.ndarray) -> np.ndarray:
    z = (x - x.mean(0)) / x.std(0)
    if task == "regression":
        return 300 + 40 * (z @ np.array([1.0, -2.0, 0.5, 3.0]))
    if task == "multilabel":
        return (z @ np.array([[1.0, 0.5], [-2.0, 0.0], [0.5, 1.0], [0.0, 3.0]]) > 0).astype(float)
    return (z[:, 0] - z[:, 1] > 0).astype(int) + (z[:, 2] > 1)


class Grid:
    """Nodes that bring their own samples, and the run on them."""

    def __init__(
        self, x: Any, y: Any, classes: Outputs = None, trouble: Trouble = same, test: Any = None, **settings: Any
    ) -> None:
        self.x, self.y, self.classes = x, y, classes
        self.values = {**SETTINGS, "model": "linear", "method": "fedavg", **settings}
        self.grid = MemoryGrid(self.values, 4, trouble)
        self.model: Callable[[], nn.Module] | None = self.values.pop("module", None)
        self.grid.settings = self.values
        self.grid.app = client_app(self.read, test=test, classes=classes, model=self.model)
        for context in self.grid.contexts.values():
            context.run_config = dict(self.values)

    def read(self, client: int, node: object) -> tuple[Any, Any]:
        return self.x[client == OWNERS], self.y[client == OWNERS]

    def run(self, normalise: str = "federated", **more: Any) -> holdfast.Result:
        config = Config(**{k: v for k, v in self.values.items() if k in FIELDS})
        federation = server_federation((self.x, self.y), None, config, self.classes, normalise)
        return serve(self.grid, config, {**DEPLOYED, **self.values, **more}, federation, self.model)

    def requests(self, kind: str) -> list[Message]:
        return [m for m in self.grid.sent if m.metadata.message_type == kind]


def simulated(x: Any, y: Any, classes: Any = None, **settings: Any) -> holdfast.Result:
    """The same run in simulation: the clients' samples are dealt as the nodes hold them."""
    values = {**SETTINGS, "model": "linear", **settings}
    share = values.pop("client_test", Config().client_test)
    held = {"client_test": share if values.pop("client_eval", False) else 0, "validation": values.pop("validation", 0)}
    values.pop("clients")
    module, options = values.pop("module", None), {"normalise": values.pop("normalise", True)}
    data = holdfast.from_arrays(x, y, x, y, groups=OWNERS, classes=classes, task=values.pop("task", None), **options)
    fed = holdfast.federate(data, "given", **held)
    method = values.pop("method", "fedavg")
    if module is not None:
        values["model"] = module
    return holdfast.run(method, fed, engine="loop", **values)


def assert_same(found: holdfast.Result, expected: holdfast.Result, tolerance: float = 1e-9) -> None:
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.failed) == (b.cohort, {})
        assert a.train_loss == pytest.approx(b.train_loss, rel=tolerance)
        for kind in ("test", "validation", "clients"):
            assert getattr(a, kind) == pytest.approx(getattr(b, kind), rel=tolerance)
    torch.testing.assert_close(found.w, expected.w, rtol=tolerance, atol=tolerance)
    if expected.table is not None:
        assert found.table is not None
        for a, b in zip(found.table.rows, expected.table.rows, strict=True):
            assert (a.samples, a.score) == (b.samples, pytest.approx(b.score, rel=tolerance))
            assert a.personal == (None if b.personal is None else pytest.approx(b.personal, rel=tolerance))


# -- data sets by name -----------------------------------------------------------------------------------------------
def test_clients_of_a_named_data_set_are_scored_as_in_simulation(tmp_path: Path):
    settings = {
        **SETTINGS, "data": "digits", "split": "dirichlet(0.5)", "model": "linear", "method": "scaffold", "batch": 64,
        "client_eval": True, "validation": 0.1,
    }  # fmt: skip
    grid = MemoryGrid(settings, 4)
    found = serve(grid, Config(**settings), {**DEPLOYED, **settings, "out": str(tmp_path / "nodes")})
    values = {k: v for k, v in settings.items() if k != "method"}
    expected = holdfast.run("scaffold", engine="loop", out=tmp_path / "here", **values)
    assert_same(found, expected)
    assert found.summary["floor"] == pytest.approx(expected.summary["floor"])
    here, nodes = (json.loads((tmp_path / where / "split.json").read_text()) for where in ("here", "nodes"))
    assert nodes == here  # the server knows who holds how much, though it has no sample of theirs
    assert {m.content["numbers"]["purpose"] for m in grid.sent if m.metadata.message_type == SCORE} == {"client_test"}
    for request in grid.sent:  # no sample, no prediction, no label: numbers of a client, and that is all
        assert set(request.content) <= {"numbers", "model", "messages", "public"}


@pytest.mark.parametrize("label", ["label=price, drop=[ill, cough]", "label=[ill, cough], drop=price"])
def test_the_page_of_a_table_on_nodes_shows_the_split_of_a_simulation(label: str, tmp_path: Path):
    """The server has no samples, but knows the groups by which numbers and combinations of labels are counted."""
    draw, n = np.random.default_rng(0), 60
    columns = {"age": draw.normal(50, 9, n), "ward": ["A", "B"] * (n // 2), "home": ["Ulm", "Köln", "Bonn"] * (n // 3)}
    columns |= {"ill": draw.random(n) < 0.5, "cough": draw.random(n) < 0.3, "price": draw.normal(9, 1, n)}
    pandas.DataFrame(columns).to_csv(tmp_path / "patients.csv", index=False)
    settings = {
        **SETTINGS, "data": f"csv('{tmp_path / 'patients.csv'}', {label}, client=home)", "split": "given", "clients": 3,
        "model": "linear", "method": "fedavg", "client_eval": True, "personal": 1, "rounds": 1,
    }  # fmt: skip
    found = serve(
        MemoryGrid(settings, 3),
        Config(**settings),
        {**DEPLOYED, **settings, "nodes": 3, "out": str(tmp_path / "nodes")},
    )
    values = {k: v for k, v in settings.items() if k != "method"}
    assert_same(found, holdfast.run("fedavg", engine="loop", out=tmp_path / "here", **values), 1e-6)
    here, nodes = (json.loads((tmp_path / where / "split.json").read_text()) for where in ("here", "nodes"))
    assert nodes == here
    page = holdfast.report(tmp_path / "nodes").read_text(encoding="utf-8").partition("<script")[0]
    assert page.count("Köln") == 1  # in the table of clients
    assert "Fine-tuned copy" in page


def test_a_reply_holds_scores_and_counts_alone():
    seen: list[Message] = []

    def listen(request: Message, reply: Message) -> Message:
        seen.extend([reply] if request.metadata.message_type == SCORE else [])
        return reply

    Grid(rows(), targets("", rows()), 3, listen, client_eval=True, rounds=1).run()
    assert len(seen) == 4
    for reply in seen:
        names = {name.partition("/")[2]: array.numpy().size for name, array in reply.content["arrays"].items()}
        assert names == {"values": 2, "samples": 1, "items": 1}


# -- nodes' own data -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_own_data_of_every_task_as_in_simulation(task: str, tmp_path: Path):
    """Inputs and targets are scaled by sums of all nodes, as in one place; clients and validation are scored."""
    x = rows()
    y = targets(task, x)
    classes = 3 if task == "classification" else None
    settings = {"client_eval": True, "client_test": 0.3, "validation": 0.2}
    grid = Grid(x, y, classes, task=task, **settings)
    found = grid.run(out=str(tmp_path / "run"))
    names = ["a", "b", "c"] if task == "classification" else None
    expected = simulated(x, y, names, task=task, **settings)
    assert_same(found, expected)
    assert len(grid.requests(SUMS)) == 4  # once
    train = np.concatenate([expected_rows(i, expected) for i in range(4)])
    assert found.facts.mean == pytest.approx(x.astype(np.float32)[train].astype(float).mean(0), rel=1e-12)
    assert found.facts.std == pytest.approx(x.astype(np.float32)[train].astype(float).std(0), rel=1e-9)
    assert "counts" not in json.loads((tmp_path / "run" / "split.json").read_text())  # which only the nodes know
    stored = holdfast.load_run(tmp_path / "run")
    np.testing.assert_allclose(stored.predict(x), expected.predict(x), rtol=1e-5)
    assert stored.client_scores() == found.client_scores()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_own_data_is_scaled_by_secure_sums(task: str):
    """Means and standard deviations to the step of the sums; the server gets no client's."""
    x = rows()
    y = targets(task, x)
    classes, names = (3, ["a", "b", "c"]) if task == "classification" else (None, None)
    grid = Grid(x, y, classes, task=task, secure=True, cohort=4)
    found, expected = grid.run(), simulated(x, y, names, task=task, cohort=4)
    assert_same(found, expected, 1e-5)
    assert found.facts.mean == pytest.approx(expected.facts.mean, rel=1e-7, abs=1e-8)
    assert found.facts.std == pytest.approx(expected.facts.std, rel=1e-5)
    assert grid.requests(SUMS) == []
    assert [len(m.content["centre"]) for m in grid.requests(MASKED_MOMENTS)] == [0] * 4 + [1 + bool(names is None)] * 4


def test_validation_of_own_data_shows_single_clients():
    grid = Grid(rows(), targets("classification", rows()), 3, secure=True, cohort=4, validation=0.2)
    with raises_exactly("--secure: validation scores of the nodes' own data are of single clients: leave out "
                        "--validation"):  # fmt: skip
        grid.run()


def expected_rows(client: int, result: holdfast.Result) -> np.ndarray:
    """The samples that a client trains on, found by the rule for held-out samples alone."""
    config = result.config
    numbers = np.arange(len(OWNERS), dtype=float)[:, None]
    data = holdfast.from_arrays(numbers, OWNERS % 2, [[0.0]], [0], groups=OWNERS, normalise=False)
    fed = holdfast.federate(data, "given", client_test=config.client_test, validation=config.validation)
    return fed.data.x[fed.deal.client(client), 0].long().numpy()


def test_next_tokens_of_own_data_as_in_simulation():
    draw = np.random.default_rng(0)
    x = draw.integers(0, 5, (len(OWNERS), 6))
    y = np.roll(x, -1, 1)
    y[:, -1] = -100
    y[::3, 2:] = -100

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x))

    def module() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Network()

    settings = {"task": "next-token", "client_eval": True, "validation": 0.2, "module": module}
    grid = Grid(x, y, 5, **settings)
    assert_same(grid.run(), simulated(x, y, list("abcde"), **settings))
    assert grid.requests(SUMS) == []  # tokens are not scaled


def test_nodes_may_bring_test_samples():
    x, y = rows(), targets("", rows())
    more_x, more_y = rows(1), targets("", rows(1))

    def test(client: int, node: object) -> tuple[Any, Any]:
        own = np.flatnonzero(client == OWNERS)[: 3 + client]
        return more_x[own], more_y[own]

    grid = Grid(x, y, 3, test=test, client_eval=True)
    found = grid.run()
    weight, bias = (t.numpy() for t in found.state_dict().values())
    mean, std = x.astype(np.float32).astype(float).mean(0), x.astype(np.float32).astype(float).std(0)
    for i in range(4):  # all training samples are trained on, and the test samples enter no statistic
        held_x, held_y = test(i, None)
        hits = ((held_x.astype(np.float32) - mean) / std @ weight.T + bias).argmax(1) == held_y
        row = found.client_scores()[str(i)]
        assert (row.samples, row.score) == (3 + i, pytest.approx(hits.mean()))
    assert_same(Grid(x, y, 3).run(), simulated(x, y, ["a", "b", "c"]))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def normed() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Normed()


def test_local_layers_of_own_data_are_scored_at_their_clients():
    x, y = rows(), targets("", rows())
    settings = {"client_eval": True, "validation": 0.2, "batchnorm": "local", "module": normed}
    assert_same(Grid(x, y, 3, **settings).run(), simulated(x, y, ["a", "b", "c"], **settings))


@pytest.mark.parametrize("mode", ["average", "frozen"])
def test_statistics_of_batchnorm_travel_with_the_model_that_is_scored(mode: str):
    x, y = rows(), targets("", rows())
    settings = {"client_eval": True, "batchnorm": mode, "module": normed}
    assert_same(Grid(x, y, 3, **settings).run(), simulated(x, y, ["a", "b", "c"], **settings))


def test_a_run_on_nodes_stops_by_their_validation_data():
    x, y = rows(), targets("", rows())
    settings = {"validation": 0.3, "rounds": 30, "stop_after": 2, "lr": 2.0}
    found, expected = Grid(x, y, 3, **settings).run(), simulated(x, y, ["a", "b", "c"], **settings)
    assert found.summary["stopped_early"]
    assert len(found.history) < 30
    assert len(found.history) == len(expected.history)
    assert found.summary["best_round"] == expected.summary["best_round"]
    assert found.summary["chosen_on"] == "validation"


def test_shuffled_test_labels_of_nodes_change_no_weight_and_no_stopping_round():
    x, y = rows(), targets("", rows())

    def held(shift: int) -> Callable[[int, object], tuple[Any, Any]]:
        return lambda client, node: (rows(1)[client == OWNERS], (targets("", rows(1))[client == OWNERS] + shift) % 3)

    settings = {"validation": 0.3, "client_eval": True, "rounds": 30, "stop_after": 2, "lr": 2.0}
    true, wrong = (Grid(x, y, 3, test=held(shift), **settings).run() for shift in (0, 1))
    assert torch.equal(true.w, wrong.w)
    assert [r.validation for r in true.history] == [r.validation for r in wrong.history]
    for name in ("rounds", "best_round", "stopped_early", "chosen_on"):
        assert true.summary[name] == wrong.summary[name]
    assert true.summary["stopped_early"]
    assert [r.clients for r in true.history] != [r.clients for r in wrong.history]


# -- fine-tuned copies -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("classification", {"method": "scaffold+momentum(0.5)"}),
        ("classification", {"batchnorm": "local", "module": normed}),
        ("classification", {"batchnorm": "average", "module": normed}),
        ("regression", {"personal_what": "all", "lr": 0.01}),
        ("multilabel", {"clip": 1.0, "metric": "macro_f1"}),
    ],
)
def test_nodes_tune_and_score_the_copies_of_their_clients_as_in_simulation(task: str, settings: dict[str, Any]):
    x = rows()
    y, classes = targets(task, x), 3 if task == "classification" else None
    values = {"task": task, "client_eval": True, "client_test": 0.3, "personal": 2, "personal_what": "all", **settings}
    found, expected = (
        Grid(x, y, classes, **values).run(),
        simulated(x, y, ["a", "b", "c"] if classes else None, **values),
    )
    assert_same(found, expected)
    assert found.table is not None
    assert any(row.personal != row.score for row in found.table.rows)
    for name in ("client_scores", "personal_client_scores"):
        assert found.summary[name] == pytest.approx(expected.summary[name], rel=1e-9, nan_ok=True)
    assert "personal_accuracy" not in found.summary  # the server does not know the clients' mixes of classes


# -- scales ----------------------------------------------------------------------------------------------------------
def test_a_resumed_run_keeps_the_scales_it_was_started_with(tmp_path: Path):
    x = rows()
    y = targets("regression", x)
    settings = {"task": "regression", "client_eval": True}
    whole = Grid(x, y, **settings).run(out=str(tmp_path / "whole"))
    asked = Grid(x, y, **settings)
    config = Config(**asked.values)
    federation = server_federation((x, y), None, config)
    more = {**DEPLOYED, **asked.values, "out": str(tmp_path / "parts")}
    serve(asked.grid, config, more, federation, stop=lambda: True)
    asked.grid.sent.clear()
    resumed = serve(asked.grid, config, {**more, "resume": True}, federation)
    assert asked.requests(SUMS) == []
    assert len(resumed.history) == 3
    torch.testing.assert_close(resumed.w, whole.w, rtol=0, atol=0)
    assert resumed.history[-1].clients == whole.history[-1].clients
    assert resumed.facts == whole.facts


def test_published_scales_reach_the_nodes_and_off_sends_none():
    x, y = rows(), targets("", rows())
    config = Config(**SETTINGS, model="linear", method="fedavg")
    mean, std = x.mean(0).tolist(), x.std(0).tolist()
    grid = Grid(x, y, 3)
    federation = server_federation((x, y), None, config, 3, "published", (mean, std))
    found = serve(grid.grid, config, {**DEPLOYED, **grid.values}, federation)
    data = holdfast.from_arrays(x, y, x, y, groups=OWNERS, classes=["a", "b", "c"], mean=mean, std=std)
    values = {k: v for k, v in SETTINGS.items() if k != "clients"}
    assert_same(found, holdfast.run("fedavg", holdfast.federate(data), engine="loop", model="linear", **values))
    assert grid.requests(SUMS) == []
    assert all("scales" in m.content for m in grid.requests(TRAIN))
    plain = Grid(x / 1e4, y, 3)
    assert_same(plain.run("off"), simulated(x / 1e4, y, ["a", "b", "c"], normalise=False))
    assert plain.requests(SUMS) == []
    assert not any("scales" in m.content for m in plain.requests(TRAIN))


def test_a_node_that_joins_later_uses_the_same_scales():
    x, y = rows(), targets("", rows())
    grid = Grid(x, y, 3)
    trains = 0

    def restart(request: Message, reply: Message) -> Message:
        nonlocal trains
        trains += request.metadata.message_type == TRAIN
        if trains == 3:
            trains += 1
            for partition in range(4):
                grid.grid.stop(partition)
                grid.grid.start(partition)
        return reply

    grid.grid.trouble = restart
    assert_same(grid.run(), simulated(x, y, ["a", "b", "c"]))


# -- replies that cannot be true -------------------------------------------------------------------------------------
def spoilt(kind: str, name: str, value: float) -> Trouble:
    def trouble(request: Message, reply: Message) -> Message:
        if request.metadata.message_type != kind or 1 not in request.content["numbers"]["clients"]:
            return reply
        return changed(reply, **{f"1/{name}": np.full_like(reply.content["arrays"][f"1/{name}"].numpy(), value)})

    return trouble


@pytest.mark.parametrize(("name", "value"), [("values", 1.5), ("values", -0.1), ("samples", -3), ("items", 2**60)])
def test_impossible_scores_are_left_out(name: str, value: float, caplog: pytest.LogCaptureFixture):
    x, y = rows(), targets("", rows())
    found = Grid(x, y, 3, spoilt(SCORE, name, value), client_eval=True, rounds=1).run()
    assert caplog.messages == ["1 of 4 clients have no score: client 1: refused: its score is not possible"]
    assert list(found.client_scores()) == ["0", "2", "3"]
    assert found.history[0].clients["scored"] == 3
    assert found.history[0].failed == {}


def test_impossible_scores_of_copies_are_left_out(caplog: pytest.LogCaptureFixture):
    x, y = rows(), targets("", rows())
    found = Grid(x, y, 3, spoilt(PERSONAL, "values", 1.5), client_eval=True, personal=1, rounds=1).run()
    assert caplog.messages == ["1 of 4 clients have no fine-tuned copy: client 1: refused: its score is not possible"]
    assert found.table is not None
    assert [row.personal is None for row in found.table.rows] == [False, True, False, False]
    assert found.summary["personal_client_scores"]["scored"] == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs/n", -1.0), ("inputs/n", 0.5), ("inputs/shift", np.inf), ("inputs/rest", np.nan),
        ("inputs/squares", -1.0),
    ],
)  # fmt: skip
def test_impossible_sums_are_left_out(name: str, value: float, caplog: pytest.LogCaptureFixture):
    x, y = rows(), targets("", rows())
    found = Grid(x, y, 3, spoilt(SUMS, name, value), rounds=1).run()
    assert caplog.messages == ["1 of 4 clients are not in the statistics: client 1: refused: its sums are not possible"]
    others = x.astype(np.float32).astype(float)[OWNERS != 1]
    assert found.facts.mean == pytest.approx(others.mean(0), rel=1e-12)


def test_a_node_with_data_for_another_task_is_refused(caplog: pytest.LogCaptureFixture):
    x = rows()
    y = targets("", x)
    grid = Grid(x, y, 3, rounds=1)
    real = grid.read

    def read(client: int, node: object) -> tuple[Any, Any]:
        own, labels = real(client, node)
        return (own, labels + 0.5) if client == 1 else (own, labels)

    grid.grid.app = client_app(read, classes=3)
    found = grid.run()
    assert "node 1002 is refused: its data is for regression, the server's for classification" in caplog.messages
    assert found.history[0].failed.keys() <= {1}


def test_mistakes_in_own_data_are_named():
    config = Config(**SETTINGS)
    x, y = rows(), targets("", rows())
    with raises_exactly(
        "client_app and server_app do not know the number of classes of your own data: set it with classes="
    ):
        node_federation({0: (x, y)}, config)
    with raises_exactly(
        "client_app and server_app do not know the number of tokens of your own data: set it with classes="
    ):
        node_federation({0: (x.astype(int), x.astype(int))}, Config(**SETTINGS, task="next-token"))
    with raises_exactly(
        "normalise must be federated, published or off where nodes bring their own data, not pooled; use one of them"
    ):
        server_federation((x, y), None, config, 3, "pooled")
    with raises_exactly(
        "normalise=published needs mean and std with 4 numbers each, one per channel or feature, with std above 0; "
        "give both"
    ):
        server_federation((x, y), None, config, 3, "published", ([0.0], [1.0]))
    with raises_exactly("mean and std are given, but normalise is federated; use normalise=published"):
        server_federation((x, y), None, config, 3, "federated", ([0.0] * 4, [1.0] * 4))
    with raises_exactly("test samples of client 0: 72 samples have 71 labels: return one label per sample"):
        node_federation({0: (x, y)}, Config(**SETTINGS, client_eval=True), 3, (), {0: (x, y[1:])})
