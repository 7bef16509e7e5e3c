"""Convolutions that read their windows in place, on a GPU: checked against float64, timed against other ways.

    python benchmarks/gpu_convolutions.py FILE [--parts check,layers,steps,runs] [--minutes 4]

- check: every layer of the CNN, VGG-9, ResNet-18 with both stems and MNIST-CNN, three passes, with the present blocks
  and those proposed, also layers that the rules leave to products, against float64 within the error bound of the
  precision; several numbers of clients; each client alone has the same bits as among others. It names the kernels whose
  code adds packed numbers of 16 bits, which ptxas 12 does wrongly on sm_90.
- layers: each pass of each layer with several divisions of the work, against batched matrix products on windows that
  are already in memory, what writing these costs, and cuDNN's grouped convolution.
- steps: whole captured steps of ten clients, with windows in place, with the blocks proposed (and windows in place in
  every layer), and with products, and their slowest kernels.
- runs: ragged clients; the trained model against the same run in float64.

Everything is written to FILE as JSON as it is found. Needs torch, numpy and Triton alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast.models.window_launch import launch_products, launch_sums, spread_axes, window_axis
from holdfast.models.window_rules import Blocks, is_thin, product_blocks, reads_in_place, sum_blocks, sum_parts

PARTS = ("check", "layers", "steps", "runs")
CLIENTS, BATCH = 10, 50
STEPS = (("cnn", "tf32"), ("resnet18(stem=cifar)", "bf16"), ("resnet18", "tf32"), ("vgg9", "bf16"))
PATHS = ("window", "proposed", "product")
PASSES = ("products", "spread", "sums")
ROUNDING = {"tf32": 2.0**-10, "bf16": 2.0**-8, "ieee": 2.0**-22}


@dataclass(frozen=True)
class Layer:
    """A convolution of square images."""

    name: str
    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1
    padding: int = 0
    precision: str = "tf32"
    bias: bool = False
    timed: bool = True

    @property
    def lost(self) -> tuple[int, int]:
        """The taps that never meet the image: before and after those that do."""
        full = (self.size + 2 * self.padding - self.kernel) // self.stride + 1
        first = max(0, self.padding - (full - 1) * self.stride)
        return first, self.kernel - min(self.kernel, self.size + self.padding)

    @property
    def taps(self) -> int:
        return self.kernel - sum(self.lost)

    @property
    def pad(self) -> int:
        return self.padding - self.lost[0]

    @property
    def count(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def low(self) -> bool:
        return self.precision == "bf16"

    @property
    def length(self) -> int:
        return self.taps**2 * self.channels

    @property
    def ones(self) -> bool:
        return self.bias and is_thin(self.channels)

    @property
    def first(self) -> bool:
        return self.channels in (1, 3)


def resnet(kind: str, size: int, precision: str) -> Iterator[Layer]:
    width = 64
    for stage, outputs in enumerate((64, 128, 256, 512), 1):
        stride = 1 if stage == 1 else 2
        if stage > 1:
            yield Layer(f"{kind} {stage} in", width, outputs, size, 3, stride, 1, precision)
            yield Layer(f"{kind} {stage} shortcut", width, outputs, size, 1, stride, 0, precision, timed=stage == 2)
        size = (size - 1) // stride + 1
        width = outputs
        yield Layer(f"{kind} {stage}", width, outputs, size, 3, 1, 1, precision)


def vgg() -> Iterator[Layer]:
    channels = 3
    for i, (outputs, size) in enumerate(((32, 32), (64, 32), (128, 16), (128, 16), (256, 8), (256, 8)), 1):
        yield Layer(f"vgg {i}", channels, outputs, size, 3, 1, 1, "bf16", bias=True, timed=i in (1, 2, 4, 6))
        channels = outputs


LAYERS = [
    Layer("cnn 1", 3, 64, 32, 5, bias=True),
    Layer("cnn 2", 64, 64, 14, 5, bias=True),
    Layer("cifar stem", 3, 64, 32, 3, 1, 1, "bf16"),
    *resnet("cifar", 32, "bf16"),
    Layer("imagenet stem", 3, 64, 32, 7, 2, 3),
    *resnet("imagenet", 8, "tf32"),
    *vgg(),
    Layer("mnist 1", 1, 32, 28, 5, 1, 2, bias=True),
    Layer("mnist 2", 32, 64, 14, 5, 1, 2, bias=True, timed=False),
    Layer("odd", 20, 10, 7, 3, 1, 1, bias=True, timed=False),
    Layer("odd bf16", 24, 40, 9, 3, 2, 1, "bf16", bias=True, timed=False),
    Layer("exact", 32, 64, 14, 5, 1, 2, "ieee", bias=True, timed=False),
]  # fmt: skip


# --------------------------------------------------------------------------------------------- one pass of one layer


def tensors(layer: Layer, clients: int, batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Draw what a layer works on, in the layouts of the kernels."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda").to(torch.bfloat16 if layer.low else torch.float32)

    x = draw(clients, batch, layer.size, layer.size, layer.channels)
    kernel = draw(clients, layer.outputs, layer.taps, layer.taps, layer.channels) / math.sqrt(layer.length)
    g = draw(clients, batch, layer.count, layer.count, layer.outputs)
    transposed = kernel.permute(0, 4, 2, 3, 1).contiguous()
    bias = torch.randn((clients, layer.outputs), generator=generator, device="cuda")
    return {"x": x, "kernel": kernel, "g": g, "transposed": transposed, "bias": bias}


def usual_blocks(layer: Layer, which: str) -> Blocks:
    if which == "products":
        return product_blocks(layer.channels, layer.outputs, layer.low)
    if which == "spread":
        return product_blocks(layer.outputs, layer.channels, layer.low)
    return sum_blocks(layer.channels, layer.outputs, layer.length + layer.ones, layer.low)


def parts_of(layer: Layer, positions: int, blocks: Blocks) -> int:
    return sum_parts(layer.channels, layer.outputs, layer.length + layer.ones, positions, blocks)


def proposed_product_blocks(channels: int, outputs: int, low: bool) -> Blocks:
    """Return blocks for products that were faster, but not checked."""
    usual = product_blocks(channels, outputs, low)
    if not low or usual.columns < 128 or is_thin(channels):
        return usual
    if max(channels, outputs) >= 512:
        return Blocks(64, 128, usual.depth, 4, 4)
    return replace(usual, columns=256) if outputs % 256 == 0 else usual


def proposed_sum_blocks(channels: int, outputs: int, length: int, low: bool) -> Blocks:
    """Return blocks for sums that were faster, but not checked."""
    usual = sum_blocks(channels, outputs, length, low)
    if not low or outputs % 128 or channels != outputs:
        return usual
    return replace(usual, rows=128, warps=8)


def checked_blocks(layer: Layer, which: str) -> list[Blocks]:
    """Return the present blocks and those proposed."""
    if which == "sums":
        proposed = proposed_sum_blocks(layer.channels, layer.outputs, layer.length + layer.ones, layer.low)
    else:
        inner, outer = (layer.channels, layer.outputs) if which == "products" else (layer.outputs, layer.channels)
        proposed = proposed_product_blocks(inner, outer, layer.low)
    return list(dict.fromkeys([usual_blocks(layer, which), proposed]))


def work(layer: Layer, which: str, t: dict[str, Tensor], blocks: Blocks, parts: int | None = None) -> Tensor:
    """Compute one pass with blocks of one size."""
    exact = "ieee" if layer.precision == "ieee" else "tf32"
    if which == "sums":
        if parts is None:
            parts = parts_of(layer, t["g"][0, ..., 0].numel(), blocks)
        return launch_sums(
            t["x"], t["g"], (layer.taps,) * 2, (layer.stride,) * 2, (layer.pad,) * 2, layer.ones, parts, blocks, exact
        )
    if which == "products":
        axis = window_axis(layer.count, layer.taps, layer.stride, layer.pad)
        out = t["x"].new_full((*t["x"].shape[:2], layer.count, layer.count, layer.outputs), math.nan)
        bias = t["bias"] if layer.bias else None
        launch_products(t["x"], t["kernel"], bias, out, (axis, axis), blocks, exact)
        return out
    axes = spread_axes(layer.size, layer.taps, layer.stride, layer.pad)
    out = torch.full_like(t["x"], math.nan)
    for vertical in axes:
        for horizontal in axes:
            launch_products(t["g"], t["transposed"], None, out, (vertical, horizontal), blocks, exact)
    return out


def choices(layer: Layer, which: str) -> list[Blocks]:
    """Return the divisions of the work to be timed; the first is the present rule's, then what is proposed."""
    return list(dict.fromkeys([*checked_blocks(layer, which), *other_blocks(layer, which)]))


def other_blocks(layer: Layer, which: str) -> list[Blocks]:
    first = usual_blocks(layer, which)
    if which == "sums":
        rows, depth = first.rows, first.depth
        found = [
            first,
            Blocks(rows, 128, depth, 4, 1),
            Blocks(rows, 64, depth, 4, 3),
            Blocks(rows, 64, depth, 4, 1),
            Blocks(rows, 256, depth, 8, 1),
            Blocks(rows, 128, 2 * depth, 8, 1),
            Blocks(rows, 128, depth, 8, 2),
        ]
        if not layer.low:
            found += [Blocks(rows, 64, 32, 2, 3), Blocks(rows, 128, 16, 4, 4)]
        if layer.outputs % 128 == 0:
            found += [Blocks(128, 128, depth, 8, 3), Blocks(128, 128, depth, 8, 1), Blocks(128, 64, depth, 4, 3)]
        return found
    inner, outer = (layer.channels, layer.outputs) if which == "products" else (layer.outputs, layer.channels)
    columns, depth = first.columns, first.depth
    found = [
        first,
        replace(first, stages=1),
        replace(first, rows=64, warps=4, stages=1),
        replace(first, rows=64, warps=4, stages=4),
        replace(first, rows=256, warps=8),
        replace(first, rows=256, warps=8, stages=1),
        replace(first, rows=128, warps=8, stages=1),
    ]
    if is_thin(inner):
        found += [replace(first, depth=16), replace(first, depth=16, stages=1), replace(first, depth=64, warps=8)]
    elif inner % (2 * depth) == 0:
        found += [
            replace(first, depth=2 * depth, warps=8, stages=1),
            replace(first, depth=2 * depth, warps=8, stages=2),
        ]
    if not is_thin(inner) and depth == 64:
        found += [replace(first, depth=32, stages=4)]
    if columns == 128:
        found += [replace(first, columns=64, warps=4), replace(first, columns=64, warps=4, stages=1)]
        if outer % 256 == 0:
            found += [replace(first, columns=256, warps=8, stages=3), replace(first, columns=256, warps=8, stages=1)]
    return found


def passes(layer: Layer) -> list[str]:
    return [p for p in PASSES if p != "spread" or not layer.first]


# ------------------------------------------------------------------------------------------------------------- check


def reference(layer: Layer, which: str, t: dict[str, Tensor], client: int) -> tuple[Tensor, Tensor]:
    """Return one pass of one client in float64 from windows in memory, and the same with all numbers positive."""
    x, kernel, g = (t[n][client].double() for n in ("x", "kernel", "g"))
    bias = t["bias"][client].double()
    reach = (layer.count - 1) * layer.stride + layer.taps
    after = reach - layer.pad - layer.size
    around = (layer.pad, after, layer.pad, after)
    found = []
    for sign in (lambda v: v, torch.abs):
        images = F.pad(sign(x).permute(0, 3, 1, 2), around)
        matrix = sign(kernel).permute(0, 3, 1, 2).flatten(1)  # [outputs, channels * taps]
        slopes = sign(g).permute(0, 3, 1, 2).flatten(2)  # [batch, outputs, positions]
        if which == "spread":
            columns = matrix.T @ slopes
            wide = F.fold(columns, images.shape[2:], layer.taps, stride=layer.stride)
            found.append(F.pad(wide, [-p for p in around]).permute(0, 2, 3, 1))
            continue
        columns = F.unfold(images, layer.taps, stride=layer.stride)
        if which == "products":
            out = matrix @ columns
            if layer.bias:
                out = out + sign(bias)[:, None]
            found.append(out.unflatten(2, (layer.count, layer.count)).permute(0, 2, 3, 1))
        else:
            sums = torch.einsum("bnp,bkp->nk", slopes, columns)
            sums = sums.unflatten(1, (layer.channels, layer.taps**2)).transpose(1, 2).flatten(1)
            found.append(torch.cat([sums, slopes.sum((0, 2))[:, None]], 1) if layer.ones else sums)
    return found[0], found[1]


def check_layer(layer: Layer, clients: int, batch: int) -> dict[str, Any]:
    """Compare each pass with its reference, with the present blocks and those proposed."""
    t = tensors(layer, clients, batch, seed=clients)
    result: dict[str, Any] = {
        "layer": layer.name, "precision": layer.precision, "clients": clients, "batch": batch,
        "in_use": reads_in_place(layer.channels, layer.outputs, layer.count**2, layer.low),
    }  # fmt: skip
    for which in passes(layer):
        exact = {client: reference(layer, which, t, client) for client in {0, clients - 1}}
        result[which] = [check_pass(layer, which, t, blocks, exact) for blocks in checked_blocks(layer, which)]
    return result


def check_pass(
    layer: Layer, which: str, t: dict[str, Tensor], blocks: Blocks, references: dict[int, tuple[Tensor, Tensor]]
) -> dict[str, Any]:
    """Compare the first and last client with their references, and the last client alone with all together."""
    out = work(layer, which, t, blocks)
    again = work(layer, which, t, blocks)
    alone = work(layer, which, {n: v[-1:].clone() for n, v in t.items()}, blocks)
    rounding = ROUNDING[layer.precision]
    terms = {"products": layer.length, "spread": layer.taps**2 * layer.outputs, "sums": t["g"][0, ..., 0].numel()}
    worst, apart = 0.0, 0.0
    for client, (exact, size) in references.items():
        found = out[client].double()
        # bf16: the inputs are exact, results other than sums are rounded; tf32: both factors are rounded.
        bound = (2 * rounding if not layer.low else 0.0) * size + terms[which] * 2.0**-22 * size
        if layer.low and which != "sums":
            bound = bound + rounding * exact.abs()
        worst = max(worst, float(((found - exact).abs() / (bound + 1e-30)).nan_to_num(nan=math.inf).max()))
        apart = max(apart, float((found - exact).norm() / exact.norm()))
    same, lonely = bool(torch.equal(out, again)), bool(torch.equal(alone[0], out[-1]))
    return {
        "blocks": asdict(blocks), "of_bound": worst, "relative": apart, "repeatable": same, "alone_equal": lonely,
        "ok": worst <= 1 and same and lonely,
    }  # fmt: skip


def packed_additions() -> list[str]:
    """Name the compiled kernels whose PTX adds packed numbers of 16 bits."""
    cache = Path(os.environ["TRITON_CACHE_DIR"])
    found = [f for f in cache.glob("*/*.ptx") if "add.s16x2" in f.read_text()]
    return [f"{f.stem} {f.parent.name}" for f in found if f.stem in ("products_kernel", "sums_kernel")]


# ------------------------------------------------------------------------------------------------------------ timing


def microseconds(calls: list[Callable[[], Any]], repeats: int = 4, replays: int = 5) -> float:
    """Return the median time of a call, inside a graph that takes turns with several inputs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (repeats * len(calls)))
    return sorted(times)[len(times) // 2]


def plain_work(
    layer: Layer, which: str, t: dict[str, Tensor], blocks: Blocks, parts: int | None = None
) -> Callable[[], Any]:
    """Return one pass as a call that writes into memory of its own, without poisoning it first."""
    exact = "tf32"
    if which == "sums":
        return lambda: work(layer, which, t, blocks, parts)
    if which == "products":
        axis = window_axis(layer.count, layer.taps, layer.stride, layer.pad)
        out = t["x"].new_empty((*t["x"].shape[:2], layer.count, layer.count, layer.outputs))
        bias = t["bias"] if layer.bias else None
        return lambda: launch_products(t["x"], t["kernel"], bias, out, (axis, axis), blocks, exact)
    axes = spread_axes(layer.size, layer.taps, layer.stride, layer.pad)
    out = torch.empty_like(t["x"])

    def spread() -> None:
        for vertical in axes:
            for horizontal in axes:
                launch_products(t["g"], t["transposed"], None, out, (vertical, horizontal), blocks, exact)

    return spread


def time_layer(layer: Layer, which: str) -> dict[str, Any]:
    sets = [tensors(layer, CLIENTS, BATCH, seed) for seed in range(3)]
    rows, flops = [], 2 * CLIENTS * BATCH * layer.count**2 * layer.length * layer.outputs
    for blocks in choices(layer, which):
        row: dict[str, Any] = {"blocks": asdict(blocks)}
        try:
            row["us"] = microseconds([plain_work(layer, which, t, blocks) for t in sets])
            row["tflops"] = flops / row["us"] / 1e6
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        rows.append(row)
    timed = [r for r in rows if "us" in r]
    result: dict[str, Any] = {"layer": layer.name, "pass": which, "precision": layer.precision, "rows": rows}
    if not timed:
        return result
    best = min(timed, key=lambda r: r["us"])
    result["best"], result["usual_us"] = best, rows[0].get("us")
    if which == "sums":
        blocks = Blocks(**best["blocks"])
        usual = parts_of(layer, BATCH * layer.count**2, blocks)
        result["parts"] = {"usual": usual}
        for parts in sorted({max(1, usual // 4), max(1, usual // 2), usual, usual * 2, usual * 4}):
            if parts * blocks.depth <= BATCH * layer.count**2:
                result["parts"][str(parts)] = microseconds([plain_work(layer, which, t, blocks, parts) for t in sets])
    return result


def time_others(layer: Layer) -> dict[str, Any]:
    """Time matrix products on windows in memory, writing those, and cuDNN's grouped convolution."""
    t = tensors(layer, CLIENTS, BATCH)
    x = t["x"].permute(0, 1, 4, 2, 3).contiguous()
    g = t["g"].permute(0, 1, 4, 2, 3).contiguous()
    kernel = t["kernel"].permute(0, 1, 4, 2, 3).contiguous()
    after = (layer.count - 1) * layer.stride + layer.taps - layer.pad - layer.size
    padded = F.pad(x, (layer.pad, after, layer.pad, after))
    view = padded.unfold(3, layer.taps, layer.stride).unfold(4, layer.taps, layer.stride)
    view = view.permute(0, 2, 5, 6, 1, 3, 4)  # [clients, channels, kh, kw, batch, rows, columns]
    result: dict[str, Any] = {"layer": layer.name, "precision": layer.precision}

    def note(name: str, call: Callable[[], Any]) -> None:
        try:
            result[name] = microseconds([call], repeats=2, replays=3)
        except Exception as error:
            result[name] = f"{type(error).__name__}: {error}"[:200]

    result["windows_bytes"] = view.numel() * view.element_size()
    note("write_windows", lambda: view.contiguous())
    windows = view.contiguous().flatten(4).flatten(1, 3)
    matrix, slopes = kernel.flatten(2), g.transpose(1, 2).flatten(2).contiguous()
    note("bmm_products", lambda: matrix @ windows)
    note("bmm_sums", lambda: slopes @ windows.transpose(1, 2))
    note("bmm_spread", lambda: matrix.transpose(1, 2) @ slopes)
    wide = x.transpose(0, 1).flatten(1, 2).contiguous()
    weight, out = kernel.flatten(0, 1), g.transpose(0, 1).flatten(1, 2).contiguous()
    if layer.lost == (0, 0):
        s, p = layer.stride, layer.padding
        note("cudnn_products", lambda: F.conv2d(wide, weight, None, s, p, groups=CLIENTS))
        note(
            "cudnn_spread",
            lambda: torch.nn.grad.conv2d_input(wide.shape, weight, out, s, p, groups=CLIENTS),
        )
        note("cudnn_sums", lambda: torch.nn.grad.conv2d_weight(wide, weight.shape, out, s, p, groups=CLIENTS))
    return result


# ------------------------------------------------------------------------------------------------------------- steps


def step_child(model: str, precision: str, path: str) -> None:
    """Compile and capture a step, say so, wait for a line, and print what it costs."""
    from holdfast.bench.gpu import steps_alone
    from holdfast.bench.workload import TimedRounds, fastest, images
    from holdfast.runs.setup import arithmetic

    started = time.perf_counter()
    result: dict[str, Any] = {"model": model, "precision": precision, "path": path}
    try:
        fed = images((3, 32, 32), 500, 100)
        if path == "proposed":
            propose()
        with arithmetic(precision):
            play = TimedRounds(
                "fedavg", fed, model=model, precision=precision, cohort=CLIENTS, batch=BATCH, epochs=10, device="cuda",
                engine="vector", convolution="product" if path == "product" else "window", eval_every=10,
            )  # fmt: skip
            play()
            torch.cuda.synchronize()
            result["first_round_s"] = time.perf_counter() - started
            print("ready", flush=True)
            sys.stdin.readline()
            result["step_ms"] = [fastest(lambda: steps_alone(play), 3, cuda=True) * 10 for _ in range(2)]
            result["round_ms"] = fastest(play, 3, cuda=True) * 1e3
            result["memory_gb"] = torch.cuda.max_memory_allocated() / 2**30
            result["loss"] = float(play.simulation.server.w.norm())
            result["kernels"] = slowest_kernels(lambda: steps_alone(play))
    except Exception:
        result["error"] = traceback.format_exc()[-3000:]
        print("ready", flush=True)
    print("result " + json.dumps(result), flush=True)


def propose() -> None:
    """Read windows in place in every layer, and with the blocks proposed."""
    from holdfast.models import window_convolution, window_operators

    window_operators.product_blocks = proposed_product_blocks
    window_operators.sum_blocks = proposed_sum_blocks
    window_convolution.reads_in_place = lambda *_: True


def slowest_kernels(work: Callable[[], object], steps: int = 100) -> list[dict[str, Any]]:
    """Return the kernels that take most of a step."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            work()
            torch.cuda.synchronize()
        found = [e for e in profiled.key_averages() if e.self_device_time_total]
        found.sort(key=lambda e: -e.self_device_time_total)
        return [
            {"kernel": e.key[:140], "per_step": e.count / steps, "us_per_step": e.self_device_time_total / steps}
            for e in found[:60]
        ]
    except Exception as error:
        return [{"error": f"{type(error).__name__}: {error}"[:300]}]


def start_steps(most: int) -> list[subprocess.Popen[str]]:
    children = []
    for model, precision in STEPS[:most]:
        for path in PATHS if precision == "bf16" else ("window", "product"):
            command = [sys.executable, __file__, "-", "--step", f"{model}|{precision}|{path}"]
            children.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                    env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "4"},
                )
            )  # fmt: skip
    return children


def wait_for(child: subprocess.Popen[str], word: str) -> str:
    """Read a child's lines up to one that starts with a word; the empty text if it ends before."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith(word):
            return line
    return ""


# -------------------------------------------------------------------------------------------------------------- runs


def ragged_runs() -> Iterator[dict[str, Any]]:
    """Train ragged clients in every way; compare the models with the run in float64."""
    import holdfast
    from holdfast.bench.workload import images

    fed = images((3, 32, 32), 40, 12, "dirichlet(0.3)")
    for model, precision, method in (("cnn", "tf32", "fedavg"), ("vgg9", "bf16", "scaffold+fedbug(0.4)")):
        common = {
            "model": model, "rounds": 2, "cohort": 5, "batch": 8, "lr": 0.02, "device": "cuda", "engine": "vector",
            "compile": False,
        }  # fmt: skip
        exact = holdfast.run(method, fed, **common, precision="fp64", convolution="product")
        moved = (exact.w - exact.net.initial).norm()
        row: dict[str, Any] = {"model": model, "precision": precision, "method": method}
        for path in ("window", "product"):
            run = holdfast.run(method, fed, **common, precision=precision, convolution=path, step_rows=3)
            row[path] = float((run.w.double() - exact.w).norm() / moved)
        yield row


# -------------------------------------------------------------------------------------------------------------- main


def warm(job: tuple[int, str, Blocks]) -> str | None:
    """Compile a kernel into the cache on disk, in another process."""
    number, which, blocks = job
    try:
        work(LAYERS[number], which, tensors(LAYERS[number], 1, BATCH), blocks)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{LAYERS[number].name} {which} {blocks}: {type(error).__name__}: {error}"[:300]
    return None


class Report:
    """What was found, written to a file whenever something is added."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.started, self.minutes = path, time.perf_counter(), minutes
        self.found: dict[str, Any] = {
            "device": torch.cuda.get_device_name(), "torch": torch.__version__, "seconds": {}, "errors": [],
        }  # fmt: skip

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return max(0.0, 60 * self.minutes - (time.perf_counter() - self.started))

    @property
    def over(self) -> bool:
        return self.left == 0

    def add(self, part: str, value: Any) -> None:
        self.found.setdefault(part, []).append(value)
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")

    def attempt(self, part: str, work: Callable[[], Any], what: str = "") -> None:
        """Do something and note the result, or the traceback."""
        if self.over:
            self.add("skipped", f"{part} {what}")
            return
        try:
            value = work()
            if value is not None:
                self.add(part, value)
        except Exception:
            self.add("errors", {"part": part, "what": what, "traceback": traceback.format_exc()[-3000:]})

    def mark(self, name: str) -> None:
        self.found["seconds"][name] = round(time.perf_counter() - self.started, 1)
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")
        print(f"{name}: {self.found['seconds'][name]} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--only", default="", help="layers whose name contains this")
    parser.add_argument("--models", type=int, default=3, help="how many models to time whole steps of")
    parser.add_argument("--step", default="")
    args = parser.parse_args()
    if args.step:
        step_child(*args.step.split("|"))
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    parts = args.parts.split(",")
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="windows_"))  # so that only these are in it
    report = Report(Path(args.file), args.minutes)
    numbers = [i for i, layer in enumerate(LAYERS) if args.only in layer.name]
    children = start_steps(args.models) if "steps" in parts else []
    for child in children:
        watch = threading.Timer(60 * args.minutes + 20, child.kill)
        watch.daemon = True
        watch.start()
    pool = ProcessPoolExecutor(8 if children else 14, mp_context=get_context("spawn"))
    jobs: list[Future[str | None]] = []
    try:
        wanted = {"check", "layers"} & {*parts}
        for i in numbers if wanted else []:
            for which in passes(LAYERS[i]):
                several = choices(LAYERS[i], which) if "layers" in parts and LAYERS[i].timed else []
                for blocks in several or checked_blocks(LAYERS[i], which):
                    jobs.append(pool.submit(warm, (i, which, blocks)))
        for job in jobs:
            if problem := job.result(timeout=report.left):
                report.add("does_not_compile", problem)
        report.mark(f"{len(jobs)} kernels compiled")
    except Exception:
        report.add("errors", {"part": "compile", "traceback": traceback.format_exc()[-3000:]})
    pool.shutdown(wait=not report.over, cancel_futures=True)
    if "check" in parts:
        for i in numbers:
            layer = LAYERS[i]
            report.attempt(
                "check", lambda layer=layer: check_layer(layer, 3, 7 if layer.size > 8 else BATCH), layer.name
            )
        for layer in (LAYERS[0], LAYERS[1], LAYERS[3]):
            for clients in (1, 4, 10, 20, 40):
                report.attempt("check", lambda layer=layer, n=clients: check_layer(layer, n, 8), layer.name)
        for kernel in packed_additions():
            report.add("packed_additions", kernel)
        report.mark("checked")
    for child in children:
        wait_for(child, "ready")
    if children:
        report.mark("steps compiled")
    for child in children:
        report.attempt("steps", lambda child=child: result_of(child), "steps")
        end(child)
    if children:
        report.mark("steps timed")
    if "layers" in parts:
        for i in numbers:
            layer = LAYERS[i]
            if layer.timed:
                for which in passes(layer):
                    report.attempt("layers", lambda layer=layer, p=which: time_layer(layer, p), f"{layer.name} {which}")
                report.attempt("others", lambda layer=layer: time_others(layer), layer.name)
        report.mark("layers timed")
    if "runs" in parts:
        try:
            for row in ragged_runs():
                report.add("runs", row)
                if report.over:
                    break
        except Exception:
            report.add("errors", {"part": "runs", "traceback": traceback.format_exc()[-3000:]})
        report.mark("runs compared")
    summarise(report.found)


def result_of(child: subprocess.Popen[str]) -> Any:
    assert child.stdin is not None
    try:
        child.stdin.write("go\n")
        child.stdin.flush()
    except BrokenPipeError:
        pass  # it has failed, and said why
    line = wait_for(child, "result ")
    return json.loads(line.removeprefix("result ")) if line else {"error": f"ended with code {child.wait()}"}


def end(child: subprocess.Popen[str]) -> None:
    """Wait for a child that has said all it has to say."""
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()


def summarise(found: dict[str, Any]) -> None:
    """Print a short table."""
    for row in found.get("check", []):
        for which in PASSES:
            for one in row.get(which, []):
                if not one["ok"]:
                    print("WRONG", row["layer"], row["clients"], which, "" if row["in_use"] else "(not in use)", one)
    print(f"{len(found.get('check', []))} checks, {len(found['errors'])} errors")
    for kernel in found.get("packed_additions", []):
        print("adds packed numbers:", kernel)
    others = {row["layer"]: row for row in found.get("others", [])}
    for row in found.get("layers", []):
        if "best" not in row:
            continue
        b, other = row["best"]["blocks"], others.get(row["layer"], {})
        text = f"{b['rows']}x{b['columns']}x{b['depth']} w{b['warps']} s{b['stages']}"
        rest = {
            k.split("_")[0]: round(v)
            for k, v in other.items()
            if k.endswith("_" + row["pass"]) and not isinstance(v, str)
        }
        print(
            f"{row['layer']:20} {row['pass']:9} {row['usual_us'] or 0:7.0f} best {row['best']['us']:7.0f} us "
            f"{row['best']['tflops']:5.0f} TFLOP/s {text:20} {rest} {row.get('parts', '')}"
        )
    for row in found.get("steps", []):
        print({k: v for k, v in row.items() if k != "kernels"})
    for row in found.get("runs", []):
        print(row)
    for error in found["errors"]:
        print(error.get("part"), error.get("what", ""), error["traceback"][-300:])


if __name__ == "__main__":
    main()
