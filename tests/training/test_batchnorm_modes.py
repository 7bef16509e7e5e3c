"""How BatchNorm is federated, against a federation written in plain PyTorch: averaged, local to clients, frozen."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import holdfast
from helpers.exact_errors import raises_exactly
from helpers.reference_batchnorm import (
    BATCH,
    EPOCHS,
    FEDERATION,
    LR,
    SIZES,
    ByHand,
    State,
    Trainee,
    is_norm,
    net,
    on_mix,
    plain_step,
)
from holdfast import Part, Round, Tensors
from holdfast.testing.toy_runs import known
from holdfast.training.personal import own_model
from holdfast.training.simulation import Simulation

ENGINES = ("loop", "vector")
MODES = ("average", "local", "frozen")
SETTINGS: dict[str, Any] = {
    "rounds": 3, "cohort": 3, "epochs": EPOCHS, "batch": BATCH, "lr": LR, "precision": "fp64", "device": "cpu",
    "compile": False,
}  # fmt: skip
every_mode = pytest.mark.parametrize("mode", MODES)
every_engine = pytest.mark.parametrize("engine", ENGINES)


def played(method: str | Part, mode: str, **settings: Any) -> tuple[holdfast.Result, Simulation]:
    """A run, and the simulation that it leaves."""
    found: list[Any] = []
    result = holdfast.run(
        method, FEDERATION, net(), batchnorm=mode, on_start=lambda trainer, _: found.append(trainer),
        **SETTINGS | settings,
    )  # fmt: skip
    return result, found[0]


def client_state(simulation: Simulation, client: int) -> State:
    """The whole state of a client's own model under ``local``."""
    served = simulation.server.served()
    rows = simulation.clients.gather([client], served)["batchnorm"]
    own, w = own_model(simulation.net, served, {name: t[0] for name, t in rows.items()})
    return own.state_dict(w)


def assert_same(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    for name, t in expected.items():
        assert found[name].dtype == t.dtype, name
        torch.testing.assert_close(found[name], t, rtol=0, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


def assert_reference(result: holdfast.Result, simulation: Simulation, expected: ByHand) -> None:
    """The run ended where the reference ends when it plays the same cohorts; every round has the same scores."""
    for record in result.history:
        expected.play(record.cohort)
        accuracy, loss = expected.scores()
        assert record.test_accuracy == pytest.approx(accuracy, abs=1e-12)
        assert record.test_loss == pytest.approx(loss, abs=1e-9)
    if expected.mode == "local":
        for i in range(len(SIZES)):
            assert_same(client_state(simulation, i), expected.model_of(i).state_dict())
    else:
        assert_same(result.model.state_dict(), expected.shared)
    assert_same(result.state_dict(), expected.shared)  # under local the server's BatchNorm layers never move


# -- the three modes -------------------------------------------------------------------------------------------------
@every_engine
@every_mode
@pytest.mark.parametrize("method", ["fedavg", "mean(uniform)"])
def test_a_federation_of_modules(method: str, mode: str, engine: str):
    result, simulation = played(method, mode, engine=engine)
    assert_reference(result, simulation, ByHand(mode, uniform=method != "fedavg"))
    before, after = net().state_dict(), result.state_dict()
    moved = {n for n, t in after.items() if is_norm(n) and not torch.equal(t, before[n])}
    statistics = {n for n in before if "running" in n or "tracked" in n}
    assert bool(moved & statistics) == (mode == "average")


@every_engine
@every_mode
def test_clients_that_are_drawn_again_and_clients_that_never_are(mode: str, engine: str):
    """Two of five clients in six rounds."""
    result, simulation = played("fedavg", mode, engine=engine, cohort=2, rounds=6)
    drawn = [i for r in result.history for i in r.cohort]
    assert max(map(drawn.count, drawn)) > 1
    assert_reference(result, simulation, ByHand(mode))


# A bias before BatchNorm has the gradient zero up to rounding, which Adam divides by itself: a large eps hides that.
OPTIMISERS = {
    "momentum(0.9, nesterov=true)": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam(eps=0.001)": partial(torch.optim.Adam, eps=0.001),
    "adamw(eps=0.001, decay=0.1)": partial(torch.optim.AdamW, eps=0.001, weight_decay=0.1),
}


@every_engine
@every_mode
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_federation_of_modules_with_optimisers(optimiser: str, mode: str, engine: str):
    result, simulation = played("fedavg", mode, engine=engine, optimizer=optimiser, lr=0.02)
    assert_reference(result, simulation, ByHand(mode, optimiser=OPTIMISERS[optimiser], lr=0.02))


class Controlled(ByHand):
    """SCAFFOLD; under ``local`` the BatchNorm layers have no control variates."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode, step=self.controlled_step)
        names = [n for n, _ in net().named_parameters() if mode != "local" or not is_norm(n)]
        self.control = {n: torch.zeros_like(net().get_parameter(n)) for n in names}
        self.controls: dict[int, State] = {}
        self.seen: dict[int, list[State]] = {}

    def controlled_step(self, trainee: Trainee, x: Tensor, y: Tensor) -> None:
        trainee.optimiser.zero_grad()
        F.cross_entropy(trainee.module(x), y).backward()
        parameters = {n: trainee.module.get_parameter(n) for n in self.control}
        self.seen.setdefault(trainee.id, []).append({n: p.grad.clone() for n, p in parameters.items()})
        for name, p in parameters.items():
            own = self.controls.get(trainee.id)
            p.grad += self.control[name] - (0 if own is None else own[name])
        trainee.optimiser.step()

    def play(self, cohort: list[int]) -> None:
        super().play(cohort)
        for i in cohort:
            new = {n: torch.stack([g[n] for g in self.seen[i]]).mean(0) for n in self.control}
            for name in self.control:
                old = self.controls[i][name] if i in self.controls else 0
                self.control[name] = self.control[name] + (new[name] - old) / len(SIZES)
            self.controls[i] = new
        self.seen = {}


@every_engine
@every_mode
def test_scaffold(mode: str, engine: str):
    result, simulation = played("scaffold", mode, engine=engine, rounds=4)
    assert_reference(result, simulation, Controlled(mode))


@every_mode
@pytest.mark.parametrize("length", [{"epochs": "1-3"}, {"steps": 5, "epochs": None}])
def test_engines_agree_whatever_the_length_of_a_round(mode: str, length: dict[str, Any]):
    _, loop = played("scaffold+momentum(0.5, keep=true)", mode, engine="loop", **length)
    _, vector = played("scaffold+momentum(0.5, keep=true)", mode, engine="vector", **length)
    assert_same(known(vector), known(loop))


@every_mode
def test_slices_change_nothing(mode: str):
    whole, simulation = played("scaffold", mode, engine="vector")
    sliced, other = played("scaffold", mode, engine="vector", slice=1)
    assert_same(known(other), known(simulation))
    assert [r.train_loss for r in sliced.history] == pytest.approx([r.train_loss for r in whole.history], abs=1e-12)


@every_mode
@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_moves(mode: str, engine: str):
    """With a learning rate that is nothing, weights stay; averaged statistics follow the data all the same."""
    result, simulation = played("fedavg", mode, engine=engine, lr=1e-300)
    before = net().state_dict()
    moved = {n for n, t in result.state_dict().items() if not torch.equal(t, before[n])}
    statistics = {f"{layer}.{n}" for layer in ("norm", "late") for n in ("running_mean", "running_var")}
    counters = {"norm.num_batches_tracked", "late.num_batches_tracked"}
    assert moved == (statistics | counters if mode == "average" else set())
    assert_reference(result, simulation, ByHand(mode, lr=1e-300))


# -- what must not touch the statistics ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "settings", "uniform"),
    [
        ("fedavg", {"server_lr": 0.3}, False), ("fedadam", {}, False), ("fedavgm", {}, False), ("nova", {}, False),
        ("latest", {}, False), ("normalized", {}, True), ("fedexp", {}, True), ("feddyn(0.1)", {}, True),
    ],
)  # fmt: skip
def test_no_server_step_touches_statistics(method: str, settings: dict[str, Any], uniform: bool):
    """After one round the clients' training is that of FedAvg, and so is the mean of their statistics."""
    result, _ = played(method, "average", engine="loop", rounds=1, **settings)
    expected = ByHand("average", uniform=uniform, step=proximal(0.1) if "feddyn" in method else plain_step)
    expected.play(result.history[0].cohort)
    found = result.state_dict()
    for name in found:
        if "running" in name or "tracked" in name:
            torch.testing.assert_close(found[name], expected.shared[name], rtol=0, atol=1e-10)
    steps_alike = method == "fedavgm"  # whose velocity is still zero
    assert torch.allclose(found["conv.weight"], expected.shared["conv.weight"], atol=1e-8) == steps_alike


def proximal(alpha: float) -> Any:
    """FedDyn's step in the first round, when the client's gradient of the past is still zero."""

    def step(trainee: Trainee, x: Tensor, y: Tensor) -> None:
        trainee.optimiser.zero_grad()
        F.cross_entropy(trainee.module(x), y).backward()
        for name, p in trainee.module.named_parameters():
            p.grad += alpha * (p.detach() - trainee.start[name])
        trainee.optimiser.step()

    return step


def sharp(trainee: Trainee, x: Tensor, y: Tensor) -> None:
    """SAM: the second gradient sees the batch again, but its running statistics are thrown away."""
    module, rho = trainee.module, 0.3
    module.zero_grad()
    F.cross_entropy(module(x), y).backward()
    kept = {n: b.clone() for n, b in module.named_buffers()}
    start = {n: p.detach().clone() for n, p in module.named_parameters()}
    norm = torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
    with torch.no_grad():
        for p in module.parameters():
            p += rho * p.grad / norm
    module.zero_grad()
    F.cross_entropy(module(x), y).backward()
    module.load_state_dict(start | kept)
    trainee.optimiser.step()


@every_engine
@every_mode
def test_the_second_gradient_of_sam_does_not_count(mode: str, engine: str):
    result, simulation = played("sam(0.3)", mode, engine=engine)
    assert_reference(result, simulation, ByHand(mode, step=sharp))


class Contrast:
    """MOON's step: both other models run with the statistics of the start of the round, and do not update them."""

    def __init__(self, mu: float, temperature: float) -> None:
        self.mu, self.temperature = mu, temperature
        self.last: dict[int, State] = {}  # the parameters with which a client ended its last round
        self.now: dict[int, State] = {}
        self.begun: dict[int, State] = {}  # with what its current round started

    def __call__(self, trainee: Trainee, x: Tensor, y: Tensor) -> None:
        if self.begun.get(trainee.id) is not trainee.start:
            self.begun[trainee.id] = trainee.start
            self.last[trainee.id] = self.now.get(trainee.id, trainee.start)
        teachers = []
        for parameters in (trainee.start, self.last[trainee.id]):
            teacher = net()
            teacher.load_state_dict(trainee.start | {n: t for n, t in parameters.items() if weights(n)})
            teachers.append(teacher.eval().features(x).detach())
        trainee.optimiser.zero_grad()
        z = trainee.module.features(x)
        near, old = (torch.exp(F.cosine_similarity(z, t) / self.temperature) for t in teachers)
        loss = F.cross_entropy(trainee.module.head(z), y) - self.mu * torch.log(near / (near + old)).mean()
        loss.backward()
        trainee.optimiser.step()
        self.now[trainee.id] = copy.deepcopy(trainee.module.state_dict())


def weights(name: str) -> bool:
    return "running" not in name and "tracked" not in name


@every_engine
@every_mode
def test_teachers_use_the_statistics_of_the_round_and_leave_them(mode: str, engine: str):
    result, simulation = played("moon(mu=2.0, T=0.5)", mode, engine=engine, cohort=4, rounds=4)
    assert_reference(result, simulation, ByHand(mode, step=Contrast(2.0, 0.5)))


@every_engine
@pytest.mark.parametrize("method", ["moon(mu=0)", "hyperbolic(gamma=0)"])
def test_teachers_without_strength_change_nothing(method: str, engine: str):
    result, simulation = played(method, "average", engine=engine)
    assert_reference(result, simulation, ByHand("average"))


@dataclass(frozen=True)
class NoteTuning(Part):
    """Notes with which statistics the server tunes the model."""

    name = "toy-note-tuning"
    internal: ClassVar[bool] = True
    seen: ClassVar[list[State]] = []

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        self.seen.append(r.net.state_dict(w))
        return w, {}


def test_the_server_tunes_the_model_with_its_new_statistics():
    NoteTuning.seen.clear()
    result, _ = played(NoteTuning(), "average", rounds=2)
    expected = ByHand("average")
    for record, seen in zip(result.history, NoteTuning.seen, strict=True):
        expected.play(record.cohort)
        assert_same(seen, expected.shared)


def test_drift_measures_the_model_that_is_evaluated():
    """The norm of a class's features, with the statistics after the round."""
    result, _ = played("fedavg", "average", rounds=2, drift=True)
    expected, data = ByHand("average"), FEDERATION.data
    for record in result.history:
        expected.play(record.cohort)
        for c in range(3):
            x = data.test_x[data.test_y == c][:10]
            with torch.no_grad():
                norm = expected.model_of(0).eval().features(x).norm(dim=1).mean()
            assert record.drift[f"feature_norm_{c}"] == pytest.approx(float(norm), abs=1e-9)


# -- personal copies -------------------------------------------------------------------------------------------------
@every_engine
@every_mode
@pytest.mark.parametrize("what", ["all", "head"])
def test_personal_copies(mode: str, what: str, engine: str):
    """Each client tunes its own model for two epochs; the statistics of its copy follow its data."""
    result, _ = played("fedavg", mode, engine=engine, personal=2, personal_what=what)

    def step(trainee: Trainee, x: Tensor, y: Tensor) -> None:
        trainee.optimiser.zero_grad()
        F.cross_entropy(trainee.module(x), y).backward()
        for name, p in trainee.module.named_parameters():
            if what == "head" and not name.startswith("head"):
                p.grad = None
        trainee.optimiser.step()

    expected = ByHand(mode)
    for record in result.history:
        expected.play(record.cohort)
    expected.step = step
    own, shared = [], []
    for i in range(len(SIZES)):
        copy_of = net()
        copy_of.load_state_dict(expected.trained(i, len(result.history) + 1, 2))
        own.append(on_mix(copy_of, i)[0])
        shared.append(on_mix(expected.model_of(i), i)[0])
    assert result.summary["personal_accuracy"] == pytest.approx(sum(own) / len(own), abs=1e-12)
    assert result.summary["global_on_mix"] == pytest.approx(sum(shared) / len(shared), abs=1e-12)


# -- resuming --------------------------------------------------------------------------------------------------------
class Stop(Exception):
    """Ends a run in the middle."""


@every_mode
@pytest.mark.parametrize("states", ["memory", "disk"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold+sam"])
def test_a_stopped_run_is_resumed(mode: str, states: str, method: str, tmp_path: Path):
    whole, expected = played(method, mode, rounds=4, engine="vector")

    def stop(record: Any) -> None:
        if record.round == 2:
            raise Stop

    some: dict[str, Any] = {"rounds": 4, "engine": "vector", "states": states, "out": tmp_path / "run"}
    with pytest.raises(Stop):
        played(method, mode, on_round=stop, **some)
    result, simulation = played(method, mode, resume=True, **some)
    assert [r.test_loss for r in result.history] == [r.test_loss for r in whole.history]
    assert result.history[2].round == 3
    mine, theirs = known_rows(simulation), known_rows(expected)
    assert mine.keys() == theirs.keys()
    for name, t in theirs.items():
        assert torch.equal(mine[name], t), name
        assert mine[name].dtype == t.dtype


def known_rows(simulation: Simulation) -> State:
    """Everything that the next round may depend on; states on disk are read."""
    found = {"w": simulation.server.w}
    found |= {f"{p}/{k}": t for p, state in simulation.server.states.items() for k, t in state.items()}
    for i in range(len(SIZES)):
        rows = simulation.clients.gather([i], simulation.server.w)
        found |= {f"{i}/{p}/{k}": t for p, state in rows.items() for k, t in state.items()}
    return found


# -- traffic ---------------------------------------------------------------------------------------------------------
PARAMETERS = 3 * 9 + 3 + 6 + 12 + 8 + 16 * 3 + 3  # conv, norm, mix, late, head
AFFINE, RUNNING, COUNTERS = 6 + 8, 6 + 8, 2


@pytest.mark.parametrize(
    ("mode", "method", "up", "down"),
    [
        ("average", "fedavg", 8 * (PARAMETERS + RUNNING + COUNTERS), 8 * (PARAMETERS + RUNNING + COUNTERS)),
        ("local", "fedavg", 8 * (PARAMETERS - AFFINE), 8 * (PARAMETERS - AFFINE)),
        ("frozen", "fedavg", 8 * PARAMETERS, 8 * PARAMETERS),
        ("frozen", "scaffold", 16 * PARAMETERS, 16 * PARAMETERS),
    ],
)
def test_traffic_by_hand(mode: str, method: str, up: int, down: int):
    result, _ = played(method, mode, engine="loop", rounds=1)
    assert (result.history[0].upload_bytes, result.history[0].download_bytes) == (3 * up, 3 * down)


def test_frozen_parameters_do_not_travel():
    module = net()
    module.conv.requires_grad_(False)
    module.late.requires_grad_(False)
    result = holdfast.run("fedavg", FEDERATION, module, **SETTINGS | {"rounds": 1})
    trained = PARAMETERS - (27 + 3) - 8
    assert result.history[0].upload_bytes == 3 * 8 * (trained + RUNNING + COUNTERS)
    assert result.history[0].download_bytes == 3 * 8 * (trained + RUNNING + COUNTERS)


def test_a_federation_of_which_no_class_is_tested():
    """There is no score then, and the run goes on."""
    data = replace(FEDERATION.data, y=FEDERATION.data.y % 2, test_y=torch.full_like(FEDERATION.data.test_y, 2))
    federation = holdfast.federate(data, "given", clients=len(SIZES))
    result = holdfast.run("fedavg", federation, net(), batchnorm="local", **SETTINGS | {"rounds": 1})
    assert result.history[0].test == {"accuracy": None, "loss": None}


# -- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "does"),
    [
        ("ccvr", "ccvr measures the global model"),
        ("fnr", "fnr trains clients a second time"),
        ("feddf", "feddf trains the global model at the server"),
        ("fedftg", "fedftg trains the global model at the server"),
        ("fedagg(mode=fixed_point)", "fedagg asks for gradients of the global model"),
    ],
)
def test_sums_that_need_a_whole_global_model_are_refused(method: str, does: str):
    data = holdfast.federate(FEDERATION.data, "given", clients=len(SIZES), public=0.2)
    with raises_exactly(f"{does}, but with batchnorm local no such model exists; use --batchnorm average or frozen"):
        holdfast.run(method, data, net(), batchnorm="local", **SETTINGS)


def test_there_is_no_model_to_predict_with():
    result, _ = played("fedavg", "local", rounds=1)
    message = (
        "with batchnorm local every client has its own model, and the server has none: use --batchnorm average or "
        "frozen for a model of all clients"
    )
    x = FEDERATION.data.test_x
    for use in (result.predict, result.predict_proba):
        with raises_exactly(message):
            use(x)
    with raises_exactly(message):
        _ = result.model
