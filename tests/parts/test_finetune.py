"""Training on public data as a control, and FNR's refinement in the batches of its published code, in plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from helpers import reference_papers as ref
from helpers.exact_errors import raises_exactly
from helpers.paper_problems import SETTINGS, assert_follows, batches_of, every_engine, network
from helpers.toys import FEDERATION, mlp, ragged, train
from holdfast import Federation, Method, federate, run
from holdfast.parts._distillation import minibatches
from holdfast.testing.laws import assert_unmoved

PUBLIC = (FEDERATION.data.x[FEDERATION.public], FEDERATION.data.y[FEDERATION.public])
LAYERS = ref.random_layers((3, 5, 4, 3), seed=0)


def in_file_order(epochs: int, size: int) -> ref.Epochs:
    """Passes over the public data as it is stored."""
    starts = range(0, len(PUBLIC[1]), size)
    return [[(PUBLIC[0][s : s + size], PUBLIC[1][s : s + size]) for s in starts] for _ in range(epochs)]


# -- FNR's refinement ------------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("size", [2, 4, 100])
def test_fnr_refines_in_batches_of_its_own_in_the_order_of_the_data(size, engine):
    sum = f"fnr(0.7, 0.5, 2, batch={size}, shuffled=false)"
    ran = train(sum, FEDERATION, network(LAYERS), engine=engine, **SETTINGS)

    def play(at, batches, lr, t, cohort):
        again = [in_file_order(2, size)] * len(batches)
        return ref.fnr_round(at, batches, PUBLIC, again, lr, ids=cohort, p=0.7, lam=0.5).w

    assert_follows(ran, LAYERS, play)


def test_public_images_have_no_padding_row_in_common_batches():
    assert len(PUBLIC[1]) % 4  # the last batch is shorter than the others
    assert len(PUBLIC[1]) > 4


# -- at the clients --------------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("shuffled", [True, False])
def test_clients_train_on_public_data_after_their_own(shuffled, engine):
    size = SETTINGS["batch"]
    sum = f"finetune(2, batch={size}, shuffled={str(shuffled).lower()})"
    ran = train(sum, FEDERATION, network(LAYERS), engine=engine, **SETTINGS)

    def play(at, batches, lr, t, cohort):
        w0, again = ref.flatten(at), batches_of(t, cohort, trip=1, epochs=2)
        deltas = []
        for number, epochs in enumerate(batches):
            public = again[number] if shuffled else in_file_order(2, size)
            deltas.append(ref.sgd(ref.sgd(w0, at, epochs, lr), at, public, lr) - w0)
        return w0 + ref.weighted_mean(deltas, ref.counts_of(batches))

    assert_follows(ran, LAYERS, play)


@every_engine
def test_it_is_fnr_for_everyone_and_without_a_penalty(engine):
    # FNR without its weight refines two clients of three; the third is what differs.
    everyone, some = (
        train(sum, engine=engine, rounds=1).after[-1]["w"]
        for sum in ("finetune(batch=5)", "fnr(0.7, weight=0, batch=5)")
    )
    assert (everyone - some).abs().max() > 1e-3


@every_engine
def test_clients_use_the_optimiser_of_the_sum(engine):
    plain, heavy = (
        train(sum, engine=engine, steps=1, rounds=1).after[-1]["w"]
        for sum in ("finetune(batch=2)", "finetune(batch=2)+momentum(0.9)")
    )
    assert (plain - heavy).abs().max() > 1e-3  # one local step is the same; the steps on public data are not


# -- at the server ---------------------------------------------------------------------------------------------------
def tuned(w: Tensor, layers: ref.Layers, epochs: ref.Epochs, eta: float, momentum: float) -> Tensor:
    speed = torch.zeros_like(w)
    for epoch in epochs:
        for x, y in epoch:
            speed = momentum * speed + ref.gradient(w, layers, x, y)
            w = w - eta * speed
    return w


@every_engine
@pytest.mark.parametrize(
    ("sum", "eta", "momentum"),
    [
        ("finetune(2, at=server, batch=4, shuffled=false)", None, 0.0),
        ("finetune(2, at=server, batch=4, shuffled=false, eta=0.05, momentum=0.9)", 0.05, 0.9),
    ],
)
def test_the_server_trains_the_averaged_model(sum, eta, momentum, engine):
    ran = train(sum, FEDERATION, network(LAYERS), engine=engine, **SETTINGS)

    def play(at, batches, lr, t, cohort):
        w0 = ref.flatten(at)
        deltas = [ref.sgd(w0, at, epochs, lr) - w0 for epochs in batches]
        w = w0 + ref.weighted_mean(deltas, ref.counts_of(batches))
        return tuned(w, at, in_file_order(2, 4), eta or lr, momentum)

    assert_follows(ran, LAYERS, play)


def test_passes_are_shuffled_or_not():
    key = torch.tensor(5)
    shuffled, stored = ([rows.tolist() for rows in minibatches(7, 3, 6, key, how)] for how in (True, False))
    assert stored == [[0, 1, 2], [3, 4, 5], [6]] * 2
    assert [sorted(n for rows in shuffled[i : i + 3] for n in rows) for i in (0, 3)] == [list(range(7))] * 2
    assert shuffled[:3] != shuffled[3:]


@every_engine
def test_steps_too_short_to_move_move_nothing_at_the_server(engine):
    assert_unmoved(train("finetune(at=server)", engine=engine, rounds=1, lr=1e-300), served_too=False)


@every_engine
def test_resuming_changes_nothing_at_the_server(engine, tmp_path):
    whole = train("finetune(1, at=server, momentum=0.5)", engine=engine, rounds=4)
    left = iter(range(1, 5))
    train("finetune(1, at=server, momentum=0.5)", engine=engine, rounds=4, out=tmp_path, stop=lambda: next(left) == 2)
    rest = train("finetune(1, at=server, momentum=0.5)", engine=engine, rounds=4, out=tmp_path, resume=True)
    assert torch.equal(rest.after[-1]["w"], whole.after[-1]["w"])


@every_engine
def test_the_server_drops_units_in_its_training(engine):
    model = torch.nn.Sequential(mlp()[:-1], torch.nn.Dropout(0.5), mlp()[-1])
    still = {"lr": 1e-300, "rounds": 1, "engine": engine}
    dropped, whole = (
        train("finetune(1, at=server, eta=0.1)", FEDERATION, net, **still).after[-1]["w"] for net in (model, mlp())
    )
    assert math.isfinite(float(dropped.sum()))
    assert (dropped - whole).abs().max() > 1e-3


# -- refusals --------------------------------------------------------------------------------------------------------
def leaking() -> Federation:
    return federate(ragged().data, "given", clients=4, public="test")


def test_what_cannot_be_is_refused_in_one_line():
    with raises_exactly("finetune needs public data: hold some out with --public 0.05 or federate(..., public=0.05)"):
        train("finetune", federate(ragged().data, "given", clients=4))
    with raises_exactly(
        "finetune: the public data is the test data, which makes test accuracy meaningless; hold out training data "
        "instead with --public 0.05, or set allow_test_leak=true"
    ):
        train("finetune", leaking())
    with raises_exactly(
        "finetune: eta and momentum are the server's, and at=clients trains with the run's lr and the local optimiser "
        "of the sum; leave them out, or use at=server"
    ):
        train("finetune(eta=0.1)")
    with raises_exactly("finetune: at must be one of clients, server, not nodes"):
        Method.parse("finetune(at=nodes)")
    with raises_exactly("fnr: batch must be a whole number of at least 1, not 0"):
        Method.parse("fnr(batch=0)")


def test_a_leaking_control_is_marked():
    ran = run("finetune(1, at=server, allow_test_leak=true)", leaking(), mlp(), rounds=1, cohort=3, precision="fp64")
    assert ran.summary["leaks_test_data"] is True
