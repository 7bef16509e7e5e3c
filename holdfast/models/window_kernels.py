"""Triton programs for convolutions whose windows are read in place, with a client axis and the channels innermost.

Images are [clients, batch, height, width, channels], kernels [clients, outputs, kh, kw, channels]. Both programs here
are matrix products of windows that are never written: their elements are addresses in the images. Sums over positions
are taken in parts and then added in a fixed order, so that the same shape always gives the same numbers. No number of
one client depends on another client, or on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:  # builds of PyTorch for a CPU come without it; nothing here is called then

    def jit(function: Callable[..., Any]) -> Any:
        return function


@jit
def products_kernel(
    x, kernel, bias, out, batch,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, STEP_H: tl.constexpr, START_H: tl.constexpr, MOVE: tl.constexpr, TAPS_H: tl.constexpr,
    FIRST_H: tl.constexpr, SKIP_H: tl.constexpr, SPREAD_H: tl.constexpr, OFFSET_H: tl.constexpr,
    COLUMNS: tl.constexpr, STEP_W: tl.constexpr, START_W: tl.constexpr, TAPS_W: tl.constexpr,
    FIRST_W: tl.constexpr, SKIP_W: tl.constexpr, SPREAD_W: tl.constexpr, OFFSET_W: tl.constexpr,
    PADDED: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr, CACHE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Multiply windows by kernels: each program makes ``BN`` outputs at ``BM`` positions of one client."""
    tiles: tl.constexpr = (OUTPUTS + BN - 1) // BN
    SIZE: tl.constexpr = KH * KW * CHANNELS
    WHOLE: tl.constexpr = TAPS_H == KH and TAPS_W == KW and SKIP_H == 1 and SKIP_W == 1  # every tap is used, in order
    tile = tl.program_id(0)
    client = tl.program_id(1).to(tl.int64)
    m = tile // tiles * BM + tl.arange(0, BM)
    n = tile % tiles * BN + tl.arange(0, BN)
    positions = batch * (ROWS * COLUMNS)
    at = tl.minimum(m, positions - 1)
    image = at // (ROWS * COLUMNS)
    row = at // COLUMNS % ROWS
    column = at % COLUMNS
    top = row * STEP_H + START_H
    left = column * STEP_W + START_W
    origin = ((image * HEIGHT + top) * WIDTH + left) * CHANNELS
    x += client * batch * (HEIGHT * WIDTH * CHANNELS)
    kernel += client * (OUTPUTS * SIZE)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    if CHANNELS % BK == 0:  # every block of a window lies within one tap
        blocks: tl.constexpr = CHANNELS // BK
        for step in range(TAPS_H * TAPS_W * blocks):
            tap = step // blocks
            h = tap // TAPS_W
            w = tap % TAPS_W
            c = step % blocks * BK + tl.arange(0, BK)
            places = x + (origin + (h * WIDTH + w) * (MOVE * CHANNELS))[:, None] + c[None, :]
            if PADDED:
                y = top + h * MOVE
                z = left + w * MOVE
                inside = (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
                a = tl.load(places, mask=inside[:, None], other=0.0, cache_modifier=CACHE)
            else:
                a = tl.load(places, cache_modifier=CACHE)
            taps = ((FIRST_H + h * SKIP_H) * KW + FIRST_W + w * SKIP_W) * CHANNELS
            weights = kernel + (n * SIZE + taps)[:, None] + c[None, :]
            b = tl.load(weights, mask=(n < OUTPUTS)[:, None], other=0.0)
            acc = tl.dot(a, tl.trans(b), acc, input_precision=PRECISION)
    else:
        for first in range(0, TAPS_H * TAPS_W * CHANNELS, BK):
            k = first + tl.arange(0, BK)
            h = k // (TAPS_W * CHANNELS)
            w = k // CHANNELS % TAPS_W
            c = k % CHANNELS
            there = k < TAPS_H * TAPS_W * CHANNELS
            places = x + origin[:, None] + ((h * WIDTH + w) * (MOVE * CHANNELS) + c)[None, :]
            if PADDED:
                y = top[:, None] + (h * MOVE)[None, :]
                z = left[:, None] + (w * MOVE)[None, :]
                inside = (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH) & there[None, :]
                a = tl.load(places, mask=inside, other=0.0)
            else:
                a = tl.load(places, mask=there[None, :], other=0.0)
            # From h, w and c, numbers of 16 bits are made, and ptxas 12 then forgets to add a constant on sm_90.
            taps = k if WHOLE else ((FIRST_H + h * SKIP_H) * KW + FIRST_W + w * SKIP_W) * CHANNELS + c
            b = tl.load(
                kernel + (n * SIZE)[:, None] + taps[None, :], mask=(n < OUTPUTS)[:, None] & there[None, :], other=0.0
            )
            acc = tl.dot(a, tl.trans(b), acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + client * OUTPUTS + n, mask=n < OUTPUTS, other=0.0).to(tl.float32)[None, :]
    place = (image * OUT_HEIGHT + row * SPREAD_H + OFFSET_H) * OUT_WIDTH + column * SPREAD_W + OFFSET_W
    out += client * batch * (OUT_HEIGHT * OUT_WIDTH * OUTPUTS)
    tl.store(
        out + (place * OUTPUTS)[:, None] + n[None, :],
        acc.to(out.dtype.element_ty),
        mask=(m < positions)[:, None] & (n < OUTPUTS)[None, :],
    )


@jit
def sums_kernel(
    x, g, out, batch,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    SPAN: tl.constexpr, PADDED: tl.constexpr, ONES: tl.constexpr, PRECISION: tl.constexpr, CACHE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Multiply outputs' gradients by windows and add up ``SPAN`` positions of one client.

    Each program makes ``BN`` outputs times ``BK`` numbers of their kernels, and adds ``BM`` positions at a time.
    """
    SIZE: tl.constexpr = KH * KW * CHANNELS
    LENGTH: tl.constexpr = SIZE + ONES
    tiles: tl.constexpr = (LENGTH + BK - 1) // BK
    tile = tl.program_id(0)
    split = tl.program_id(1)
    client = tl.program_id(2).to(tl.int64)
    n = tile // tiles * BN + tl.arange(0, BN)
    k = tile % tiles * BK + tl.arange(0, BK)
    kh = k // (KW * CHANNELS)
    kw = k // CHANNELS % KW
    shift = (kh * WIDTH + kw) * CHANNELS + k % CHANNELS
    positions = batch * (ROWS * COLUMNS)
    x += client * batch * (HEIGHT * WIDTH * CHANNELS)
    g += client * batch * (ROWS * COLUMNS * OUTPUTS)
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    for step in range(0, SPAN, BM):
        m = split * SPAN + step + tl.arange(0, BM)
        image = m // (ROWS * COLUMNS)
        top = m // COLUMNS % ROWS * STRIDE_H - PAD_H
        left = m % COLUMNS * STRIDE_W - PAD_W
        valid = m < positions
        inside = valid[:, None] & (k < SIZE)[None, :]
        if PADDED:
            y = top[:, None] + kh[None, :]
            z = left[:, None] + kw[None, :]
            inside = inside & (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
        origin = ((image * HEIGHT + top) * WIDTH + left) * CHANNELS
        windows = tl.load(x + origin[:, None] + shift[None, :], mask=inside, other=0.0, cache_modifier=CACHE)
        if ONES:
            windows += (k == SIZE).to(x.dtype.element_ty)[None, :]  # they are zero there
        slopes = tl.load(
            g + (m * OUTPUTS)[:, None] + n[None, :], mask=valid[:, None] & (n < OUTPUTS)[None, :], other=0.0
        )
        acc = tl.dot(tl.trans(slopes), windows, acc, input_precision=PRECISION)
    out += (split * tl.num_programs(2) + client) * (OUTPUTS * LENGTH)
    tl.store(out + (n * LENGTH)[:, None] + k[None, :], acc, mask=(n < OUTPUTS)[:, None] & (k < LENGTH)[None, :])


@jit
def add_parts_kernel(parts, out, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add ``PARTS`` tensors of ``size`` numbers, one after the other."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        acc += tl.load(parts + part * size.to(tl.int64) + at, mask=at < size, other=0.0)
    tl.store(out + at, acc, mask=at < size)
