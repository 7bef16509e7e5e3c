"""Every architecture: published size, shapes, gradients under vmap, units and first weights."""

from __future__ import annotations

import gc
import math
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import holdfast.models.networks
from helpers.exact_errors import raises_exactly
from holdfast.core.errors import HoldfastError
from holdfast.models.cost import mflops, parameters
from holdfast.models.dropout import Dropout, dropping
from holdfast.models.factories import from_factory
from holdfast.models.networks._layers import norm
from holdfast.models.networks.googlenet import STAGE3, STAGE4, STAGE5
from holdfast.models.zoo import Model, TokenModel, make, model, models

torch.set_num_threads(1)

DIGITS, MNIST, CIFAR, TINY, IMAGENET = (1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 224, 224)
ON_TOKENS = {name for name, cls in models().items() if issubclass(cls, TokenModel)}  # see test_token_networks.py
SPECS = [*sorted(models().keys() - ON_TOKENS), "resnet18(stem=cifar)", "alexnet(hidden=32)"]
IMAGE_MODELS = sorted(models().keys() - ON_TOKENS - {"linear", "mlp"})
LEAST = {
    "cnn": 4,
    "mnist-cnn": 4,
    "cifar10-cnn": 8,
    "lenet5": 12,
    "simple-cnn": 16,
    "mnist-example-cnn": 16,
    "vgg9": 8,
    "densenet": 4,
}
IN_UNITS = ("resnet18", "resnet34", "googlenet", "densenet", "densenet(depth=16)")


def dry(text: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network without its weights: even 133 million parameters take no time."""
    with torch.device("meta"):
        return model(text).build(shape, classes)


def chain(*widths: int) -> int:
    """Weights and biases of linear layers in a row."""
    return sum((a + 1) * b for a, b in pairwise(widths))


def convs(kernel: int, *widths: int) -> int:
    """Weights and biases of square convolutions in a row."""
    return sum((a * kernel**2 + 1) * b for a, b in pairwise(widths))


# ------------------------------------------------------------------------------------- published sizes

# The common CIFAR GoogLeNet gives each convolution a bias; the 5x5 branch's width counts for two of them.
BIASES = 192 + sum(sum(w) + w[4] for stage in (STAGE3, STAGE4, STAGE5) for w in stage.values())


@pytest.mark.parametrize(
    ("text", "shape", "classes", "published"),
    [
        ("linear", MNIST, 10, 7_850),
        ("mlp", MNIST, 10, 199_210),  # McMahan et al. 2017: the 2NN
        ("mlp(width=25, depth=1)", MNIST, 10, 19_885),  # FedNLR's Appendix A: 784-25-10
        ("mlp(width=100)", MNIST, 26, chain(784, 100, 100, 26)),
        ("mnist-cnn", MNIST, 10, 1_663_370),  # McMahan et al. 2017: the CNN
        ("cnn", CIFAR, 10, convs(5, 3, 64, 64) + chain(64 * 5 * 5, 384, 192, 10)),
        ("cnn", CIFAR, 100, convs(5, 3, 64, 64) + chain(64 * 5 * 5, 384, 192, 100)),
        ("cnn", MNIST, 10, convs(5, 1, 64, 64) + chain(64 * 4 * 4, 384, 192, 10)),
        ("cnn", TINY, 200, convs(5, 3, 64, 64, 64) + chain(64 * 4 * 4, 256, 128, 200)),
        ("cnn(width=8)", DIGITS, 10, convs(3, 1, 8, 8) + chain(8 * 2 * 2, 384, 192, 10)),
        ("cifar10-cnn", CIFAR, 10, convs(3, 3, 16, 32, 64) + chain(64 * 4 * 4, 512, 10)),
        ("lenet5", (1, 32, 32), 10, 61_706),
        ("lenet5", MNIST, 10, 61_706),
        ("lenet5(second=32)", MNIST, 26, convs(5, 1, 6, 32) + chain(32 * 5 * 5, 120, 84, 26)),
        ("vgg9", CIFAR, 10, 3_491_530),  # Wang et al. 2020 (FedMA)
        ("vgg9(dropout=true)", CIFAR, 10, 3_491_530),
        ("simple-cnn", CIFAR, 10, 62_006),  # NIID-Bench: conv 6 and 16 of 5x5, fc 120-84
        ("simple-cnn", MNIST, 10, convs(5, 1, 6, 16) + chain(16 * 4 * 4, 120, 84, 10)),
        ("mnist-example-cnn", MNIST, 10, 21_840),
        ("mlp(width=64, depth=1, dropout=0.5)", MNIST, 10, chain(784, 64, 10)),
        ("vgg11", CIFAR, 10, 9_750_922),  # FedNova in Flower's baselines
        ("resnet18", (3, 24, 24), 10, 11_181_642),  # Reddi et al. 2021: 24x24 crops
        ("vgg11", CIFAR, 10, convs(3, 3, 64, 128, 256, 256, *[512] * 4) + chain(512, 512, 512, 10)),
        ("vgg11(hidden=4096)", IMAGENET, 1000, 132_863_336),  # torchvision
        ("alexnet", IMAGENET, 1000, 61_100_840),  # torchvision
        (
            "alexnet",
            CIFAR,
            10,
            convs(11, 3, 64) + convs(5, 64, 192) + convs(3, 192, 384, 256, 256) + chain(256, 10),
        ),
        ("resnet18", IMAGENET, 1000, 11_689_512),  # torchvision; a GroupNorm has the weights of a BatchNorm
        ("resnet34", IMAGENET, 1000, 21_797_672),  # torchvision
        ("resnet18", CIFAR, 10, 11_689_512 - chain(512, 1000) + chain(512, 10)),
        ("resnet18(stem=cifar)", CIFAR, 10, 11_173_962),  # the common CIFAR ResNet-18
        ("googlenet", CIFAR, 10, 6_166_250 - BIASES),
        ("densenet", CIFAR, 10, 769_162),  # DenseNet-BC, L=100, k=12; 0.8M in Huang et al. 2017
        ("densenet", CIFAR, 100, 769_162 + 90 * 343),
    ],
)
def test_parameter_counts_are_the_published_ones(
    text: str, shape: tuple[int, ...], classes: int, published: int
) -> None:
    assert parameters(dry(text, shape, classes)) == published


@pytest.mark.parametrize(
    ("text", "giga"),
    [("resnet18", 1.814), ("resnet34", 3.664), ("vgg11(hidden=4096)", 7.609), ("alexnet", 0.714)],
)
def test_cost_is_twice_the_published_multiply_adds(text: str, giga: float) -> None:
    """Torchvision's tables print multiply-adds at 224 pixels."""
    assert mflops(dry(text, IMAGENET, 1000), IMAGENET) == pytest.approx(2000 * giga, rel=1e-3)


def test_cost_by_hand_and_without_traces() -> None:
    net = make("cnn", CIFAR, 10)
    convolutions = 28**2 * 64 * 75 + 10**2 * 64 * 1600
    assert mflops(net, CIFAR) == pytest.approx(2e-6 * (convolutions + 1600 * 384 + 384 * 192 + 192 * 10))
    assert not any(m._forward_hooks for m in net.modules())
    assert all(w.device.type == "cpu" for w in net.parameters())


def test_vgg9_drops_what_niid_bench_drops() -> None:
    net = make("vgg9(dropout=true)", CIFAR, 10)
    names = [name for name, _ in net.named_children()]
    found = {name: (m.p, m.channels) for name, m in net.named_children() if isinstance(m, Dropout)}
    assert found == {"drop_channels": (0.05, True), "drop1": (0.1, False), "drop2": (0.1, False)}
    before = {name: names[names.index(name) - 1] for name in found}
    assert before == {"drop_channels": "pool2", "drop1": "flat", "drop2": "fcrelu2"}
    assert not any(isinstance(m, Dropout) for m in make("vgg9", CIFAR, 10).modules())
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(net(x), make("vgg9", CIFAR, 10)(x))  # nothing is dropped without a key


def test_dropped_channels_are_whole() -> None:
    layer, x = Dropout(0.25, channels=True), torch.ones(40, 50, 2, 3)
    with dropping(torch.tensor(7)):
        out = layer(x)
    assert torch.equal(out, out[:, :, :1, :1].expand_as(out))
    assert sorted(out.unique().tolist()) == pytest.approx([0.0, 1 / 0.75])
    assert (out == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)


# ---------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("linear", [(7,), DIGITS, MNIST, CIFAR]),
        ("mlp", [(7,), DIGITS, MNIST, CIFAR]),
        ("cnn", [(1, 4, 4), DIGITS, MNIST, CIFAR, (3, 32, 40), TINY]),
        ("mnist-cnn", [DIGITS, MNIST, CIFAR]),
        ("cifar10-cnn", [DIGITS, MNIST, CIFAR, TINY]),
        ("lenet5", [(1, 12, 12), MNIST, CIFAR]),
        ("simple-cnn", [(1, 16, 16), MNIST, CIFAR]),
        ("mnist-example-cnn", [(1, 16, 16), MNIST]),
        ("vgg9", [DIGITS, MNIST, CIFAR]),
        ("vgg11", [DIGITS, MNIST, CIFAR]),
        ("alexnet", [DIGITS, MNIST, CIFAR, TINY]),
        ("resnet18", [DIGITS, MNIST, CIFAR, TINY]),
        ("resnet18(stem=cifar, groups=32)", [DIGITS, MNIST]),
        ("resnet34", [DIGITS, MNIST]),
        ("googlenet", [DIGITS, MNIST]),
        ("densenet(depth=22)", [(1, 4, 4), DIGITS, MNIST, CIFAR]),
    ],
)
def test_logits_are_what_the_head_says_of_flat_features(text: str, shapes: list[tuple[int, ...]]) -> None:
    for shape in shapes:
        net = make(text, shape, 5)
        head = net.get_submodule("head")
        assert isinstance(head, nn.Linear)
        seen: list[Tensor] = []
        handle = head.register_forward_hook(lambda _, inputs, out, seen=seen: seen.extend((*inputs, out)))
        out = net(torch.randn(2, *shape))
        handle.remove()
        assert seen[0].shape == (2, head.in_features)
        assert out.shape == (2, 5)
        assert out is seen[1]
        assert out.isfinite().all()
        assert list(dict(net.named_parameters()))[-1] == "head.bias"


@pytest.mark.parametrize("text", IMAGE_MODELS)
def test_flat_inputs_are_refused_in_one_line(text: str) -> None:
    least = LEAST.get(text, 1)
    pixels = f" of at least {least} x {least} pixels" if least > 1 else ""
    with raises_exactly(
        f"{text} needs images (channels, height, width){pixels}, not inputs of shape (64,); "
        "use linear or mlp, which accept any shape"
    ):
        make(text, (64,), 10)


@pytest.mark.parametrize(("text", "least"), LEAST.items())
def test_small_images_are_refused_and_the_least_is_taken(text: str, least: int) -> None:
    with raises_exactly(
        f"{text} needs images (channels, height, width) of at least {least} x {least} pixels, not inputs of shape "
        f"(1, {least}, {least - 1}); use linear or mlp, which accept any shape"
    ):
        make(text, (1, least, least - 1), 10)
    assert make(text, (1, least, least), 10)(torch.zeros(1, 1, least, least)).shape == (1, 10)


@pytest.fixture
def _forget_classes() -> Iterator[None]:
    """Classes that a test defines are not known to the tests after it."""
    yield
    gc.collect()


@pytest.mark.usefixtures("_forget_classes")
def test_a_new_network_is_one_new_file() -> None:
    """Every file of the folder that is no helper holds a network; a user may write one elsewhere."""

    @dataclass(frozen=True)
    class Flat(Model):
        name: ClassVar[str] = "test-flat"

        def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
            return nn.Sequential(OrderedDict(flat=nn.Flatten(), head=nn.Linear(math.prod(shape), classes)))

    assert parameters(make("test-flat", DIGITS, 10)) == 650
    folder = Path(holdfast.models.networks.__file__).parent
    files = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")}
    homes = {cls.__module__ for cls in models().values() if cls.__module__.startswith("holdfast.")}
    assert homes == {f"holdfast.models.networks.{file}" for file in files}


def test_bad_parameters_are_refused() -> None:
    with raises_exactly("densenet: depth is 11, expected 6 n + 4; use 10, 16, ..., 40 or 100"):
        model("densenet(depth=11)")
    with pytest.raises(HoldfastError, match="one of imagenet, cifar"):
        model("resnet18(stem=tiny)")
    with pytest.raises(HoldfastError, match="dropout"):
        model("vgg11(dropout=1)")


@pytest.mark.parametrize("text", SPECS)
def test_nothing_is_drawn_kept_or_written_in_place(text: str) -> None:
    net = dry(text, CIFAR, 10)
    assert not list(net.buffers())
    assert not any(getattr(m, "inplace", False) for m in net.modules())
    assert not any(isinstance(m, nn.modules.dropout._DropoutNd) for m in net.modules())
    numbers = [m.layer for m in net.modules() if isinstance(m, Dropout)]
    assert len(numbers) == len(set(numbers))


def test_group_norm_takes_the_groups_that_fit() -> None:
    assert [norm(c, g).num_groups for c, g in ((64, 2), (7, 2), (24, 32), (64, 32))] == [2, 1, 8, 32]


# ------------------------------------------------------------------------------- gradients of a cohort


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("linear", DIGITS),
        ("mlp(width=9, depth=2)", DIGITS),
        ("cnn(width=4)", DIGITS),
        ("cnn(width=4)", MNIST),
        ("mnist-cnn", DIGITS),
        ("cifar10-cnn", DIGITS),
        ("lenet5", (1, 12, 12)),
        ("vgg9", DIGITS),
        ("vgg9(dropout=true)", DIGITS),
        ("simple-cnn", (1, 16, 16)),
        ("mnist-example-cnn", (1, 16, 16)),
        ("vgg11", (1, 4, 4)),
        ("alexnet", DIGITS),
        ("alexnet(hidden=16)", (1, 64, 64)),
        ("resnet18", DIGITS),
        ("resnet18(stem=cifar)", (1, 4, 4)),
        ("resnet34", (1, 4, 4)),
        ("googlenet", (1, 4, 4)),
        ("densenet(depth=16)", (3, 6, 6)),
    ],
)
def test_vmap_of_grad_is_each_clients_own_autograd(text: str, shape: tuple[int, ...]) -> None:
    """Two clients with their own weights, batches and dropout keys. Warnings are errors: no slow fallback."""
    nets = [make(text, shape, 3, seed).double() for seed in (0, 1)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 2, *shape, generator=generator, dtype=torch.float64)
    y = torch.tensor([[0, 1], [2, 0]])
    keys = torch.tensor([11, 22])

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        with dropping(key):
            return F.cross_entropy(functional_call(nets[0], weights, (x,)), y)

    names = list(dict(nets[0].named_parameters()))
    together = {n: torch.stack([net.get_parameter(n).detach() for net in nets]) for n in names}
    batched = vmap(grad(loss))(together, x, y, keys)
    for client, net in enumerate(nets):
        with dropping(keys[client]):
            F.cross_entropy(net(x[client]), y[client]).backward()
        for name, weight in net.named_parameters():
            assert weight.grad is not None
            torch.testing.assert_close(batched[name][client], weight.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("text", ["cifar10-cnn", "vgg11", "alexnet(hidden=16)"])
def test_dropout_follows_its_key(text: str) -> None:
    net = make(text, TINY, 3)
    x = torch.randn(2, *TINY, generator=torch.Generator().manual_seed(0))

    def out(key: int | None) -> Tensor:
        with torch.no_grad(), dropping(None if key is None else torch.tensor(key)):
            return net(x)

    assert out(1).equal(out(1))
    assert not out(1).equal(out(2))
    assert not out(1).equal(out(None))
    assert out(None).equal(net(x))


@pytest.mark.parametrize("text", ["cnn(width=4)", "cifar10-cnn", "resnet18", "densenet(depth=10)", "googlenet"])
def test_forward_is_one_graph(text: str) -> None:
    """Nothing in a forward pass depends on the data: the compiler sees one graph."""
    net = make(text, DIGITS, 3)
    x = torch.randn(2, *DIGITS)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), net(x))


# ----------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("text", IN_UNITS)
def test_units_cover_each_parameter_once_and_bottom_up(text: str) -> None:
    net = dry(text, CIFAR, 10)
    names = list(dict(net.named_parameters()))
    for blocks in net.units.values():  # type: ignore[union-attr, operator]
        covered = [n for block in blocks for n in names if any(n.startswith(f"{p}.") for p in block)]
        assert covered == names


@pytest.mark.parametrize(
    ("text", "stages", "blocks"),
    [
        ("resnet18", 4, 8),
        ("resnet34", 4, 16),
        ("googlenet", 3, 9),
        ("densenet", 3, 48),
        ("densenet(depth=10)", 3, 3),
    ],
)
def test_units_count_as_the_papers_do(text: str, stages: int, blocks: int) -> None:
    """FedBug: M = 4 modules, or 8 (ResNet-18) and 16 (ResNet-34) residual blocks."""
    units = dry(text, CIFAR, 10).units
    assert (len(units["stage"]), len(units["block"])) == (stages, blocks)  # type: ignore[index, arg-type]


def test_plain_networks_declare_no_units() -> None:
    plain = models().keys() - ON_TOKENS - {"resnet18", "resnet34", "googlenet", "densenet"}
    assert not hasattr(make("lstm(hidden=2)", (4,), 10), "units")
    assert not any(hasattr(dry(text, CIFAR, 10), "units") for text in plain)


# --------------------------------------------------------------------------------------- first weights


def test_vgg9_starts_as_fednlr_says() -> None:
    net = make("vgg9", CIFAR, 10)
    for layer in (m for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))):
        weight = layer.weight.detach()
        assert layer.bias is not None
        assert not layer.bias.any()
        if isinstance(layer, nn.Conv2d):
            bound = math.sqrt(6 / (9 * layer.in_channels))
            assert 0.95 * bound < weight.abs().max() <= bound
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        else:
            std = math.sqrt(2 / (layer.in_features + layer.out_features))
            assert weight.std().item() == pytest.approx(std, rel=0.05)
            assert weight.abs().max() > 3 * std  # normal, not uniform


@pytest.mark.parametrize("text", ["resnet18", "vgg11", "googlenet", "densenet"])
def test_convolutions_start_he_normal_and_norms_at_one(text: str) -> None:
    for layer in make(text, CIFAR, 10).modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 10_000:
            std = math.sqrt(2 / (layer.out_channels * layer.kernel_size[0] ** 2))
            assert layer.weight.std().item() == pytest.approx(std, rel=0.05)
            assert layer.bias is None or not layer.bias.any()
        if isinstance(layer, nn.GroupNorm):
            assert (layer.weight == 1).all()
            assert not layer.bias.any()


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    first = make("cnn", DIGITS, 10, seed=3)
    torch.manual_seed(6)
    second, other = make("cnn", DIGITS, 10, seed=3), make("cnn", DIGITS, 10, seed=4)
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not any(a.equal(b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_classes_of_tests_are_forgotten() -> None:
    assert not any(name.startswith("test-") for name in models())


class Pausing(nn.Linear):
    """Draws its weights in two pieces, with time for other threads to draw between them."""

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.normal_()
            time.sleep(0.02)
            self.bias.normal_()


def test_threads_that_build_at_once_get_the_weights_of_their_seeds():
    def build(seed: int) -> nn.Module:
        return from_factory(lambda: Pausing(3, 2), (3,), 2, seed)

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(build, range(3)))
    for seed, module in enumerate(found):
        expected = build(seed).state_dict()
        assert all(torch.equal(t, expected[name]) for name, t in module.state_dict().items())
