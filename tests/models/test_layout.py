"""A model as one vector: every coordinate has its place, blocks follow the order in which layers run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers.exact_errors import raises_exactly
from holdfast import Net
from holdfast.models.layout import Layout

CLASSES = 3
NORMS = (nn.GroupNorm, nn.LayerNorm)


class Shuffled(nn.Module):
    """Layers that run in one order and are defined in another."""

    def __init__(self, layers: list[nn.Module], defined: list[int]) -> None:
        super().__init__()
        for i in defined:
            self.add_module(f"m{i}", layers[i])

    def forward(self, x: Tensor) -> Tensor:
        for i in range(len(list(self.children()))):
            x = getattr(self, f"m{i}")(x)
        return x


@dataclass
class Made:
    """A module, the layout found for it, and its layers in the order in which they run."""

    module: Shuffled
    layers: list[nn.Module]
    shape: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return Net(self.module, self.shape, CLASSES).layout

    @property
    def blocks(self) -> list[list[str]]:
        """By hand: a linear or convolutional layer with the norm after it."""
        found: list[list[str]] = []
        for i, layer in enumerate(self.layers):
            own = [f"m{i}.{name}" for name, _ in layer.named_parameters()]
            if isinstance(layer, NORMS) and own:
                found[-1] += own
            elif own:
                found.append(own)
        return found


@st.composite
def models(draw: st.DrawFn) -> Made:
    """A small dense or convolutional network with norms, activations and biases here and there."""
    layers: list[nn.Module] = []
    image = draw(st.booleans())
    width = draw(st.integers(1, 4))
    shape = (width, 4, 4) if image else (width,)
    for _ in range(draw(st.integers(0, 3)) if image else 0):
        out, bias = draw(st.integers(1, 4)), draw(st.booleans())
        layers.append(nn.Conv2d(width, out, 3, padding=1, bias=bias))
        if draw(st.booleans()):
            layers.append(nn.GroupNorm(1, out))
        if draw(st.booleans()):
            layers.append(nn.ReLU())
        width = out
    if image:
        layers.append(nn.Flatten())
        width *= 16
    for _ in range(draw(st.integers(0, 3))):
        out, bias = draw(st.integers(1, 4)), draw(st.booleans())
        layers.append(nn.Linear(width, out, bias=bias))
        if draw(st.booleans()):
            layers.append(nn.LayerNorm(out, elementwise_affine=draw(st.booleans())))
        if draw(st.booleans()):
            layers.append(nn.Tanh())
        width = out
    layers.append(nn.Linear(width, CLASSES, bias=draw(st.booleans())))
    defined = draw(st.permutations(range(len(layers))))
    return Made(Shuffled(layers, defined), layers, shape)


EXAMPLES = settings(max_examples=40)


@EXAMPLES
@given(models())
def test_split_and_join_are_inverse_and_name_every_parameter(made: Made):
    layout = made.layout
    parameters = dict(made.module.named_parameters())
    w = torch.randn(layout.size)
    pieces = layout.split(w)
    assert {n: p.shape for n, p in pieces.items()} == {n: p.shape for n, p in parameters.items()}
    assert torch.equal(layout.join(pieces), w)
    joined = layout.join({n: p.detach() for n, p in parameters.items()})
    assert all(torch.equal(p, parameters[n]) for n, p in layout.split(joined).items())
    assert all(p.untyped_storage().data_ptr() == w.untyped_storage().data_ptr() for p in pieces.values()), "no copy"


@EXAMPLES
@given(models())
def test_blocks_cover_every_coordinate_once_in_the_order_of_execution(made: Made):
    layout = made.layout
    assert [list(block) for block in layout.units["layer"]] == made.blocks
    assert layout.blocks("layer") == len(made.blocks)
    number = layout.per_block(torch.arange(len(made.blocks)), "layer")
    assert number.shape == (layout.size,)
    for name, piece in layout.split(number).items():
        (expected,) = (i for i, block in enumerate(made.blocks) if name in block)
        assert (piece == expected).all()


@EXAMPLES
@given(models())
def test_neurons_are_rows_with_their_bias_and_norm(made: Made):
    layout = made.layout
    dense = [i for i, layer in enumerate(made.layers) if isinstance(layer, (nn.Linear, nn.Conv2d))]
    widths = [made.layers[i].weight.shape[0] for i in dense]
    assert layout.neurons == sum(widths)
    values = torch.arange(layout.neurons) + 10
    pieces = layout.split(layout.per_neuron(values))
    for i, first, n in zip(dense, [0, *accumulate(widths)], widths, strict=False):
        expected = values[first : first + n]
        after = made.layers[i + 1] if i + 1 < len(made.layers) else None
        norm = i + 1 if isinstance(after, NORMS) else None
        for name, piece in pieces.items():
            if name.split(".")[0] in (f"m{i}", f"m{norm}"):
                assert torch.equal(piece.reshape(n, -1), expected[:, None].expand(n, piece.numel() // n)), name


@EXAMPLES
@given(models())
def test_the_head_is_the_last_layer(made: Made):
    mask = made.layout.head_mask()
    assert mask.dtype == torch.bool
    last = f"m{len(made.layers) - 1}"
    for name, piece in made.layout.split(mask).items():
        assert (piece == name.startswith(f"{last}.")).all()


def test_a_neuron_moves_its_own_channel_and_no_other():
    """By force: change a neuron's coordinates and see which channel after the norm moves."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(4, 4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.GroupNorm(6, 6),
        nn.Flatten(), nn.Linear(24, CLASSES),
    )  # fmt: skip
    net = Net(module, (2, 4, 4), CLASSES)
    x = torch.randn(2, 2, 4, 4)

    def outputs(w: Tensor) -> list[Tensor]:
        """What the three layers return after their norms, [batch, channels, positions]."""
        module.load_state_dict(net.layout.split(w))
        with torch.no_grad():
            return [module[:2](x).flatten(2), module[:5](x).flatten(2), module(x)[..., None]]

    base = outputs(net.initial)
    assert [(layer.name, layer.norm) for layer in net.layout.layers] == [("0", "1"), ("3", "4"), ("6", None)]
    for depth, layer in enumerate(net.layout.layers):
        for j in range(layer.neurons):
            bump = torch.zeros(net.layout.neurons)
            bump[layer.first + j] = 1
            hit = net.layout.per_neuron(bump) == 1
            moved = outputs(net.initial + hit * torch.randn(net.layout.size))[depth] != base[depth]
            assert moved.any(2).any(0).nonzero().flatten().tolist() == [j]


def test_outputs_of_a_transposed_convolution_are_its_neurons():
    layout = Net(nn.Sequential(nn.ConvTranspose2d(2, 5, 3), nn.Flatten(), nn.Linear(180, 3)), (2, 4, 4), 3).layout
    assert layout.layers[0].neurons == 5
    pieces = layout.split(layout.per_neuron(torch.arange(8) + 10))
    assert pieces["0.bias"].tolist() == [10, 11, 12, 13, 14]
    assert all((pieces["0.weight"][:, j] == 10 + j).all() for j in range(5))


class Loose(nn.Module):
    """A parameter of the model itself, a layer that never runs, and a recurrent layer, defined in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, CLASSES)
        self.recurrent = nn.GRU(4, 4, batch_first=True)
        self.below = nn.Linear(2, 4)
        self.scale = nn.Parameter(torch.ones(8))
        self.idle = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(self.below(x.reshape(-1, 2, 2)))
        return self.head(states.flatten(1) * self.scale)


def test_what_is_no_layer_has_a_block_and_no_neuron():
    layout = Net(Loose(), (4,), CLASSES).layout
    blocks = [name for block in layout.units["layer"] for name in block]
    assert sorted(blocks) == sorted(name for name, _ in Loose().named_parameters())
    pieces = layout.split(layout.per_neuron(torch.full((layout.neurons,), 7.0)))
    assert (pieces["scale"] == 1).all()
    assert (pieces["recurrent.weight_ih_l0"] == 1).all()
    assert (pieces["below.weight"] == 7).all()


def test_a_layer_that_returns_more_than_a_tensor_keeps_its_place():
    blocks = Net(Loose(), (4,), CLASSES).layout.units["layer"]
    order = [block[0].split(".")[0] for block in blocks]
    assert order.index("below") < order.index("recurrent") < order.index("head")


class Staged(nn.Module):
    units = {"stage": [["a"], ["b", "head"]]}  # noqa: RUF012

    def __init__(self, units: dict[str, list[list[str]]] | None = None) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.units = units or self.units

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x)))


def test_a_module_may_declare_units():
    layout = Net(Staged(), (2,), CLASSES).layout
    assert (layout.blocks("layer"), layout.blocks("stage")) == (3, 2)
    spread = layout.split(layout.per_block(torch.tensor([5.0, 6.0]), "stage"))
    for name, piece in spread.items():
        assert set(piece.flatten().tolist()) == {5.0 if name.startswith("a.") else 6.0}


@pytest.mark.parametrize(
    ("units", "odd"),
    [([["a"], ["b"]], "'head.bias' in no block"), ([["a", "b"], ["b", "head"]], "'b.weight' more than once")],
)
def test_units_must_name_every_parameter_once(units: list[list[str]], odd: str):
    with raises_exactly(f"unit 'stage' of the model has the parameter {odd}; name every parameter exactly once"):
        Net(Staged({"stage": units}), (2,), CLASSES)


def test_an_unknown_unit_is_met_with_those_there_are():
    layout = Net(Staged(), (2,), CLASSES).layout
    with raises_exactly(
        "this model has no unit 'block', only layer, stage; use one of these, or set "
        "units = {'block': [[module names], ...]} on the module, bottom-up"
    ):
        layout.per_block(torch.zeros(1), "block")
