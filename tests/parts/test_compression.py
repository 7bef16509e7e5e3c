"""quantize and topk: their equations, the bytes they save, and what travels in messages."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.flower_toys import MemoryGrid, changed, on_grid
from helpers.toys import Number, Quadratic, points, train
from holdfast import HoldfastError, Method, run
from holdfast.flower.messages import TRAIN
from holdfast.method.encoding import Encoder
from holdfast.method.part import Client, Sent

SUMS = ["quantize(4)", "quantize(8, feedback=false)", "topk(0.1)", "scaffold+topk(0.2)+quantize(8)"]


def part(text):
    return Method.parse(text).parts[0]


def vector(n=59, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bits", [2, 3, 8, 16])
def test_quantize_rounds_to_the_nearest_of_its_levels(bits):
    x = vector()
    step = x.abs().max() / (2 ** (bits - 1) - 1)
    levels = np.arange(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1)) * float(step)
    nearest = levels[np.abs(levels[None] - x.numpy()[:, None]).argmin(1)]
    found = part(f"quantize({bits})").rounded(x)
    assert np.allclose(found, nearest, atol=1e-12)
    assert len(np.unique(found.numpy().round(9))) <= 2**bits - 1


def test_a_vector_of_zeros_stays_zero():
    assert torch.equal(part("quantize").rounded(torch.zeros(4)), torch.zeros(4))


def test_what_is_not_finite_stays_so():
    for bad in (float("nan"), float("inf")):
        x = torch.tensor([1.0, bad])
        encoder = Encoder(Method.parse("quantize(4)"), {"delta": x})
        sent = part("quantize(4)").rounded(x)
        assert not torch.isfinite(encoder.read(encoder.write({"delta": sent}))["delta"]).all()


@pytest.mark.parametrize("sum", ["quantize(2)", "quantize(5)", "topk(0.3)", "topk(0.3)+quantize(6)"])
def test_what_is_written_is_what_is_read(sum):
    method, x = Method.parse(sum), vector()
    sent = x
    for p in method.parts:  # as they change it
        sent = p.rounded(sent) if p.name == "quantize" else p.decode(p.encode(sent), sent)
    tensors = {"delta": sent, "uploads/a/number": torch.tensor(3.0), "uploads/b/rows": torch.arange(4)}
    encoder = Encoder(method, tensors)
    written = encoder.write(tensors)
    assert {k: t.shape for k, t in written.items()} == {k: t.shape for k, t in encoder.template.items()}
    for name, t in encoder.read(written).items():
        assert torch.allclose(t, tensors[name], atol=1e-12), name


def test_places_outside_of_the_model_are_refused():
    with pytest.raises(ValueError, match="names entries that the model does not have"):
        part("topk").decode({"places": torch.tensor([99]), "values": torch.ones(1)}, vector())


def test_error_feedback_by_hand():
    """A client that pulls towards 10 with lr 1/2 from 0: levels are +-max, so that two bits send all of it."""
    far = points((10.0, 1))
    ran = train(Quadratic() + part("topk(1)"), far, Number(0.0), lr=0.5, batch=1, epochs=1, rounds=3, cohort=1)
    assert [float(a["w"]) for a in ran.after] == pytest.approx([0, 5, 7.5, 8.75])


@pytest.mark.parametrize("sum", ["topk(0.05)", "quantize(2)"])
def test_with_feedback_nothing_is_lost(sum):
    """All updates sent so far and what waits add up to all updates, round by round."""
    p = part(sum)
    client = Client(SimpleNamespace(kept=[]), *[torch.tensor(0.0)] * 8, epochs=1, rated=False)
    state, arrived, made = {"error": torch.zeros(59, dtype=torch.float64)}, 0.0, 0.0
    for t in range(20):
        client.state = state
        sent, state = p.send(client, Sent(vector(seed=t), {}))
        arrived, made = arrived + sent.delta, made + vector(seed=t)
        assert torch.allclose(arrived + state["error"], made, atol=1e-12)
    assert float((arrived - made).norm()) < float(made.norm())


@pytest.mark.parametrize(
    ("sum", "size"),
    [("fedavg", 59 * 8), ("quantize(4)", 30 + 8), ("topk(0.1)", 6 * 12), ("topk(0.1)+quantize(4)", 6 * 4 + 3 + 8),
     ("scaffold+quantize(8)", 2 * (59 + 8))],
)  # fmt: skip
def test_bytes_are_counted_as_sent(sum, size):
    """59 numbers of 8 bytes, for each of three clients."""
    assert train(sum, rounds=1, engine="loop").history[0].upload_bytes == 3 * size


@pytest.mark.parametrize("sum", SUMS)
def test_messages_are_as_small_and_say_the_same(sum):
    sizes = {}

    def trouble(request, reply):
        if request.metadata.message_type == TRAIN:
            arrays = reply.content["arrays"]
            sizes[request.content["numbers"]["round"]] = sum_of(arrays)
        return reply

    settings = {"rounds": 2, "epochs": 1, "cohort": 4, "precision": "fp64"}
    values = {"data": "digits", "split": "dirichlet(0.5)", "clients": 4, "model": "mlp", "batch": 64, "device": "cpu"}
    grid = MemoryGrid({**values, **settings, "method": sum}, 4, trouble)
    found = on_grid(sum, grid, **settings)
    expected = run(sum, engine="loop", **values, **settings)
    assert torch.allclose(found.w, expected.w, atol=1e-9)
    assert found.history[0].upload_bytes == expected.history[0].upload_bytes
    assert found.history[0].upload_bytes / 4 == sizes[1] - 8  # the loss


def sum_of(arrays) -> int:
    """Return the bytes of a client's arrays without their headers."""
    return sum(np.asarray(array.numpy()).nbytes for array in arrays.values())


def test_a_node_that_names_wrong_entries_is_left_out():
    def trouble(request, reply):
        if request.metadata.message_type != TRAIN or request.content["numbers"]["clients"] != [1]:
            return reply
        places = reply.content["arrays"]["1/delta#places"].numpy()
        return changed(reply, **{"1/delta#places": places + 10**6})

    settings = {"rounds": 1, "epochs": 1, "cohort": 4}
    values = {"data": "digits", "split": "dirichlet(0.5)", "clients": 4, "model": "mlp", "batch": 64, "device": "cpu"}
    found = on_grid("topk", MemoryGrid({**values, **settings, "method": "topk"}, 4, trouble), **settings)
    assert found.history[0].failed == {1: "refused: it names entries that the model does not have"}


def test_orders_that_make_no_sense_are_refused():
    with pytest.raises(HoldfastError, match=r"quantize must come after topk: .*; write topk\+quantize"):
        Method.parse("quantize+topk")
    with pytest.raises(HoldfastError, match="dp must come after quantize"):
        train("dp+quantize")
    with pytest.raises(HoldfastError, match=r"dp\(where=clients\) undoes what topk makes small"):
        train("topk+dp(where=clients)")
