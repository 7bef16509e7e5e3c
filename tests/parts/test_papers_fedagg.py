"""FedAgg against its equations: both modes, the linear system, the rates over many rounds, traffic, hand cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import reference_papers as ref
from helpers.paper_problems import SETTINGS, assert_follows, batches_of, every_engine, every_problem, network, start
from helpers.reference_fedagg import aggregated_round
from helpers.toys import FEDERATION, assert_close, train
from holdfast import DataSet, Federation, HoldfastError, federate
from holdfast.parts.fedagg import FedAgg, solve, system, tail_rate, walk


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.fixture
def rates(monkeypatch) -> list[tuple[int, int, int, float]]:
    """(round, client, epoch, rate) of all that the loop engine trains."""
    found: list[tuple[int, int, int, float]] = []
    real = FedAgg.epoch

    def epoch(self, c, w):
        scratch = real(self, c, w)
        found.append((int(c.round), int(c.id), int(c.epoch), float(scratch["eta"])))
        return scratch

    monkeypatch.setattr(FedAgg, "epoch", epoch)
    return found


# -- both modes against the reference --------------------------------------------------------------------------------
class Feedback:
    """The reference, which hands each round's mean gradients to the next; ``rates`` is all it applied."""

    def __init__(self, play: Callable[..., ref.AggRound] = ref.fedagg_feedback_round, **how: object) -> None:
        self.play, self.how, self.phi1, self.rates = play, how, None, []

    def __call__(self, layers: ref.Layers, batches: ref.Batches, lr: float, t: int, cohort: list[int]) -> Tensor:
        r = self.play(layers, batches, lr, self.phi1, **self.how)
        self.phi1 = r.phi1
        self.rates += [(t, i, e, eta) for i, row in zip(cohort, r.rates, strict=True) for e, eta in enumerate(row)]
        return r.w


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "how"),
    [
        ("fedagg", {"min_rate": 1e-3, "max_rate": 0.5}),
        ("fedagg(0.5, min_rate=0, max_rate=0.99)", {"alpha": 0.5, "min_rate": 0.0, "max_rate": 0.99}),
        ("fedagg(min_rate=0.1, max_rate=0.25)", {"min_rate": 0.1, "max_rate": 0.25}),
    ],
    ids=["default", "hardly clipped", "clipped"],
)
def test_feedback_agrees_with_the_reference(sum, how, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **(SETTINGS | {"epochs": 3}))
    reference = Feedback(**how)
    assert_follows(ran, layers, reference, epochs=3)
    torch.testing.assert_close(ran.after[-1]["fedagg/phi1"], reference.phi1, rtol=1e-9, atol=1e-11)


@every_engine
def test_without_bounds_it_agrees_with_the_reference(engine):
    layers, sum = ref.random_layers((3, 5, 4, 3), seed=0), "fedagg(min_rate=none, max_rate=none)"
    ran = train(sum, FEDERATION, network(layers), engine=engine, **(SETTINGS | {"epochs": 3}))
    reference = Feedback(min_rate=-math.inf, max_rate=math.inf)
    assert_follows(ran, layers, reference, epochs=3, relative=1e-10)
    assert min(row[3] for row in reference.rates) < 0
    assert max(row[3] for row in reference.rates) > 0.5


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "how"),
    [
        ("fedagg(mode=aggregated)", {"bounds": (1e-3, 0.5)}),
        ("fedagg(0.5, mode=aggregated, min_rate=none, max_rate=none)", {"alpha": 0.5, "bounds": (-10.0, 10.0)}),
    ],
    ids=["default", "unclipped"],
)
def test_along_the_aggregated_gradient_it_agrees_with_the_reference(sum, how, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **(SETTINGS | {"epochs": 3}))
    reference = Feedback(aggregated_round, **how)
    assert_follows(ran, layers, reference, epochs=3, relative=1e-10)
    torch.testing.assert_close(ran.after[-1]["fedagg/phi1"], reference.phi1, rtol=1e-9, atol=1e-11)
    assert len({rate for round, _, epoch, rate in reference.rates if (round, epoch) == (4, 2)}) == 1  # all move alike


def test_the_rates_applied_are_the_references(rates):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    reference = Feedback(min_rate=0.05, max_rate=0.4)
    sum = "fedagg(min_rate=0.05, max_rate=0.4)"
    ran = train(sum, FEDERATION, network(layers), engine="loop", **(SETTINGS | {"epochs": 3}))
    assert_follows(ran, layers, reference, epochs=3)
    assert [row[:3] for row in rates] == [row[:3] for row in reference.rates]
    assert [row[3] for row in rates] == pytest.approx([row[3] for row in reference.rates], rel=1e-9)
    used = {row[3] for row in rates}
    assert {0.05, 0.4} < used  # clipped at both ends, and most not at all
    assert [row[3] for row in rates if row[0] == 1] == [0.2] * 9  # the first round is at lr


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "how"),
    [
        ("fedagg(mode=fixed_point)", {"sweeps": 10}),
        ("fedagg(0.5, mode=fixed_point, sweeps=2, epsilon=1e-9)", {"alpha": 0.5, "sweeps": 2, "epsilon": 1e-9}),
        ("fedagg(mode=fixed_point, sweeps=50, epsilon=0.3)", {"sweeps": 50, "epsilon": 0.3}),
        ("fedagg(mode=fixed_point, min_rate=0.15, max_rate=0.2)", {"sweeps": 10, "clip": (0.15, 0.2)}),
        ("fedagg(mode=fixed_point, along=previous)", {"sweeps": 10, "along": "estimate"}),
        ("fedagg(mode=fixed_point, sweeps=1, start=0.4)", {"sweeps": 1, "lr": 0.4}),
        (
            "fedagg(mode=fixed_point, sweeps=2, start=0.9, min_rate=none, max_rate=none, epsilon=1e-9)",
            {"sweeps": 2, "lr": 0.9, "clip": None, "epsilon": 1e-9},
        ),
        (
            "fedagg(0.5, mode=fixed_point, along=previous, sweeps=3, epsilon=1e-9)",
            {"alpha": 0.5, "sweeps": 3, "epsilon": 1e-9, "along": "estimate"},
        ),
    ],
    ids=["default", "two sweeps", "stops early", "clipped", "Eq. 11", "start", "unclipped", "Eq. 11, three sweeps"],
)
def test_the_fixed_point_agrees_with_the_reference(sum, how, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)

    def play(at, batches, lr, t, cohort):
        return ref.fedagg_fixed_point_round(at, batches, **({"lr": lr, "clip": (1e-3, 0.5)} | how)).w

    assert_follows(ran, layers, play)


# -- the linear system -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.9])
def test_one_epoch_has_the_closed_form_of_equation_23(alpha):
    phi1, phi2, w = rand(1, 9), rand(2, 9, seed=1), rand(9, seed=2)
    c = (1 - alpha) / alpha
    hand = c * float(phi1[0] @ (w - phi2[1])) / (1 + c * float(phi1[0] @ phi1[0]))
    assert float(solve(phi1, w - phi2[1:], alpha, 0)) == pytest.approx(hand, rel=1e-13)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.9])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_three_epochs_and_their_tails_minimise_the_objective(start, alpha):
    phi1, phi2, w = rand(3, 9), rand(4, 9, seed=1), rand(9, seed=2)
    found = solve(phi1, w - phi2[1:], alpha, start)
    brute = ref.fedagg_brute(phi1, phi2, w, alpha, start)
    assert found[start:].tolist() == pytest.approx(brute.tolist(), rel=1e-9)
    assert found[:start].tolist() == [0] * start


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_the_tail_rate_is_the_first_of_the_tail_on_the_nominal_path(epoch):
    w0, phi1, delta = rand(9), rand(3, 9, seed=1), rand(9, seed=2)
    phi2 = ref.fedagg_reference(w0, phi1, 0.2)
    hand = ref.fedagg_brute(phi1, phi2, w0 + delta, 0.1, epoch)[0]
    found = tail_rate(phi1, delta, torch.tensor(0.2, dtype=torch.float64), 0.1, torch.tensor(epoch))
    assert float(found) == pytest.approx(float(hand), rel=1e-9)


@pytest.mark.parametrize(("L", "P"), [(1, 1), (3, 9), (5, 2), (6, 1)])
def test_the_matrix_is_positive_semidefinite(L, P):
    A = system(rand(L, P, seed=L))
    torch.testing.assert_close(A, A.T, rtol=1e-14, atol=1e-14)
    values = torch.linalg.eigvalsh(A)
    assert values.min() >= -1e-12 * values.max()


def test_who_lags_gets_a_larger_rate_and_who_leads_a_smaller_one():
    phi1, lr = rand(3, 9), torch.tensor(0.1, dtype=torch.float64)
    on_time = -lr * phi1[0]
    lags, same, leads = (tail_rate(phi1, on_time + s * phi1[1], lr, 0.1, torch.tensor(1)) for s in (0.1, 0.0, -0.1))
    assert leads < same < lags


# -- the rates of a federation ---------------------------------------------------------------------------------------
def noise(clients: int, each: int) -> Federation:
    """Labels that have nothing to do with the inputs: gradients never vanish."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(clients * each, 3, generator=g, dtype=torch.float64)
    y = torch.randint(3, (clients * each,), generator=g)
    groups = torch.arange(clients).repeat_interleave(each)
    return federate(DataSet("noise", x, y, x, y, ("a", "b", "c"), groups=groups), "given", clients=clients)


def test_the_mean_rate_neither_dies_nor_explodes_in_100_rounds(rates):
    model = network(ref.random_layers((3, 5, 3), seed=0))
    settings = {"lr": 0.1, "batch": 5, "epochs": 2, "rounds": 100, "cohort": 3, "eval_every": 100}
    ran = train("fedagg", noise(3, 15), model, engine="loop", **settings)
    means = np.array([np.mean([eta for t, _, _, eta in rates if t == number]) for number in range(1, 101)])
    assert means[0] == pytest.approx(0.1, rel=1e-12)
    assert means.min() > 0.03
    assert means.max() < 0.3
    assert 0.5 < means[-20:].mean() / means[1:21].mean() < 2  # no trend
    assert torch.isfinite(ran.after[-1]["w"]).all()


@pytest.mark.parametrize("sum", ["fedagg(mode=aggregated)", "fedagg(mode=aggregated, min_rate=none, max_rate=none)"])
def test_along_the_aggregated_gradient_rates_stay_bounded_by_themselves(sum, rates):
    # All clients are near the nominal path, so that the cost of large rates is most of what moves the rate.
    model = network(ref.random_layers((3, 5, 3), seed=0))
    train(sum, noise(3, 15), model, engine="loop", lr=0.1, batch=5, epochs=2, rounds=40, cohort=3, eval_every=40)
    later = np.array([eta for t, _, _, eta in rates if t > 1])
    assert later.min() > 0.01
    assert later.max() < 0.15


def test_without_bounds_rates_may_run_away_and_the_run_says_so(rates):
    # On clients that disagree: the bounds keep the default alive where the rates of the paper's system do not stay in
    # (0, 1), and the run ends with one line.
    model, settings = network(ref.random_layers((3, 5, 4, 3), seed=0)), SETTINGS | {"epochs": 3, "rounds": 40}
    settings |= {"lr_decay": 1.0, "engine": "loop"}
    with pytest.raises(HoldfastError, match=r"^round 22: no client's update is finite; lower --lr, or add --clip$"):
        train("fedagg(min_rate=none, max_rate=none)", FEDERATION, model, **settings)
    assert max(abs(row[3]) for row in rates) > 1
    assert torch.isfinite(train("fedagg", FEDERATION, model, **settings).after[-1]["w"]).all()


def test_equal_clients_get_equal_rates_near_the_nominal_one(rates):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(15, 3, generator=g, dtype=torch.float64), torch.randint(3, (15,), generator=g)
    data = DataSet(
        "same", x.repeat(3, 1), y.repeat(3), x, y, ("a", "b", "c"), groups=torch.arange(3).repeat_interleave(15)
    )
    settings = {"lr": 0.1, "batch": 15, "epochs": 3, "rounds": 5, "cohort": 3}
    model = network(ref.random_layers((3, 5, 3), seed=0))
    train("fedagg(0.01)", federate(data, "given", clients=3), model, engine="loop", **settings)
    table = np.array([eta for *_, eta in rates]).reshape(5, 3, 3)  # round, client, epoch
    assert table == pytest.approx(table[:, :1].repeat(3, 1), rel=1e-10)
    assert table[:, :, 0] == pytest.approx(np.full((5, 3), 0.1), rel=0.01)  # all are where the nominal path starts
    assert table.min() > 0.05
    assert table.max() < 0.2
    assert not (table[1:] == 0.1).any()


@pytest.mark.parametrize("engine", ["vector", "loop"])
def test_equal_clients_move_as_one(engine):
    x, y = rand(8, 3), torch.arange(8) % 3
    data = DataSet(
        "same", x.repeat(2, 1), y.repeat(2), x, y, ("a", "b", "c"), groups=torch.arange(2).repeat_interleave(8)
    )
    settings = {"lr": 0.1, "batch": 8, "epochs": 2, "rounds": 4, "engine": engine}
    model = network(ref.random_layers((3, 5, 3), seed=0))
    both, alone = (
        train("fedagg", federate(data, "given", clients=2), model, cohort=cohort, **settings).after[-1]
        for cohort in (2, 1)
    )
    assert_close({"w": both["w"]}, {"w": alone["w"]}, 1e-12)


# -- the published fixed point ---------------------------------------------------------------------------------------
def test_the_published_sweep_contracts_the_rates_to_zero():
    # All clients start at w0 and move along the same phi1, so that phi2 is their own path and b = A eta_old:
    # a sweep is eta -> (I + cA)^-1 cA eta.
    layers, batches = ref.random_layers((3, 5, 4, 3), seed=0), batches_of(1, [0, 1, 3])
    w0, alpha = ref.flatten(layers), 0.5

    def visit(at: Tensor) -> Tensor:
        return torch.stack([ref.gradient(at, layers, *ref.samples_of(epochs)) for epochs in batches])

    eta = torch.full((3,), 0.2, dtype=torch.float64)
    sizes = [float(eta.norm())]
    for _ in range(80):
        path, field = walk(w0, eta, visit)
        A = system(field)
        predicted = torch.linalg.solve(torch.eye(3, dtype=torch.float64) + A, A @ eta)  # c = 1 at alpha = 1/2
        eta = solve(field, w0 - path[1:], alpha, 0)
        assert eta.tolist() == pytest.approx(predicted.tolist(), rel=1e-6, abs=1e-15)
        sizes.append(float(eta.norm()))
    assert all(later < earlier for earlier, later in pairwise(sizes))
    assert sizes[-1] < 1e-9 * sizes[0]


@pytest.mark.parametrize("along", ["current", "previous"])
def test_the_published_loop_run_to_its_end_hardly_trains(along):
    settings = {"lr": 0.2, "rounds": 2, "epochs": 2, "engine": "vector"}
    sum = f"fedagg(0.5, mode=fixed_point, epsilon=1e-12, sweeps=300, min_rate=0, along={along})"
    plain, dead = (train(method, **settings).after for method in ("fedavg", sum))
    moved = [float((after[-1]["w"] - after[0]["w"]).norm()) for after in (plain, dead)]
    assert moved[1] < 1e-6 * moved[0]


# -- traffic ---------------------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("L", [1, 3])
def test_traffic_counts_a_vector_per_epoch_up_and_down(L, engine):
    history = train("fedagg", engine=engine, epochs=L, cohort=2, rounds=3).history
    model = 59 * 8  # toys' network in float64
    assert [r.upload_bytes for r in history] == [2 * (1 + L) * model] * 3
    assert [r.download_bytes for r in history] == [2 * model] + [2 * (1 + L) * model] * 2


@every_engine
def test_traffic_counts_every_visit_of_the_fixed_point(engine):
    sum = "fedagg(mode=fixed_point, sweeps=2, epsilon=1e-300)"
    (record,) = train(sum, engine=engine, epochs=3, cohort=2, rounds=1).history
    visits = 3 * (1 + 2)  # the path of three epochs, once and in both sweeps
    assert record.upload_bytes == 2 * (1 + visits) * 59 * 8
    assert record.download_bytes == 2 * (1 + visits) * 59 * 8 + 2 * 3 * 8  # and three rates


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sum", "says"),
    [
        ("fedagg(0)", "fedagg: alpha must be a number in (0, 1), not 0"),
        ("fedagg(1)", "fedagg: alpha must be a number in (0, 1), not 1"),
        ("fedagg(-0.1)", "fedagg: alpha must be a number in (0, 1), not -0.1"),
        ("fedagg(mode=both)", "fedagg: mode must be one of feedback, aggregated, fixed_point, not both"),
        ("fedagg(max_rate=1)", "fedagg: max_rate must be a number in (0, 1), not 1"),
        ("fedagg(start=1)", "fedagg: start must be a number in (0, 1), not 1"),
        (
            "fedagg(start=0.2)",
            "fedagg: start is the first rate of mode=fixed_point, and mode=feedback starts from lr; leave start out, "
            "or use mode=fixed_point",
        ),
        (
            "fedagg(mode=aggregated)+momentum",
            "fedagg: mode=aggregated derives its rates from plain gradients, not from the steps of momentum; use "
            "mode=feedback, or leave momentum out",
        ),
        (
            "fedagg(mode=aggregated)+fedbug",
            "fedagg: mode=aggregated moves all clients alike, which leaves no room for the rates of fedbug; use "
            "mode=feedback, or leave fedbug out",
        ),
        ("fedagg(min_rate=-1)", "fedagg: min_rate must be a number of at least 0, not -1"),
        ("fedagg(epsilon=0)", "fedagg: epsilon must be a number above 0, not 0"),
        ("fedagg(sweeps=0)", "fedagg: sweeps must be a whole number of at least 1, not 0"),
        (
            "fedagg(max_rate=0.1)",
            "fedagg: the nominal rate lr=0.3 is outside [min_rate, max_rate] = [0.001, 0.1]; change lr, or widen "
            "the range",
        ),
        (
            "fedagg(min_rate=0.4)",
            "fedagg: the nominal rate lr=0.3 is outside [min_rate, max_rate] = [0.4, 0.5]; change lr, or widen "
            "the range",
        ),
    ],
)
def test_bad_rates_are_refused_in_one_line(sum, says):
    with pytest.raises(HoldfastError) as caught:
        train(sum)
    assert str(caught.value) == says
    assert "\n" not in says
