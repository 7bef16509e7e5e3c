"""Every network in both engines: one local step of clients of unequal sizes, and the layout of the vector."""

from __future__ import annotations

import pytest
import torch

import holdfast
from holdfast.models.net import Net
from holdfast.models.zoo import TokenModel, make, models

SHAPE, CLASSES = (3, 32, 32), 10
SMALL = {"densenet": "densenet(depth=16)", "resnet34": "resnet34", "mlp": "mlp(width=25, depth=1)"}


ON_NUMBERS = sorted(name for name, cls in models().items() if not issubclass(cls, TokenModel))


def federation() -> holdfast.Federation:
    """Two clients with one and two samples: one of them is padded."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, *SHAPE, generator=g), torch.tensor([1, 7, 7])
    data = holdfast.DataSet("few", x, y, x, y, tuple("0123456789"), groups=torch.tensor([0, 1, 1]))
    return holdfast.federate(data, "given", clients=2)


@pytest.mark.parametrize("name", [*ON_NUMBERS, "vgg9(dropout=true)", "mlp(width=25, depth=1, dropout=0.5)"])
def test_a_step_is_the_same_in_both_engines(name):
    start = make(SMALL.get(name, name), SHAPE, CLASSES)
    settings = {"rounds": 1, "cohort": 2, "steps": 1, "batch": 2, "lr": 0.01, "precision": "fp64", "device": "cpu"}
    loop, vector = (
        holdfast.run("fedavg", federation(), start, engine=engine, **settings).w for engine in ("loop", "vector")
    )
    initial = Net(start, SHAPE, CLASSES, precision="fp64").initial
    assert not torch.equal(loop, initial)
    assert float((loop - vector).norm() / (loop - initial).norm()) < 1e-10


@pytest.mark.parametrize("name", ON_NUMBERS)
def test_blocks_neurons_and_head_cover_the_vector(name):
    layout = Net(make(SMALL.get(name, name), SHAPE, CLASSES), SHAPE, CLASSES).layout
    for unit in layout.units:
        numbers = layout.per_block(torch.arange(layout.blocks(unit)), unit)
        assert numbers.shape == (layout.size,)
        assert numbers.unique().tolist() == list(range(layout.blocks(unit)))
        assert numbers[layout.head_mask()].unique().tolist() == [layout.blocks(unit) - 1]
    neurons = layout.per_neuron(torch.arange(layout.neurons, dtype=torch.float64) + 2)
    assert neurons.shape == (layout.size,)
    assert neurons[layout.head_mask()].unique().tolist() == [layout.neurons - CLASSES + 2 + c for c in range(CLASSES)]
