"""FNR-FL against its equations: the choice, the second trip, the penalty with and without gradient, the leak guard."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from helpers import reference_papers as ref
from helpers.paper_problems import SETTINGS, assert_follows, batches_of, every_engine, every_problem, network, start
from helpers.toys import FEDERATION, assert_same, mlp, ragged, server_round, train
from holdfast import Batch, Federation, HoldfastError, Out, federate, run
from holdfast.parts.fnr import FeatureNorms, Fnr, length

PUBLIC = (FEDERATION.data.x[FEDERATION.public], FEDERATION.data.y[FEDERATION.public])


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "how"),
    [
        ("fnr(0.5, 0.5, 2)", {"p": 0.5, "lam": 0.5, "epochs": 2}),
        ("fnr(0.7, 3, 1)", {"p": 0.7, "lam": 3.0, "epochs": 1}),
        ("fnr(0.5, 0.5, 2, mode=published)", {"p": 0.5, "lam": 0.5, "epochs": 2, "mode": "published"}),
    ],
    ids=["gradient", "two of three", "published"],
)
def test_agrees_with_the_reference(sum, how, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)
    how, weak = dict(how), set()
    epochs = how.pop("epochs")

    def play(at, batches, lr, t, cohort):
        again = batches_of(t, cohort, trip=1, epochs=epochs)
        r = ref.fnr_round(at, batches, PUBLIC, again, lr, ids=cohort, **how)
        assert len(r.chosen) == int(3 * how["p"])
        weak.add(tuple(r.chosen))
        return r.w

    assert_follows(ran, layers, play)
    assert len(weak) > 1


# -- who is refined --------------------------------------------------------------------------------------------------
def test_the_number_of_the_weakest_is_an_exact_floor():
    assert int(0.29 * 100) == 28
    assert Fnr(0.29).chosen(100) == 29
    for percent in range(1, 100):
        assert [Fnr(percent / 100).chosen(n) for n in range(1, 101)] == [percent * n // 100 for n in range(1, 101)]


@pytest.mark.parametrize(
    ("accuracy", "rows"), [([0.5, 0.5, 0.1, 0.5], [2, 0]), ([0.5] * 4, [0, 1]), ([0.4, 0.3, 0.2, 0.1], [3, 2])]
)
def test_the_least_accurate_are_chosen_and_ties_go_to_the_smaller_id(accuracy, rows):
    r = server_round([[0.0]] * 4, n=[1] * 4, K=[1] * 4, weights=[0.25] * 4)
    r.uploads = {"accuracy": torch.tensor(accuracy), "norms": torch.arange(8.0).reshape(4, 2)}
    assert Fnr(0.5).weakest(r).tolist() == rows
    others = sorted({0, 1, 2, 3} - set(rows))
    mean = r.uploads["norms"][others].mean(0)
    assert Fnr(0.5).reference(r)["norms"].tolist() == mean.tolist()


# -- the penalty -----------------------------------------------------------------------------------------------------
def penalty(mode: str, z: Tensor, y: Tensor, mask: Tensor, target: Tensor, stored: Tensor) -> Tensor:
    c = SimpleNamespace(
        net=SimpleNamespace(classes=len(target)), message={"norms": target}, state={"difference": stored}
    )
    return FeatureNorms(2.0, mode).penalty(c, Out(z, z), Batch(z, y, mask))


TARGET = torch.tensor([3.0, 100.0, 5.0], dtype=torch.float64)
STORED = torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize("padding", [0, 2])
def test_the_penalty_by_hand(padding):
    # Norms 5 and 10 of class 2, 1 of class 0: J = 1/3 * |3 - 1| + 2/3 * |5 - 7.5|; class 1 is absent. Weight 2.
    z = torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]] + [[7.0, 7.0]] * padding, dtype=torch.float64)
    y, mask = torch.tensor([2, 0, 2] + [1] * padding), torch.arange(3 + padding) < 3
    z.requires_grad_()
    J = penalty("gradient", z, y, mask, TARGET, STORED)
    assert float(J.detach()) == pytest.approx(2 * 7 / 3, rel=1e-14)
    (g,) = torch.autograd.grad(J, z)
    hand = [[0.4, 1.6 / 3], [0.0, -2 / 3], [0.4, 1.6 / 3]] + [[0.0, 0.0]] * padding
    torch.testing.assert_close(g, torch.tensor(hand, dtype=torch.float64), rtol=1e-14, atol=0)


@pytest.mark.parametrize("padding", [0, 2])
def test_as_published_the_penalty_is_a_number_without_gradient(padding):
    z = torch.ones(3 + padding, 2, dtype=torch.float64, requires_grad=True)
    y, mask = torch.tensor([2, 0, 2] + [1] * padding), torch.arange(3 + padding) < 3
    J = penalty("published", z, y, mask, TARGET, STORED)
    assert float(J) == pytest.approx(2 * (1 / 3 * 1 + 2 / 3 * 4), rel=1e-14)
    assert not J.requires_grad


def test_features_of_zeros_have_no_slope():
    z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    J = penalty("gradient", z, torch.tensor([0, 1]), torch.ones(2, dtype=torch.bool), TARGET, STORED)
    assert torch.autograd.grad(J, z)[0].tolist() == [[0.0] * 3] * 2
    assert length(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == pytest.approx([5.0, 0.0], abs=1e-18)


@every_engine
def test_as_published_the_weight_changes_nothing_and_with_a_gradient_it_does(engine):
    sums = ["fnr(weight=7, mode=published)", "fnr(weight=0, mode=published)", "fnr(weight=0)", "fnr(weight=0.5)"]
    published, without, zero, gradient = (train(sum, engine=engine, rounds=2).after[-1] for sum in sums)
    assert_same(published, without)
    assert_same(zero, without)
    assert (gradient["w"] - without["w"]).abs().max() > 1e-3


# -- the trip --------------------------------------------------------------------------------------------------------
@every_engine
def test_the_second_trip_leaves_the_state_of_other_parts_alone(engine):
    alone, refined = (train(sum, engine=engine, rounds=1).after[-1] for sum in ("scaffold+moon", "scaffold+moon+fnr"))
    kept = [name for name in alone if name.endswith(("scaffold/c", "moon/previous"))]
    assert len(kept) == 1 + 2 * 3
    assert_same({name: refined[name] for name in kept}, {name: alone[name] for name in kept})
    assert (refined["w"] - alone["w"]).abs().max() > 1e-3


@every_engine
def test_traffic_counts_the_norms_and_the_second_trip(engine):
    (record,) = train("fnr(0.7)", engine=engine, rounds=1).history
    model, norms = 59 * 8, 3 * 8
    assert record.upload_bytes == 3 * (model + norms + 8) + 2 * model  # 8: the accuracy
    assert 3 * model + 2 * norms <= record.download_bytes <= 3 * model + 4 * norms


def test_public_data_is_nobodys_and_has_every_class():
    assert not set(FEDERATION.public.tolist()) & set(FEDERATION.deal.index.tolist())
    assert set(PUBLIC[1].tolist()) == {0, 1, 2}


# -- the leak guard and the summary ----------------------------------------------------------------------------------
def leaking() -> Federation:
    return federate(ragged().data, "given", clients=4, public="test")


def fnr_run(sum: str, federation: Federation, **settings):
    return run(sum, federation, mlp(), rounds=2, cohort=3, precision="fp64", **settings)


def test_test_data_as_public_data_are_refused_or_marked():
    says = (
        "fnr: the public data is the test data, which makes test accuracy meaningless; hold out training data "
        "instead with --public 0.05, or set allow_test_leak=true"
    )
    with pytest.raises(HoldfastError, match=f"^{says}$"):
        fnr_run("fnr", leaking())
    marked = fnr_run("fnr(allow_test_leak=true)", leaking())
    assert marked.summary["leaks_test_data"] is True
    honest = fnr_run("fnr(allow_test_leak=true)", FEDERATION)
    assert not honest.summary.get("leaks_test_data")


def test_leaking_public_data_are_the_test_data():
    federation = leaking()
    assert torch.equal(federation.data.x[federation.public], federation.data.test_x)
    assert torch.equal(federation.data.y[federation.public], federation.data.test_y)
    assert not set(federation.public.tolist()) & set(federation.deal.index.tolist())


@pytest.mark.parametrize("method", ["fedavg", "fnr"])
def test_kappa_and_rho_are_in_the_summary(method):
    result = fnr_run(method, FEDERATION)
    accuracy = result.history[-1].test_accuracy
    seconds = sum(record.seconds for record in result.history)
    traffic = sum(record.upload_bytes + record.download_bytes for record in result.history)
    assert accuracy > 0
    assert result.summary["kappa"] == pytest.approx(accuracy * 1e4 / seconds)
    assert result.summary["rho"] == pytest.approx(accuracy * 1e10 / traffic)


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sum", "says"),
    [
        ("fnr(0)", "fnr: p must be a number in (0, 1), not 0"),
        ("fnr(1)", "fnr: p must be a number in (0, 1), not 1"),
        ("fnr(1.5)", "fnr: p must be a number in (0, 1), not 1.5"),
        ("fnr(0.33)", "fnr: p=0.33 of a cohort of 3 refines no client; raise p or the cohort"),
        ("fnr(weight=-1)", "fnr: weight must be a number of at least 0, not -1"),
        ("fnr(epochs=0)", "fnr: epochs must be a whole number of at least 1, not 0"),
        ("fnr(mode=literal)", "fnr: mode must be one of gradient, published, not literal"),
        ("fnr(allow_test_leak=1)", "fnr: allow_test_leak must be true or false, not 1"),
    ],
)
def test_bad_refinement_is_refused_in_one_line(sum, says):
    with pytest.raises(HoldfastError) as caught:
        train(sum)
    assert str(caught.value) == says
    assert "\n" not in says


def test_without_public_data_it_is_refused():
    says = "fnr needs public data: hold some out with --public 0.05 or federate(..., public=0.05)"
    with pytest.raises(HoldfastError, match=f"^{re.escape(says)}$"):
        train("fnr", federate(ragged().data, "given", clients=4))
