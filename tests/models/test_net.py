"""A network as a function of a vector: it computes what the module computes, finds its head, replaces its dropout."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast import HoldfastError, Net, to_groupnorm
from holdfast.core import rng
from holdfast.models.dropout import Dropout

FLAT, IMAGE = (4,), (1, 6, 6)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3, bias=False)
    )


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(5, 3)
        self.inner, self.first = nn.Linear(5, 5), nn.Linear(4, 5)
        self.register_buffer("shift", torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.classify(torch.relu(h + self.inner(h)) + self.shift)


class Twice(nn.Module):
    """Its inner layer runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


@pytest.mark.parametrize(
    ("make", "shape", "head"),
    [
        (mlp, FLAT, "3"), (cnn, IMAGE, "5"), (Residual, FLAT, "classify"), (Twice, FLAT, "head"),
        (lambda: nn.Linear(4, 3), FLAT, ""), (lambda: nn.Sequential(mlp(), nn.Identity()), FLAT, "0.3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_function_computes_what_the_module_computes(
    make: Callable[[], nn.Module], shape: tuple[int, ...], head: str, precision: str
):
    torch.manual_seed(0)
    module = make()
    before = copy.deepcopy(module.state_dict())
    net = Net(module, shape, 3, precision=precision)
    twin = copy.deepcopy(module).to(net.dtype)
    x = torch.randn(7, *shape, dtype=net.dtype)
    assert net.head == head
    torch.testing.assert_close(net(net.initial, x).logits, twin(x))
    w = net.initial + 0.1 * torch.randn_like(net.initial)
    twin.load_state_dict(net.layout.split(w), strict=False)
    out = net(w, x)
    torch.testing.assert_close(out.logits, twin(x))
    torch.testing.assert_close(net(net.layout.split(w), x).logits, out.logits)
    last = twin.get_submodule(head)
    torch.testing.assert_close(nn.functional.linear(out.features, last.weight, last.bias), out.logits)
    assert module.training, "the caller's module is not touched"
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())


def test_it_can_be_batched_over_models():
    torch.manual_seed(0)
    net = Net(cnn(), IMAGE, 3)
    ws = net.initial + 0.1 * torch.randn(3, net.layout.size)
    x = torch.randn(3, 5, *IMAGE)
    together = vmap(lambda w, x: net(w, x).logits)(ws, x)
    torch.testing.assert_close(together, torch.stack([net(w, one).logits for w, one in zip(ws, x, strict=True)]))


def test_features_are_the_input_of_the_head():
    module = Residual()
    x = torch.randn(6, 4)
    seen: list[Tensor] = []
    module.classify.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    module(x)
    net = Net(module, FLAT, 3)
    torch.testing.assert_close(net(net.initial, x).features, seen[0])


def trained(module: nn.Module) -> dict[str, Tensor]:
    data = holdfast.from_arrays(torch.randn(60, 4), torch.arange(60) % 3)
    return holdfast.run("fedavg", holdfast.federate(data, "iid", clients=2), module, rounds=1, steps=2).state_dict()


@pytest.mark.parametrize("make", [mlp, Residual, Twice])
def test_a_trained_model_is_loaded_into_the_module(make: Callable[[], nn.Module]):
    """As in the README; buffers, which are not trained, are included."""
    module = make()
    before = copy.deepcopy(module)
    module.load_state_dict(trained(module))
    assert all(not torch.equal(p, q) for p, q in zip(module.parameters(), before.parameters(), strict=True))
    assert all(torch.equal(p, q) for p, q in zip(module.buffers(), before.buffers(), strict=True))


def test_a_layer_that_the_user_froze_stays():
    module = mlp()
    module[0].requires_grad_(False)
    found = trained(module)
    assert torch.equal(found["0.weight"], module[0].weight)
    assert not torch.equal(found["3.weight"], module[3].weight)
    net = Net(module, FLAT, 3)
    assert net.layout.names == ("2.weight", "2.bias", "3.weight", "3.bias")
    assert net.initial.numel() == 8 + 8 + 24 + 3


# -- the head --------------------
class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        self.left(h)
        return self.right(h)


def test_the_head_is_the_layer_whose_output_is_returned():
    assert Net(TwoHeads(), FLAT, 3).head == "right"
    assert Net(TwoHeads(), FLAT, 3, head="right").head == "right"


NOT_ITS_OUTPUT = (
    "the model's output is not that of its head {!r}; return the logits of a last nn.Linear, without a softmax after it"
)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("left", NOT_ITS_OUTPUT.format("left")),
        ("body", NOT_ITS_OUTPUT.format("body")),
        ("nose", "the model has no linear layer 'nose' to be its head; use body, left or right"),
    ],
)
def test_a_wrong_head_is_refused(head: str, message: str):
    with raises_exactly(message):
        Net(TwoHeads(), FLAT, 3, head=head)


class Shared(nn.Module):
    """Its head runs inside the network, too."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.only(torch.tanh(self.only(x)))


class Tied(nn.Module):
    """Its head has the weights of another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.below, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        self.head.weight = self.below.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.below(x)))


def wrapped(module: nn.Module, shape: tuple[int, ...], classes: int) -> Net | str:
    """The network, or the error that refuses the module."""
    try:
        return Net(module, shape, classes)
    except HoldfastError as error:
        return str(error)


def repeated() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


@pytest.mark.parametrize("make", [Shared, Tied, repeated])
def test_a_head_that_is_not_alone_is_right_or_refused(make: Callable[[], nn.Module]):
    """Never silently another function than the module's."""
    module, x = make(), torch.randn(5, 4)
    net = wrapped(module, FLAT, 4)
    if isinstance(net, str):
        assert "head" in net
        return
    torch.testing.assert_close(net(net.initial, x).logits, module(x))
    w = net.initial + 0.1
    module.load_state_dict(net.layout.split(w), strict=False)
    torch.testing.assert_close(net(w, x).logits, module(x))


# -- dropout --------------------
def test_dropout_is_replaced_and_follows_the_key():
    module = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.4), nn.Linear(50, 50), nn.Dropout(0.4), nn.Linear(50, 3))
    net, x = Net(module, FLAT, 3), torch.randn(20, 4)
    assert net.dropout
    assert not any(isinstance(m, nn.Dropout) for m in net.body.modules())
    assert isinstance(module[1], nn.Dropout)
    one, again, other, none = (
        net.training_pass(net.initial, x, None, k)[0].logits for k in (rng.key(1), rng.key(1), rng.key(2), None)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    torch.testing.assert_close(none, module.eval()(x))


def test_every_dropout_layer_drops_units_of_its_own():
    net = Net(nn.Sequential(nn.Dropout(0.4), nn.Identity(), nn.Dropout(0.4), nn.Linear(400, 2)), (400,), 2)
    features = net.training_pass(net.initial, torch.ones(5, 400), None, rng.key(1))[0].features
    kept = (features - 1 / 0.6**2).abs() < 1e-4
    assert (kept | (features == 0)).all()
    assert float(kept.float().mean()) == pytest.approx(0.36, abs=0.05), "kept twice, with 0.6 * 0.6"


class DropsTwice(nn.Module):
    """As many models are written: one dropout layer, called wherever it is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.4), nn.Linear(400, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.drop(x)))


def listed_twice() -> nn.Module:
    drop = nn.Dropout(0.4)
    return nn.Sequential(drop, nn.Identity(), drop, nn.Linear(400, 2))


@pytest.mark.parametrize("make", [DropsTwice, listed_twice])
def test_one_dropout_layer_in_two_places_drops_in_both(make: Callable[[], nn.Module]):
    net = Net(make(), (400,), 2)
    features = net.training_pass(net.initial, torch.ones(5, 400), None, rng.key(1))[0].features
    assert float((features != 0).float().mean()) == pytest.approx(0.36, abs=0.05), "kept twice, with 0.6 * 0.6"


@pytest.mark.parametrize("drop", [nn.Dropout2d(0.5), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.5)])
def test_other_kinds_of_dropout_are_not_silently_switched_off(drop: nn.Module):
    module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), drop, nn.Flatten(), nn.Linear(288, 3))
    net = wrapped(module, IMAGE, 3)
    if isinstance(net, str):
        assert type(drop).__name__ in net
        return
    one, other = (net.training_pass(net.initial, torch.ones(4, *IMAGE), None, rng.key(k))[0].logits for k in (1, 2))
    assert not torch.equal(one, other)


def test_no_dropout_is_known():
    assert not Net(mlp(), FLAT, 3).dropout
    assert not Net(nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)), FLAT, 3).dropout
    assert Net(nn.Sequential(Dropout(0.1), nn.Linear(4, 3)), FLAT, 3).dropout


@pytest.mark.parametrize(("make", "shape", "found"), [(mlp, FLAT, False), (cnn, IMAGE, True)])
def test_convolutions_are_known(make: Callable[[], nn.Module], shape: tuple[int, ...], found: bool):
    assert Net(make(), shape, 3).convolutional == found


# -- BatchNorm --------------------
class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6, eps=1e-3))
        self.more = nn.Sequential(nn.Sequential(nn.Conv2d(6, 5, 3), nn.BatchNorm2d(5, affine=False)))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.more(self.stem(x)))


def test_batch_norm_is_converted_everywhere():
    module = Nested()
    module.stem[1].weight.data.uniform_(1, 2)
    converted = to_groupnorm(module)
    norms = {n: m for n, m in converted.named_modules() if isinstance(m, nn.GroupNorm)}
    assert {n: (m.num_groups, m.num_channels, m.affine) for n, m in norms.items()} == {
        "stem.1": (2, 6, True), "more.0.1": (1, 5, False), "head.2": (2, 8, True),
    }  # fmt: skip
    assert norms["stem.1"].eps == 1e-3
    assert torch.equal(norms["stem.1"].weight, module.stem[1].weight)
    assert isinstance(module.stem[1], nn.BatchNorm2d), "a copy"
    net = Net(converted, IMAGE, 3)
    x = torch.randn(2, *IMAGE)
    torch.testing.assert_close(net(net.initial, x).logits, converted(x))


def test_a_lone_norm_and_a_model_without_any_are_converted():
    assert isinstance(to_groupnorm(nn.BatchNorm1d(4)), nn.GroupNorm)
    assert to_groupnorm(nn.BatchNorm2d(12), groups=5).num_groups == 4
    module = mlp()
    same = to_groupnorm(module)
    assert same is not module
    assert str(same) == str(module)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            nn.Linear(5, 3),
            "the model fails on a batch of shape (2, 4): RuntimeError: mat1 and mat2 shapes cannot be multiplied "
            "(2x4 and 5x3); choose a model for this data",
        ),
        (
            nn.Linear(4, 2),
            "the model returns shape (2, 2) for 2 samples, expected logits of shape (2, 3); change its last layer",
        ),
        (
            nn.GRU(4, 3),
            "the model returns a tuple for 2 samples, expected logits of shape (2, 3); change its last layer",
        ),
        (
            nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)),
            "the model returns probabilities, which sum to one, expected logits; leave out its last softmax",
        ),
        (
            nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)).requires_grad_(False),
            "the model has no parameter to train: every one has requires_grad=False; leave it True for some of them",
        ),
    ],
)
def test_modules_that_do_not_fit(module: nn.Module, message: str):
    with raises_exactly(message):
        Net(module, FLAT, 3)


@pytest.mark.parametrize(("make", "head"), [(Shared, "only"), (repeated, "0")])
def test_a_layer_that_runs_twice_is_no_head(make: Callable[[], nn.Module], head: str):
    net, x = Net(make(), FLAT, 4), torch.randn(5, 4)
    assert net.head is None
    assert net.layout.head == ()
    torch.testing.assert_close(net(net.initial, x).logits, make_and_load(make, net)(x))
    with raises_exactly(f"the model's head {head!r} is also used elsewhere in the model; give it its own weights"):
        Net(make(), FLAT, 4, head=head)


def make_and_load(make: Callable[[], nn.Module], net: Net) -> nn.Module:
    module = make()
    module.load_state_dict(net.state_dict(net.initial))
    return module


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_low_precision_gives_float32_logits_that_are_near(precision: str):
    module, x = mlp(), torch.randn(5, 4)
    net = Net(module, FLAT, 3, precision=precision)
    found = net(net.initial, x).logits
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, module(x).detach(), atol=0.05, rtol=0.05)


class Tied(nn.Module):
    """Two layers share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_layers_that_share_a_weight_share_it_in_the_vector():
    module = Tied()
    net, x = Net(module, FLAT, 3), torch.randn(5, 4)
    moved = net.initial + 0.1
    with torch.no_grad():
        for p in module.parameters():
            p += 0.1
    assert net.layout.size == sum(p.numel() for p in module.parameters())
    assert torch.allclose(net(moved, x).logits, module(x), atol=1e-6)


def test_gradients_in_bf16_are_those_of_autocast():
    """Weights that are converted before they are differentiated get the very gradients that autocast gives."""
    net = Net(cnn(), IMAGE, 3, precision="bf16")
    x, y = torch.randn(6, *IMAGE), torch.randint(0, 3, (6,))

    def gradients(pieces: dict[str, Tensor]) -> dict[str, Tensor]:
        leaves = {name: p.requires_grad_() for name, p in pieces.items()}
        loss = nn.functional.cross_entropy(net(leaves, x).logits, y)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    whole = gradients({name: p.detach().clone() for name, p in net.layout.split(net.initial).items()})
    early = gradients(net.leaves(net.initial.clone()))
    assert early["0.weight"].dtype == torch.bfloat16
    assert early["5.weight"].dtype == torch.float32, "the head's stay as they are"
    for name, g in whole.items():
        assert torch.equal(early[name].to(g.dtype), g), name
