"""A convolution as a matrix product is the same convolution."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import holdfast
from helpers.narrow_resnet import NarrowResNet
from holdfast.models.corner_pooling import CornerPool2d, is_corner_pool, pool_before_relu
from holdfast.models.product_convolution import ProductConv2d, is_product_convolution, with_products

# kernel, stride, padding, size of the image: those of the zoo, and one window larger than the image.
CASES = [
    (5, 1, 0, 12),
    (3, 1, 1, 8),
    (3, 2, 1, 8),
    (7, 2, 3, 16),
    (1, 2, 0, 8),
    (3, 2, 1, 1),
    (11, 4, 5, 16),
    (1, 1, 0, 3),
]


def both(kernel: int, stride: int, padding: int, bias: bool = True) -> tuple[nn.Conv2d, ProductConv2d]:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 8, kernel, stride, padding, bias=bias, dtype=torch.float64)
    return conv, ProductConv2d(conv)


@pytest.mark.parametrize(("kernel", "stride", "padding", "size"), CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients(kernel, stride, padding, size, bias):
    conv, product = both(kernel, stride, padding, bias)
    x = torch.randn(4, 3, size, size, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(product(x), conv(x), rtol=1e-12, atol=1e-12)
    wrt = [x, *conv.parameters()]
    expected = torch.autograd.grad((conv(x) ** 3).sum(), wrt)
    for found, known in zip(torch.autograd.grad((product(x) ** 3).sum(), wrt), expected, strict=True):
        assert torch.allclose(found, known, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("kernel", "stride", "padding", "size"), CASES[:4])
def test_every_client_with_a_kernel_of_its_own(kernel, stride, padding, size):
    conv, product = both(kernel, stride, padding)
    weights = {n: torch.randn(5, *p.shape, dtype=torch.float64) for n, p in conv.named_parameters()}
    x = torch.randn(5, 2, 3, size, size, dtype=torch.float64)

    def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
        return vmap(grad(lambda w, x: (functional_call(module, w, (x,)) ** 3).sum()))(weights, x)

    found, expected = gradients(product), gradients(conv)
    assert all(torch.allclose(found[n], expected[n], rtol=1e-10, atol=1e-9) for n in expected)


@pytest.mark.parametrize("size", [(8, 8), (5, 7), (2, 3), (1, 4)])
def test_a_pool_of_comparisons_is_the_same_pool(size):
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (2, 3, *size)).double().requires_grad_()  # few values: many ties
    g = torch.randn(2, 3, size[0] // 2, size[1] // 2, dtype=torch.float64)
    if min(size) < 2:
        assert CornerPool2d()(x).numel() == 0
        return
    ours, theirs = CornerPool2d()(x), nn.MaxPool2d(2)(x)
    assert torch.equal(ours, theirs)
    assert torch.equal(torch.autograd.grad(ours, x, g)[0], torch.autograd.grad(theirs, x, g)[0])


def test_pooling_before_the_relu_changes_nothing():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(1, 2, 1, dtype=torch.float64), nn.ReLU(), nn.MaxPool2d(2))
    x = torch.randint(-3, 3, (2, 1, 6, 6)).double().requires_grad_()
    swapped = with_products(copy.deepcopy(block))
    pool_before_relu(swapped)
    assert [type(m).__name__ for m in swapped] == ["ProductConv2d", "CornerPool2d", "ReLU"]
    g = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    for wrt, own in zip([x, *block.parameters()], [x, *swapped.parameters()], strict=True):
        expected = torch.autograd.grad(block(x), wrt, g)[0]
        assert torch.allclose(torch.autograd.grad(swapped(x), own, g)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "pool", [nn.MaxPool2d(3), nn.MaxPool2d(2, 1), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, ceil_mode=True)]
)
def test_other_pools_stay_as_they_are(pool):
    assert not is_corner_pool(pool)
    assert with_products(nn.Sequential(pool))[0] is pool


@pytest.mark.parametrize("model", ["cnn", NarrowResNet], ids=["cnn", "resnet"])
def test_a_run_with_products_equals_the_loop(model):
    settings = {"rounds": 1, "clients": 6, "cohort": 2, "steps": 2, "batch": 4, "precision": "fp64", "device": "cpu"}
    loop = holdfast.run("scaffold+fedbug(0.4)", model=model, engine="loop", **settings)
    ours = holdfast.run("scaffold+fedbug(0.4)", model=model, engine="vector", convolution="product", **settings)
    moved = (loop.w - loop.net.initial).norm()
    assert float((ours.w - loop.w).norm() / moved) < 1e-10


def test_low_precision_stays_close():
    settings = {"model": "cnn", "rounds": 1, "clients": 6, "cohort": 2, "steps": 2, "engine": "vector", "device": "cpu"}
    exact = holdfast.run("fedavg", precision="fp64", **settings)
    low = holdfast.run("fedavg", precision="bf16", convolution="product", **settings)
    assert low.history[0].test_loss == pytest.approx(exact.history[0].test_loss, rel=1e-2)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Conv2d(4, 4, 3), True),
        (nn.Conv2d(4, 4, 3, groups=2), False),
        (nn.Conv2d(4, 4, 3, dilation=2), False),
        (nn.Conv2d(4, 4, 3, padding="same"), False),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), False),
        (nn.Linear(4, 4), False),
    ],
)
def test_what_is_replaced(module, expected):
    assert is_product_convolution(module) is expected
