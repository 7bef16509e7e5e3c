"""The papers' analytical claims: the computations against hand values, which claims hold, and the command."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from helpers.toys import assert_same, train
from holdfast import HoldfastError, Method
from holdfast.cli.main import main
from holdfast.cli.theory import PAPERS
from holdfast.data.federation import federate
from holdfast.data.sources import load
from holdfast.method.part import parts
from holdfast.models.zoo import make
from holdfast.theory import feedback, figure, lorentz, neuron_drift, neurons, rates, temperature, updates
from holdfast.theory import two_clients as toy
from holdfast.theory.claim import Claim, above, below, equal, shown
from holdfast.theory.recorder import Recorder

NO_DATA = Path("no-such-folder")  # without MNIST the experiment of FedNLR runs on the digits


def real(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# -- claims ----------------------------------------------------------------------------------------------------------
@cache
def claims(paper: str) -> list[Claim]:
    return import_module(f"holdfast.theory.{paper}").claims(NO_DATA)


# What the papers say and is not true: some words of each claim. Everything else must hold.
FALSE = {
    "fedbug": (
        "as printed in B.3",
        "read with α = 0",
        "from every model that FedAvg visits",
        "from the first round on",
        "from every start with 50 local steps",
    ),
    "fednlr": (
        "all neurons over class 2",
        "as printed agrees with autograd on random networks",
        "has the most neurons",
    ),
    "fedagg": ("Theorem 4", "with its ε = 0.001", "mean of round 100"),
    "fedmrur": ("Alg. 1 line 16", "as printed, in float32"),
}
EMPIRICAL = (  # of the experiments on data
    "Definition 1", "every class has", "for every pair", "in most", "Sec. 5", "the highest T",
)  # fmt: skip


@pytest.mark.parametrize("paper", PAPERS)
def test_which_claims_hold(paper):
    found = [c for c in claims(paper) if not any(word in c.text for word in EMPIRICAL)]
    for claim in found:
        assert claim.holds == (not any(word in claim.text for word in FALSE[paper])), claim
    for word in FALSE[paper]:
        assert sum(word in c.text for c in found) == 1, word


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_numbers_with_sentences(paper):
    for claim in claims(paper):
        assert math.isfinite(claim.found)
        assert len(claim.text) > 20
        assert shown(claim.expected)
    assert len({c.text for c in claims(paper)}) == len(claims(paper))


def test_kinds_of_claims():
    assert equal("", 1, 1.05, 0.1).holds
    assert not equal("", 1, 1.2, 0.1).holds
    assert below("", 2, 2.0).holds
    assert not below("", 2, 2.1).holds
    assert above("", 2, 2.0).holds
    assert not above("", 2, 1.9).holds
    assert (below("", 0.5, 0).expected, above("", 3, 0).expected) == ("≤ 0.5", "≥ 3")


# -- FedBug ----------------------------------------------------------------------------------------------------------
def test_limit_of_gradient_flow():
    a, v = toy.limit(real(1.25), real(0.25))  # c = 3/2, sqrt(c^2 + 4) = 5/2
    assert a.item() == pytest.approx(math.sqrt(2))
    assert v.item() == pytest.approx(1 / math.sqrt(2))
    half = toy.printed_limit(real(1.25), real(0.25))
    assert (half[0] * half[1]).item() == pytest.approx(0.25)
    end = toy.flow(real(1.25), real(0.25))
    assert [x.item() for x in end] == pytest.approx([a.item(), v.item()])


def test_a_round_of_two_clients():
    start = real(2.0, 1.0, 1.0)  # client 1 has the error 1, client 2 none
    assert toy.after_round(start, (True,), lr=0.5).tolist() == [1.75, 1, 0.5]  # a = 1.5, v = 0 and 1
    assert toy.after_round(start, (False,), lr=0.5).tolist() == [1.75, 1, 1]
    assert toy.loss(start).item() == 0.5
    assert toy.discrepancy(start).item() == 1
    assert toy.ratio(start, (False,)).item() == pytest.approx(0.95)  # a = 1.9


def test_frozen_steps_of_two_blocks():
    assert [toy.thawed(share).count(False) for share in (0.0, 0.1, 0.2, 0.4, 1.0)] == [0, 2, 5, 10, 25]


def test_bound_of_the_contraction():
    assert toy.bound(real(1.0, 1.0, 1.0)).item() == 0.75  # cos^2 = 1/2
    assert toy.bound(real(1.0, 1.0, 1.0), frozen=1).item() == pytest.approx(0.725)  # m = 0.9
    assert toy.bound(real(1.0, 1.0, 1.0), alpha=0.2).item() == pytest.approx(0.8)


# -- FedNLR ----------------------------------------------------------------------------------------------------------
def test_example_1():
    before, after = neurons.example().tolist()
    assert [round(x, 2) for x in before] == [0.67, 1.11, 0.45, 0.55]
    assert [round(x, 2) for x in after] == [0.73, 1.04, 0.63, 0.37]


def test_example_1_with_neuron_rates():
    # h = (10/9, 2/3), mu = 1 + 1/2 + log10 2: the second neuron gets 2/(1 + mu) of the step.
    plain, calm = neurons.example(), neurons.example("fednlr")
    share = (calm[1, 1] - calm[0, 1]) / (plain[1, 1] - plain[0, 1])
    assert share.item() == pytest.approx(2 / (2.5 + math.log10(2)))


def test_theorem_2_at_an_inactive_neuron():
    W1, W2, own, x = real([0.0]), real([1.0], [-1.0]), real([1.0]), real(1.0)
    # p = 1/2, so the push is -1/2 - 1/2 = -1; ReLU passes no gradient at 0
    assert neurons.closed_form(W1, W2, own, x, 0.1, gate=False).item() == pytest.approx(-0.1)
    assert neurons.closed_form(W1, W2, own, x, 0.1, gate=True).item() == 0
    assert neurons.real_fall(W1, W2, own, x, 0.1).item() == 0


def test_falls_of_bound_neurons():
    before = real([4.0, 0.0, 1.0], [1.0, 2.0, 3.0])  # neuron 0 is bound to class 0, the others to class 1
    after = torch.stack([before, before - real([0.0, 0.0, 0.0], [5.0, 1.0, 1.0])])
    run = neuron_drift.NeuronDrift(1, 0.9, before, torch.tensor([1, 0]), {"fedavg": after}, 0)
    assert run.bound.tolist() == [[True, False, False], [False, True, True]]
    assert run.falls("fedavg").tolist() == [[0, 0], [0, pytest.approx(2 / 5)]]
    assert run.pairs("fedavg").tolist() == [0, pytest.approx(2 / 5)]  # client 0 on class 0, client 1 on class 1
    assert run.own_falls("fedavg").tolist() == [0, 0]


@pytest.mark.parametrize(("experiment", "name"), [(neuron_drift.drifts, "mnist"), (temperature.heats, "cifar10")])
def test_published_data_are_used_where_they_are(experiment, name, monkeypatch):
    def stop(name, folder):
        raise HoldfastError(name)

    monkeypatch.setattr(neuron_drift, "load", stop)
    for missing, used in (([name], "digits"), ([], name)):
        monkeypatch.setattr(
            neuron_drift, "source", lambda asked, gone=missing: SimpleNamespace(missing=lambda folder: gone)
        )
        with pytest.raises(HoldfastError, match=used):
            experiment.__wrapped__(NO_DATA)


def test_temperatures_of_the_network_as_initialised():
    data = load("digits")
    heat = temperature.initial(data)
    assert heat.T["fednlr"].shape == (20, 9)
    federation = federate(data, temperature.SPLIT, temperature.CLIENTS)
    module = make("vgg9", (1, 8, 8), 10)
    client = torch.from_numpy(federation.deal.client(3)[: temperature.SAMPLES])
    with torch.no_grad():  # the second layer: its activation is that of conv2 and the ReLU behind it
        h = module[:4](federation.inputs(data.x[client])).mean((0, 2, 3))
    for method, mu in (("fednlr", 1 + 2 / 9 + math.log10(64)), ("fednlr-tables", 1 + 0.1 + 0.3 * math.log10(64))):
        T = (h.max() - h.min()) / math.log(mu)
        assert heat.T[method][3, 1].item() == pytest.approx(T.item(), rel=1e-5)


def test_the_hottest_layer():
    heat = temperature.LayerTemperatures(
        "", "", None, {"fednlr": real([1.0, 3.0, 4.0], [1.0, 5.0, 2.0], [0.0, 2.0, 9.0])}
    )
    assert heat.mean("fednlr").tolist() == pytest.approx([2 / 3, 10 / 3, 5])
    assert (heat.hottest("fednlr"), heat.hottest("fednlr", among=-1)) == (3, 2)
    assert [heat.share("fednlr", layer) for layer in (1, 2, 3)] == pytest.approx([0, 1 / 3, 2 / 3])


def test_the_command_prints_the_temperatures(capsys):
    assert run("fednlr", "--json", "--data-dir", NO_DATA) == 0
    found = json.loads(capsys.readouterr().out)
    for table, heat in zip(found["tables"], temperature.heats(NO_DATA), strict=True):
        assert table["heading"] == [
            "layer",
            "neurons",
            "μ, fednlr",
            "T, fednlr",
            "μ, fednlr-tables",
            "T, fednlr-tables",
        ]
        assert [row[1] for row in table["rows"]] == [32, 64, 128, 128, 256, 256, 512, 512, 10]
        assert [row[2] for row in table["rows"]][-1] == pytest.approx(3)  # 1 + 9/9 + log10(10)
        for column, method in ((3, "fednlr"), (5, "fednlr-tables")):
            assert [row[column] for row in table["rows"]] == pytest.approx(heat.mean(method).tolist())


def test_neurons_bound_by_definition_1():
    net = SimpleNamespace(neurons=lambda w, x: x)  # the activations are the inputs
    one, two = real([1.0, 0.0], [0.9, 0.0]), real([0.0, 1.0], [0.0, 0.5])
    assert neuron_drift.definition1(net, real(), [one, two]) == 2
    assert (
        neuron_drift.definition1(net, real(), [one, torch.cat([two, real([1.0, 1.0])])]) == 1
    )  # only the second neuron


# -- FedAgg ----------------------------------------------------------------------------------------------------------
def test_rate_of_one_epoch():
    p = rates.RateProblem(phi1=real([1.0]), phi2=real([1.0], [0.0]), w=real(1.0))  # c = 9: eta = 9/(1 + 9)
    assert rates.rates(p).item() == pytest.approx(0.9)
    assert rates.last_rate(p).item() == pytest.approx(0.9)
    assert rates.minimised(p).item() == pytest.approx(0.9)
    assert rates.theorem1(p, real(0.9)).item() == pytest.approx(0.9)
    assert rates.objective(p, real(0.9)).item() == pytest.approx(0.1 * 0.81 + 0.9 * 0.01)
    assert rates.objective(p, real(0.0)).item() == pytest.approx(0.9)


def test_eigenvalues_of_the_system():
    assert rates.least_eigenvalue(real([3.0, 4.0])) == 1
    # L = 2, orthogonal unit gradients: A = diag(2, 1)
    assert rates.least_eigenvalue(torch.eye(2, dtype=torch.float64)) == pytest.approx(0.5)


def test_gradients_of_the_small_federation():
    cloud = feedback.clouds()
    w = torch.linspace(-1, 1, 18, dtype=torch.float64).requires_grad_()
    for i in (0, 5):
        loss = torch.nn.functional.cross_entropy(cloud.x[i] @ w.view(3, 6).T, cloud.y[i])
        (g,) = torch.autograd.grad(loss, w)
        assert torch.allclose(feedback.visit(w.detach())[i], g, rtol=1e-12)


def test_first_round_is_at_the_nominal_rate():
    for kind in ("self", "anchored"):
        assert torch.equal(feedback.rates(kind)[0], torch.full((3, 8), 0.1, dtype=torch.float64))


# -- FedMRUR ---------------------------------------------------------------------------------------------------------
def test_length_of_the_aggregate():
    deltas = real([3.0, 0.0], [0.0, 4.0])
    assert updates.stretch(deltas).item() == pytest.approx(1.4)
    assert updates.stretch(real([1.0, 2.0], [2.0, 4.0])).item() == pytest.approx(1)
    update = updates.aggregated(deltas)
    assert update.tolist() == pytest.approx([2.1, 2.8])  # the mean (1.5, 2) of length 2.5, made 3.5 long
    run = updates.UpdateRounds(deltas[None], update[None])
    assert updates.length_error(run) < 1e-15
    assert updates.turn(run) < 1e-15


def test_lorentz_distance_from_the_origin():
    z, zg = real([0.0, 0.0]), real([math.sqrt(3), 0.0])  # 2 (sqrt(1 + 3) - 1)
    assert lorentz.printed_distance(z, zg).item() == pytest.approx(2)
    assert lorentz.true_distance(z[0], zg[0]) == pytest.approx(2)


# -- looking in changes nothing --------------------------------------------------------------------------------------
def test_the_recorder_changes_nothing():
    recorded = train(Method.parse("fedbug(0.4)") + Recorder())
    plain = train("fedbug(0.4)")
    for seen, alone in zip(recorded.after, plain.after, strict=True):
        assert_same({k: t for k, t in seen.items() if "recorder" not in k}, alone)
    assert "recorder" not in parts()


# -- the command -----------------------------------------------------------------------------------------------------
def run(*args: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(["theory", *(str(a) for a in args)])
    return int(end.value.code or 0)


@pytest.mark.parametrize("paper", PAPERS)
def test_text_and_picture(paper, tmp_path, capsys):
    png = tmp_path / "picture.png"
    assert run(paper, "--png", png, "--data-dir", NO_DATA) == 0
    out = capsys.readouterr().out
    found = claims(paper)
    assert out.count("✓") == sum(c.holds for c in found)
    assert out.count("✗") == sum(not c.holds for c in found)
    assert f"{sum(c.holds for c in found)} of {len(found)} claims hold" in out
    assert out.count("T of every layer") == (2 if paper == "fednlr" else 0)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size < 150_000


def test_json(capsys):
    assert run("fedagg", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["paper"] == "fedagg"
    assert [set(c) for c in found["claims"]] == [{"text", "expected", "found", "holds", "note"}] * len(claims("fedagg"))
    assert [c["holds"] for c in found["claims"]] == [c.holds for c in claims("fedagg")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("fedbog",), "unknown paper 'fedbog'; did you mean fedbug?"),
        (("fnr",), "unknown paper 'fnr'; did you mean fednlr?"),
        ((), "missing argument 'fedbug|fednlr|fedagg|fedmrur'; see: holdfast theory --help"),
        (
            ("fedbug", "--png", "no-such-folder/a.png"),
            "cannot write the picture no-such-folder/a.png: there is no folder no-such-folder; create it first",
        ),
    ],
)
def test_bad_input(args, message, capsys):
    assert run(*args) == 2
    assert capsys.readouterr().err == f"holdfast: {message}\n"


def test_a_picture_that_cannot_be_written(tmp_path):
    made, _ = figure.panels("empty")
    with pytest.raises(HoldfastError, match=r"^cannot write the picture .*; choose another --png$"):
        figure.save(made, tmp_path / "picture.unknown")
