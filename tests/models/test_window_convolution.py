"""A convolution that reads its windows in place is the same convolution; on a CPU its operators are PyTorch's."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch._inductor
from torch import nn
from torch.func import functional_call, grad, vmap

import holdfast
from helpers import interpreted_windows
from helpers.narrow_resnet import NarrowResNet
from holdfast.core.errors import HoldfastError
from holdfast.engines import choose
from holdfast.models.product_convolution import ProductConv2d
from holdfast.models.window_convolution import WindowConv2d, live, with_windows
from holdfast.models.window_gradients import WindowProducts
from holdfast.models.window_rules import Blocks, sum_blocks, sum_parts, windows
from holdfast.runs.folder import RunFolder

# kernel, stride, padding, size of the image, channels: those of the zoo, and windows larger than the image.
CASES = [
    (5, 1, 0, 12, 3),
    (3, 1, 1, 8, 16),
    (3, 2, 1, 8, 16),
    (7, 2, 3, 16, 3),
    (1, 2, 0, 8, 16),
    (3, 2, 1, 2, 16),
    (3, 1, 1, 1, 16),
    (11, 4, 5, 16, 3),
    (1, 1, 1, 3, 16),
]


def both(kernel: int, stride: int, padding: int, channels: int, bias: bool = True) -> tuple[nn.Conv2d, WindowConv2d]:
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, 8, kernel, stride, padding, bias=bias, dtype=torch.float64)
    return conv, WindowConv2d(conv, tf32=False)


def weights_of(conv: nn.Conv2d, clients: int) -> dict[str, torch.Tensor]:
    return {n: torch.randn(clients, *p.shape, dtype=torch.float64) for n, p in conv.named_parameters()}


@pytest.mark.parametrize(("kernel", "stride", "padding", "size", "channels"), CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_every_client_with_a_kernel_of_its_own(kernel, stride, padding, size, channels, bias):
    conv, ours = both(kernel, stride, padding, channels, bias)
    weights, x = weights_of(conv, 3), torch.randn(3, 2, channels, size, size, dtype=torch.float64)

    def gradients(module: nn.Module):
        return vmap(grad(lambda w, x: (functional_call(module, w, (x,)) ** 3).sum(), argnums=(0, 1)))(weights, x)

    (found, of_x), (expected, known) = gradients(ours), gradients(conv)
    assert torch.allclose(of_x, known, rtol=1e-10, atol=1e-9)
    assert all(torch.allclose(found[n], expected[n], rtol=1e-10, atol=1e-9) for n in expected)


@pytest.mark.parametrize(("kernel", "stride", "padding", "size", "channels"), CASES[:3])
def test_gradients_of_gradients(kernel, stride, padding, size, channels):
    """With a penalty on the gradient's length, the backward passes are differentiated, too."""
    conv, ours = both(kernel, stride, padding, channels)
    weights, x = weights_of(conv, 2), torch.randn(2, 2, channels, size, size, dtype=torch.float64)

    def penalty(module: nn.Module, w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        inner = grad(lambda w, x: (functional_call(module, w, (x,)) ** 3).mean(), argnums=(0, 1))(w, x)
        return sum((g**2).sum() for g in (*inner[0].values(), inner[1]))

    found, expected = (vmap(grad(lambda w, x, m=m: penalty(m, w, x)))(weights, x) for m in (ours, conv))
    assert all(torch.allclose(found[n], expected[n], rtol=1e-9, atol=1e-9) for n in expected)


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (1, 2)], ids=["one kernel", "the same images", "other axes"])
def test_what_clients_share(axes):
    conv, ours = both(3, 1, 1, 16)
    weights, x = weights_of(conv, 3), torch.randn(3, 2, 16, 5, 5, dtype=torch.float64)
    if axes[0] is None:
        weights = {n: w[0] for n, w in weights.items()}
    elif axes[0]:
        weights = {n: w.movedim(0, 1) for n, w in weights.items()}
    x = x[0] if axes[1] is None else x.movedim(0, axes[1])

    def gradients(module: nn.Module):
        one = grad(lambda w, x: (functional_call(module, w, (x,)) ** 3).sum(), argnums=(0, 1))
        return vmap(one, in_dims=axes)(weights, x)

    (found, of_x), (expected, known) = gradients(ours), gradients(conv)
    assert torch.allclose(of_x, known, rtol=1e-10, atol=1e-9)
    assert all(torch.allclose(found[n], expected[n], rtol=1e-10, atol=1e-9) for n in expected)


def test_one_model_alone_is_computed_as_products():
    conv, ours = both(3, 1, 1, 3)
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    assert torch.equal(ours(x), ProductConv2d(conv)(x))


@pytest.mark.parametrize(
    ("kernel", "size", "stride", "padding", "taps"),
    [(3, 1, 1, 1, 1), (3, 2, 2, 1, 2), (3, 2, 1, 1, 3), (7, 2, 2, 3, 2), (5, 8, 1, 0, 5)],
)
def test_taps_that_never_meet_the_image_are_left_out(kernel, size, stride, padding, taps):
    places, weight = live(torch.ones(1, 1, kernel, kernel), (size, size), (stride,) * 2, (padding,) * 2, False)
    assert weight.shape[2:] == places.taps == (taps, taps)


@pytest.mark.parametrize(("model", "traced"), [("cnn", False), (NarrowResNet, False), ("cnn", True)])
def test_a_run_with_windows_equals_the_loop(model, traced, monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, **_: graph)
    settings = {"rounds": 1, "clients": 6, "cohort": 2, "steps": 2, "batch": 4, "precision": "fp64", "device": "cpu"}
    loop = holdfast.run("scaffold+fedbug(0.4)", model=model, engine="loop", **settings)
    ours = holdfast.run(
        "scaffold+fedbug(0.4)", model=model, engine="vector", convolution="window", compile=traced, **settings
    )
    moved = (loop.w - loop.net.initial).norm()
    assert float((ours.w - loop.w).norm() / moved) < 1e-10


def test_low_precision_stays_close():
    settings = {"model": "cnn", "rounds": 1, "clients": 6, "cohort": 2, "steps": 2, "engine": "vector", "device": "cpu"}
    exact = holdfast.run("fedavg", precision="fp64", **settings)
    low = holdfast.run("fedavg", precision="bf16", convolution="window", **settings)
    assert low.history[0].test_loss == pytest.approx(exact.history[0].test_loss, rel=1e-2)


def test_other_layers_stay_as_they_are():
    module = with_windows(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3), nn.MaxPool2d(2)), tf32=True)
    assert [type(m).__name__ for m in module] == ["Conv2d", "WindowConv2d", "CornerPool2d"]
    assert module[1].tf32


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "dtype", "expected"),
    [
        (16, 32, 10, torch.bfloat16, True),
        (3, 32, 10, torch.bfloat16, False),
        (16, 20, 10, torch.bfloat16, False),
        (16, 32, 9, torch.bfloat16, False),
        (3, 20, 9, torch.float32, True),
    ],
)
def test_layers_that_are_wrong_or_slow_in_place_are_computed_as_products(
    channels, outputs, size, dtype, expected, monkeypatch
):
    found = []
    monkeypatch.setattr(
        WindowProducts, "apply", lambda *inputs: found.append(inputs) or WindowProducts.forward(*inputs)
    )
    conv = WindowConv2d(nn.Conv2d(channels, outputs, 3, dtype=dtype), tf32=False)
    out = vmap(conv)(torch.randn(2, 1, channels, size, size, dtype=dtype))
    assert out.shape == (2, 1, outputs, size - 2, size - 2)
    assert bool(found) == expected


def net_on(device: str, precision: str = "tf32", convolutional: bool = True) -> SimpleNamespace:
    return SimpleNamespace(device=torch.device(device), precision=precision, convolutional=convolutional)


@pytest.mark.parametrize(
    ("net", "generation", "triton", "expected"),
    [
        (net_on("cpu"), (9, 0), True, "auto"),
        (net_on("cuda"), (9, 0), True, "product"),
        (net_on("cuda", "bf16"), (9, 0), True, "window"),
        (net_on("cuda", "fp32"), (9, 0), True, "product"),
        (net_on("cuda", "fp64"), (9, 0), True, "product"),
        (net_on("cuda", "bf16"), (8, 0), True, "product"),
        (net_on("cuda", "bf16"), (9, 0), False, "product"),
        (net_on("cuda", "bf16", convolutional=False), (9, 0), True, "product"),
    ],
)
def test_the_rule_looks_at_device_generation_and_precision(monkeypatch, net, generation, triton, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: generation)
    monkeypatch.setattr("holdfast.models.window_rules.has_triton", lambda: triton)
    assert choose.best_convolutions("auto", net) == expected
    assert choose.best_convolutions("direct", net) == "direct"


def test_what_is_decided_is_computed():
    assert choose.convolutions("auto", net_on("cpu")) == "direct"
    assert choose.convolutions("auto", net_on("cuda")) == "product"  # as in runs before there was a choice
    assert choose.convolutions("window", net_on("cpu")) == "window"
    assert not windows(torch.device("cpu"), "bf16")


def test_without_triton_windows_are_refused(monkeypatch):
    monkeypatch.setattr(choose, "has_triton", lambda: False)
    message = "convolution = window needs Triton, which is not installed: use --convolution product"
    with pytest.raises(HoldfastError, match=f"^{re.escape(message)}$"):
        choose.convolutions("window", net_on("cuda"))


def test_a_decision_is_stored_and_kept(monkeypatch, tmp_path):
    """A run that starts decides; one that is resumed keeps what it has, whatever the rule says by then."""
    monkeypatch.setattr("holdfast.training.simulation.best_convolutions", lambda asked, net: "window")
    settings = {"model": "cnn", "clients": 4, "cohort": 2, "steps": 1, "batch": 2, "engine": "vector", "device": "cpu"}
    folder = tmp_path / "run"
    holdfast.run("fedavg", rounds=1, out=folder, **settings)
    assert RunFolder(folder).stored().convolution == "window"
    monkeypatch.setattr("holdfast.training.simulation.best_convolutions", lambda asked, net: "product")
    holdfast.run("fedavg", rounds=2, out=folder, resume=True, convolution="auto", **settings)
    assert RunFolder(folder).stored().convolution == "window"


def test_sums_are_divided_by_the_shape_of_a_layer():
    """Many positions and few results are divided most; nothing is divided below eight additions."""
    first, wide = sum_blocks(3, 64, 76, low=False), sum_blocks(512, 512, 4608, low=True)
    assert sum_parts(3, 64, 76, 39200, first) > 16
    assert sum_parts(512, 512, 4608, 800, wide) == 1
    assert sum_parts(16, 16, 144, 64, Blocks(16, 128, 32)) == 1


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_programs_in_the_interpreter():
    script = Path(interpreted_windows.__file__)
    found = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert float(found.stdout) < 1e-6
