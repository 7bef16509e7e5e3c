"""Any model on Flower: BatchNorm in its three modes, frozen parameters, tokens, several inputs; as in simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch import Tensor, nn

import holdfast
from helpers.any_models import CLASSES, MODELS, LowRank, build
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import MemoryGrid, Trouble, about, changed
from holdfast.flower.app import client_app, serve
from holdfast.flower.messages import SCORE
from holdfast.flower.node_data import node_federation, server_federation
from holdfast.method.config import FIELDS, Config

SIZES = (7, 4, 9, 5)
SETTINGS: dict[str, Any] = {
    "clients": 4, "cohort": 3, "epochs": 2, "rounds": 3, "batch": 4, "lr": 0.1, "precision": "fp64", "device": "cpu",
}  # fmt: skip
DEPLOYED = {"nodes": 4, "patience": 1.0, "timeout": 0.3}
DIGITS: dict[str, Any] = SETTINGS | {"data": "digits", "split": "dirichlet(0.5)", "batch": 64}


def same(trouble: Message, reply: Message) -> Message:
    return reply


def normed() -> nn.Module:
    """Two BatchNorm layers for images of digits, one with a cumulative mean."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 8),
        nn.BatchNorm1d(8, momentum=None), nn.Tanh(), nn.Linear(8, 10),
    )  # fmt: skip


def low_rank() -> nn.Module:
    """A frozen backbone with low-rank corrections, frozen BatchNorm parameters and a trained head."""
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Flatten(), LowRank(nn.Linear(64, 8)), nn.BatchNorm1d(8).requires_grad_(False), nn.Tanh(), nn.Linear(8, 10)
    )


def on_digits(
    method: str, model: Callable[[], nn.Module], trouble: Trouble = same, **settings: Any
) -> tuple[holdfast.Result, MemoryGrid]:
    """A run on nodes that split the digits themselves."""
    values = {**DIGITS, **settings}
    grid = MemoryGrid({**values, "method": method}, 4, trouble)
    grid.app = client_app(model=model)
    config = Config(**{k: v for k, v in values.items() if k in FIELDS}, method=method)
    return serve(grid, config, {**DEPLOYED, **values, "method": method}, model=model), grid


def assert_same(found: holdfast.Result, expected: holdfast.Result) -> None:
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.skipped, a.failed, a.reset) == (b.cohort, [], {}, [])
        assert (a.upload_bytes, a.download_bytes) == (b.upload_bytes, b.download_bytes)
        assert a.train_loss == pytest.approx(b.train_loss, abs=1e-10)
        assert a.test_loss == pytest.approx(b.test_loss, abs=1e-10)
        assert a.test_accuracy == pytest.approx(b.test_accuracy, abs=1e-10)
    mine, theirs = found.state_dict(), expected.state_dict()
    assert mine.keys() == theirs.keys()
    for name, t in theirs.items():
        assert mine[name].dtype == t.dtype
        torch.testing.assert_close(mine[name], t, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mode", ["average", "local", "frozen"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_batchnorm_as_in_simulation(method: str, mode: str):
    found, grid = on_digits(method, normed, batchnorm=mode)
    assert_same(found, holdfast.run(method, model=normed, engine="loop", batchnorm=mode, **DIGITS))
    assert all(r.overhead >= 0 for r in found.history)
    sent = [set(m.content["model"]) for m in grid.sent if m.metadata.message_type == "train"]
    statistics = {"running", "batches"} if mode == "average" else set()
    assert all(names == {"w"} | statistics for names in sent)


@pytest.mark.parametrize(
    "method", ["sam+moon", "fnr(epochs=1)", "feddf(steps=3)", "fedagg(mode=fixed_point, sweeps=1)"]
)
def test_every_kind_of_request_carries_the_statistics(method: str):
    """Local training with teachers, further trips, tuning at the server, a survey, gradients."""
    settings = {"rounds": 2, "public": 0.05 if method.startswith(("fnr", "feddf")) else 0.0}
    found, _ = on_digits(method, normed, **settings)
    assert_same(found, holdfast.run(method, model=normed, engine="loop", **DIGITS | settings))


def test_running_statistics_are_in_a_secure_sum():
    """To the rounding of the sum: three halves of 2^-32 in each round, which training may multiply."""
    found, _ = on_digits("scaffold", normed, secure=True, batchnorm="average")
    plain = holdfast.run("scaffold", model=normed, engine="loop", batchnorm="average", **DIGITS)
    for name, t in plain.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], t, rtol=0, atol=1e-8)


@pytest.mark.parametrize("mode", ["average", "local"])
def test_a_frozen_backbone_stays_where_it_is(mode: str):
    found, grid = on_digits("scaffold", low_rank, batchnorm=mode)
    assert_same(found, holdfast.run("scaffold", model=low_rank, engine="loop", batchnorm=mode, **DIGITS))
    (size,) = {m.content["model"]["w"].numpy().size for m in grid.sent if m.metadata.message_type == "train"}
    assert size == sum(p.numel() for p in low_rank().parameters() if p.requires_grad)
    start, end = low_rank().state_dict(), found.state_dict()
    assert all(torch.equal(start[n].double(), end[n]) for n in ("1.base.weight", "2.weight", "2.bias"))


# -- replies that cannot be true -------------------------------------------------------------------------------------
def spoilt(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Trouble:
    """Client 1 sends other statistics in the first round."""

    def trouble(request: Message, reply: Message) -> Message:
        if not about(request, 1, 1):
            return reply
        where = f"1/uploads/batchnorm/{name}"
        return changed(reply, **{where: change(reply.content["arrays"][where].numpy())})

    return trouble


def below_zero(first: int, last: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        place = np.arange(len(values))
        return np.where((first <= place) & (place < last), -0.1, values)

    return change


@pytest.mark.parametrize(
    "trouble",
    [spoilt("running", below_zero(4, 5)), spoilt("running", below_zero(23, 24)), spoilt("batches", lambda b: b - 100)],
)
def test_impossible_statistics_are_refused(trouble: Trouble):
    """A variance of the first layer, one of the second, a count."""
    found, _ = on_digits("fedavg", normed, trouble, cohort=4, rounds=1)
    assert found.history[0].failed == {1: "refused: its running statistics are not possible"}


def test_a_mean_may_be_negative():
    found, _ = on_digits("fedavg", normed, spoilt("running", below_zero(0, 4)), cohort=4, rounds=1)
    assert found.history[0].failed == {}


@pytest.mark.parametrize(("name", "value"), [("accuracy", 1.5), ("by_class", -0.1), ("loss", -2.0)])
def test_an_impossible_score_of_a_client_is_left_out(name: str, value: float, caplog: pytest.LogCaptureFixture):
    """Under ``local`` clients score their own models; what a round records is about its training alone."""

    def trouble(request: Message, reply: Message) -> Message:
        if request.metadata.message_type != SCORE or 1 not in request.content["numbers"]["clients"]:
            return reply
        return changed(reply, **{f"1/{name}": np.full_like(reply.content["arrays"][f"1/{name}"].numpy(), value)})

    settings = {"batchnorm": "local", "rounds": 2, "cohort": 1}
    spoilt_run, _ = on_digits("fedavg", normed, trouble, **settings)
    assert [r.failed for r in spoilt_run.history] == [{}, {}]
    assert caplog.messages == ["1 of 4 clients have no score: client 1: refused: its score is not possible"] * 2
    trainers: list[Any] = []
    expected = holdfast.run(
        "fedavg", model=normed, engine="loop", on_start=lambda t, _: trainers.append(t), **DIGITS | settings
    )
    w = trainers[0].server.served()
    scores = [trainers[0].client_score(i, w) for i in (0, 2, 3)]
    assert spoilt_run.history[1].test_loss == pytest.approx(sum(s.loss for s in scores) / 3, abs=1e-10)
    assert spoilt_run.history[1].test_loss != expected.history[1].test_loss


# -- data of the nodes' own ------------------------------------------------------------------------------------------
def samples(name: str) -> tuple[Any, Tensor]:
    """All samples and labels of a small problem."""
    g = torch.Generator().manual_seed(5)
    n = sum(SIZES)
    ids = torch.randint(0, 11, (n, 6), generator=g)
    y = ids[:, 0] % CLASSES
    if name == "several inputs":
        mask = (torch.arange(6) < torch.randint(2, 7, (n, 1), generator=g)).long()
        return {"input_ids": ids, "attention_mask": mask}, y
    if name == "transformer":
        return ids, y
    return torch.randn(n, 1, 6, 6, generator=g), y


class TwoInputs(nn.Module):
    """A row of numbers and a token, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.row, self.norm = nn.Embedding(11, 4), nn.Linear(36, 4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, row: Tensor, token: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.row(row) + self.kind(token[:, 0]))))


def taken(x: Any, at: Any) -> Any:
    if isinstance(x, dict):
        return {name: t[at] for name, t in x.items()}
    return tuple(t[at] for t in x) if isinstance(x, tuple) else x[at]


def of_nodes(
    method: str, model: Callable[[], nn.Module], x: Any, y: Tensor, normalise: str = "off", **settings: Any
) -> holdfast.Result:
    """A run on nodes that bring their own samples; the server tests on all of them."""
    bounds = np.cumsum([0, *SIZES])

    def data(client: int, node: object) -> tuple[Any, Tensor]:
        own = slice(bounds[client], bounds[client + 1])
        return taken(x, own), y[own]

    values = {**SETTINGS, **settings}
    grid = MemoryGrid({**values, "method": method}, 4)
    grid.app = client_app(data, model=model, classes=CLASSES)
    config = Config(**values, method=method)
    federation = server_federation((x, y), None, config, CLASSES, normalise)
    return serve(grid, config, {**DEPLOYED, **values, "method": method}, federation, model)


def simulated(method: str, model: Callable[[], nn.Module], x: Any, y: Tensor, **settings: Any) -> holdfast.Result:
    groups = torch.repeat_interleave(torch.arange(4), torch.tensor(SIZES))
    data = holdfast.from_arrays(x, y, x, y, groups=groups, classes=["a", "b", "c"], normalise=False)
    values = {k: v for k, v in {**SETTINGS, **settings}.items() if k != "clients"}
    return holdfast.run(method, holdfast.federate(data, "given", clients=4), model, engine="loop", **values)


@pytest.mark.parametrize("name", MODELS)
def test_nodes_bring_samples_of_every_kind(name: str):
    x, y = samples(name)

    def model() -> nn.Module:
        return build(name)

    assert_same(of_nodes("scaffold", model, x, y), simulated("scaffold", model, x, y))


def test_nodes_bring_several_inputs_in_order():
    rows, y = samples("rows")
    x = rows.flatten(1), samples("transformer")[0][:, :1]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = TwoInputs()
    state = module.state_dict()

    def model() -> nn.Module:
        made = TwoInputs()
        made.load_state_dict(state)
        return made

    assert_same(of_nodes("fedavg", model, x, y), simulated("fedavg", model, x, y))


def test_samples_of_a_node_that_differ_are_refused():
    x, y = samples("several inputs")
    config = Config(**SETTINGS)
    with raises_exactly(
        "x of client 0 and x of client 2 differ in the names, types or shapes of their inputs; give both the same"
    ):
        node_federation({0: (x, y), 2: (x["input_ids"], y)}, config, CLASSES)
    with raises_exactly(
        "x of client 2 has samples of torch.int64 [3] and x of client 0 of torch.int64 [6]; give all the same type and "
        "shape"
    ):
        node_federation({2: (x["input_ids"][:, :3], y), 0: (x["input_ids"], y)}, config, CLASSES)
    with raises_exactly("client 0 has 25 samples and 24 labels: return one label per sample, and at least one sample"):
        node_federation({0: (x, y[:24])}, config, CLASSES)
    with raises_exactly("test x and public x differ in the names, types or shapes of their inputs; give both the same"):
        server_federation((x, y), (x["input_ids"], y), config, CLASSES)


def test_local_layers_need_test_data_on_the_nodes():
    x, y = samples("batchnorm")
    with raises_exactly(
        "with batchnorm local every client's model is scored on its own test samples where nodes bring their own data: "
        "add --client-eval"
    ):
        of_nodes("fedavg", lambda: build("batchnorm"), x, y, batchnorm="local")
