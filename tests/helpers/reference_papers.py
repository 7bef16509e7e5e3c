"""The five papers as plain loops, written from their equations and independent of the holdfast package.

Every function uses float64 and plain torch autograd, one client after the other, one mini-batch after the other: slow
and readable on purpose. The library's parts are compared with these. Where a paper contradicts itself or is silent, the
docstring states the choice.

A network is a list of layers ``(W, b)`` with ``W`` of shape [out, in], ReLU between layers; the last layer is the
classifier and its input is "the features". ``batches[i][e][s] = (x, y)`` is what client i sees in step s of epoch e.
Flat vectors are in the order W1, b1, W2, b2, ... ``delta`` is local minus global.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]
Pair = tuple[Tensor, Tensor]
Epochs = Sequence[Sequence[Pair]]  # [e][s] of one client
Batches = Sequence[Epochs]  # [i][e][s]
Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]  # (features, x, y) -> a number


# ---------------------------------------------------------------------------------------------------------------
# The network, its loss, and plain training


def flatten(layers: Layers) -> Tensor:
    """The layers as one vector: W1, b1, W2, b2, ..."""
    return torch.cat([piece.reshape(-1) for layer in layers for piece in layer])


def unflatten(w: Tensor, like: Layers) -> Layers:
    """The vector as layers of the same shapes as ``like``."""
    layers, at = [], 0
    for W, b in like:
        first = w[at : at + W.numel()].reshape(W.shape)
        second = w[at + W.numel() : at + W.numel() + b.numel()].reshape(b.shape)
        layers.append((first, second))
        at += W.numel() + b.numel()
    return layers


def forward(layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
    """(logits, features): the features are the input of the last layer."""
    h = x
    for W, b in layers[:-1]:
        h = torch.relu(h @ W.T + b)
    W, b = layers[-1]
    return h @ W.T + b, h


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Softmax cross-entropy, mean over the batch."""
    log_p = logits - torch.logsumexp(logits, dim=1, keepdim=True)
    return -log_p[torch.arange(len(y)), y].mean()


def gradient(w: Tensor, like: Layers, x: Tensor, y: Tensor, penalty: Penalty | None = None) -> Tensor:
    """The gradient of CE (+ penalty) at the flat vector ``w``."""
    at = w.detach().clone().requires_grad_(True)
    logits, features = forward(unflatten(at, like), x)
    loss = cross_entropy(logits, y)
    if penalty is not None:
        loss = loss + penalty(features, x, y)
    (g,) = torch.autograd.grad(loss, at)
    return g


def sgd(w: Tensor, like: Layers, epochs: Epochs, lr: float | Tensor, penalty: Penalty | None = None) -> Tensor:
    """Plain SGD through the given batches; ``lr`` is a number or one rate per coordinate."""
    for epoch in epochs:
        for x, y in epoch:
            w = w - lr * gradient(w, like, x, y, penalty)
    return w


def samples_of(epochs: Epochs) -> Pair:
    """A client's data: the batches of its first epoch, in which every sample appears once."""
    return torch.cat([x for x, _ in epochs[0]]), torch.cat([y for _, y in epochs[0]])


def counts_of(batches: Batches) -> list[int]:
    """n_i: the samples of every client."""
    return [sum(len(y) for _, y in epochs[0]) for epochs in batches]


def weighted_mean(rows: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """sum_i p_i * row_i with p_i = weight_i / sum of weights; uniform without weights."""
    if weights is None:
        weights = [1.0] * len(rows)
    total = torch.zeros_like(rows[0])
    for row, weight in zip(rows, weights, strict=True):
        total = total + row * (weight / sum(weights))
    return total


def random_layers(sizes: Sequence[int], seed: int, bias: float = 0.1) -> Layers:
    """A small float64 network for tests: Gaussian weights scaled by 1/sqrt(fan-in), biases too."""
    rng = np.random.default_rng(seed)
    layers = []
    for fan_in, fan_out in pairwise(sizes):
        W = torch.from_numpy(rng.normal(size=(fan_out, fan_in)) / math.sqrt(fan_in))
        layers.append((W, torch.from_numpy(bias * rng.normal(size=fan_out))))
    return layers


def random_batches(counts: Sequence[int], epochs: int, batch: int, inputs: int, classes: int, seed: int) -> Batches:
    """Ragged clients with shifted inputs and skewed labels; every epoch in a new order."""
    rng = np.random.default_rng(seed)
    clients = []
    for i, n in enumerate(counts):
        shift = rng.normal(size=inputs)
        y = np.where(rng.random(n) < 0.5, i % classes, rng.integers(classes, size=n))
        x = rng.normal(size=(n, inputs)) + shift + 0.5 * y[:, None]
        client = []
        for _ in range(epochs):
            order = rng.permutation(n)
            chunks = [order[start : start + batch] for start in range(0, n, batch)]
            client.append([(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in chunks])
        clients.append(client)
    return clients


# ---------------------------------------------------------------------------------------------------------------
# FedBug, section 4 and Appendix B: two clients, f(x) = x [a, b]^T v


def fedbug_unfrozen(k: int, K: int, M: int, P: float) -> int:
    """Alg. 1 line 7 in exact arithmetic: m(k) = min(M, ceil(k*M / (P*K))), k = 1..K; P = 0 trains everything."""
    share = Fraction(str(P))
    if share == 0:
        return M
    return min(M, math.ceil(Fraction(k * M) / (share * K)))


def fedbug_toy(
    a: float, b: float, v: float, method: str = "fedavg", rounds: int = 80, steps: int = 50, lr: float = 0.1,
    P: float = 0.4, factor: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """The (a, b, v) after 0, 1, ..., rounds rounds, [rounds+1, 3]. M = 2 blocks: [a, b] below, v on top.

    Client 1 has [1,0] -> 1 and moves (a, v); client 2 has [0,1] -> 1 and moves (b, v); the server takes plain means.
    B.3 and B.5 write the gradient of a as v(av-1), that is ``factor=1``, L = (av-1)^2 / 2; the loss as printed,
    (av-1)^2, is ``factor=2``. ``fedbug`` freezes v while m(k) = 1; ``fedbabu`` always.
    """
    history = [(a, b, v)]
    for _ in range(rounds):
        local = []
        for low in (a, b):
            top = v
            for k in range(1, steps + 1):
                error = factor * (low * top - 1.0)
                unfrozen = fedbug_unfrozen(k, steps, 2, P) if method == "fedbug" else 2 - (method == "fedbabu")
                low_step, top_step = lr * error * top, lr * error * low
                low = low - low_step
                top = top - (top_step if unfrozen == 2 else 0.0)
            local.append((low, top))
        (a1, v1), (b2, v2) = local
        a, b, v = (a1 + a) / 2, (b + b2) / 2, (v1 + v2) / 2
        history.append((a, b, v))
    return np.array(history)


def fedbug_conserved(a: float, v: float) -> float:
    """a^2 - v^2, which gradient flow of (av-1)^2 keeps (B.3)."""
    return a * a - v * v


def fedbug_limit(a0: float, v0: float) -> tuple[float, float]:
    """Where gradient flow from a0, v0 > 0 ends: a*v = 1 on the same hyperbola. The printed extra 1/2 is wrong."""
    c = fedbug_conserved(a0, v0)
    root = math.sqrt(c * c + 4.0)
    return math.sqrt((root + c) / 2.0), math.sqrt((root - c) / 2.0)


def fedbug_contraction(a: float, v: float, lr: float = 0.1, frozen: int = 0, factor: float = 1.0) -> float:
    """Theorems 3 and 4 near the minimum, alpha = 0: (1 + (1 - lr*v^2)^frozen * cos^2 theta) / 2.

    The local update runs along (v, a) in the (a, v) plane, so its angle to the v axis has cos theta = a/|(a, v)|.
    """
    cos2 = a * a / (a * a + v * v)
    return (1.0 + (1.0 - factor * lr * v * v) ** frozen * cos2) / 2.0


# ---------------------------------------------------------------------------------------------------------------
# FedNLR


def fednlr_mu(depth: int, L: int, M: int, mu0: float = 1.0, a1: float = 1.0, a2: float = 1.0) -> float:
    """Eq. 17 with the base-10 logarithm; depth l = 1..L."""
    return mu0 + a1 * depth / L + a2 * math.log10(M)


def fednlr_activations(layers: Layers, x_all: Tensor) -> list[Tensor]:
    """Eq. 14: the mean over all samples of ReLU(layer output), for every layer, the classifier included."""
    h, means = x_all, []
    for W, b in layers:
        h = torch.relu(h @ W.T + b)
        means.append(h.mean(dim=0))
    return means


def fednlr_conv_activation(out: Tensor, norm: tuple[int, Tensor, Tensor] | None = None, eps: float = 1e-5) -> Tensor:
    """Eq. 14 for a convolution's outputs [n, C, H, W]: channel means of the ReLU over samples and positions.

    ``norm = (groups, scale, shift)`` is a group norm directly after it: it belongs to the neuron, so it comes before
    the ReLU. Biased variance, as everywhere.
    """
    n, C, height, width = out.shape
    total = torch.zeros(C, dtype=out.dtype)
    for i in range(n):
        image = out[i].clone()
        if norm is not None:
            groups, scale, shift = norm
            size = C // groups
            for g in range(groups):
                piece = out[i, g * size : (g + 1) * size]
                mean = piece.mean()
                variance = ((piece - mean) ** 2).mean()
                image[g * size : (g + 1) * size] = (piece - mean) / torch.sqrt(variance + eps)
            for m in range(C):
                image[m] = image[m] * scale[m] + shift[m]
        for m in range(C):
            total[m] = total[m] + torch.relu(image[m]).sum()
    return total / (n * height * width)


def fednlr_layer_factors(h: Tensor, mu: float, rtol: float = 1e-6) -> Tensor:
    """Eqs. 15-16 for one layer: e/mean(e) with e = exp(h/T), T = (max h - min h)/ln mu.

    Activations count as equal, and every factor is 1, when max h - min h <= rtol * max h (h is never negative; a dead
    layer has max h = 0). mu = 1 gives exactly 1 everywhere; mu < 1 is refused.
    """
    if mu < 1.0:
        raise ValueError(f"mu must be at least 1, not {mu}")
    low, high = h.min(), h.max()
    if bool(high - low <= rtol * high):
        return torch.ones_like(h)
    e = torch.exp((h - low) / (high - low) * math.log(mu))  # the common factor exp(-low/T) drops out
    return e / e.mean()


def fednlr_factors(
    layers: Layers, x_all: Tensor, mu0: float = 1.0, a1: float = 1.0, a2: float = 1.0,
    mu: float | Sequence[float] | None = None, rtol: float = 1e-6,
) -> list[Tensor]:  # fmt: skip
    """Eqs. 14-17: one factor per neuron and layer, from the GLOBAL model on one client's samples.

    ``mu`` overrides Eq. 17: one number for all layers, or one per layer.
    """
    L, factors = len(layers), []
    for number, h in enumerate(fednlr_activations(layers, x_all), start=1):
        if mu is None:
            ratio = fednlr_mu(number, L, len(h), mu0, a1, a2)
        else:
            ratio = float(mu) if isinstance(mu, int | float) else float(mu[number - 1])
        factors.append(fednlr_layer_factors(h, ratio, rtol))
    return factors


def fednlr_rates(layers: Layers, factors: Sequence[Tensor]) -> Tensor:
    """The factors as one flat vector: row m of W_l and entry m of b_l share factor[l][m]."""
    pairs = []
    for (W, _), factor in zip(layers, factors, strict=True):
        pairs.append((factor[:, None].expand_as(W), factor))
    return flatten(pairs)


class NlrRound(NamedTuple):
    w: Tensor
    deltas: list[Tensor]
    factors: list[list[Tensor]]  # [i][l]


def fednlr_round(
    layers: Layers, batches: Batches, lr: float, mu0: float = 1.0, a1: float = 1.0, a2: float = 1.0,
    mu: float | Sequence[float] | None = None, samples: Sequence[Tensor] | None = None,
    counts: Sequence[float] | None = None, rtol: float = 1e-6,
) -> NlrRound:  # fmt: skip
    """Alg. 1: factors at the start of the round, local SGD at lr*factor (Eq. 18), mean weighted by n_i (Eq. 19)."""
    w0, deltas, factors = flatten(layers), [], []
    for i, epochs in enumerate(batches):
        x_all = samples_of(epochs)[0] if samples is None else samples[i]
        own = fednlr_factors(layers, x_all, mu0, a1, a2, mu, rtol)
        w = sgd(w0, layers, epochs, lr * fednlr_rates(layers, own))
        deltas.append(w - w0)
        factors.append(own)
    update = weighted_mean(deltas, counts_of(batches) if counts is None else counts)
    return NlrRound(w0 + update, deltas, factors)


def fednlr_example1(gap: float = 0.45, lr: float = 0.5) -> dict[str, float]:
    """Example 1, Eq. 9, by hand: what class 2's activations and probabilities are before and after client 1's step.

    W1 = [[1, 1/3], [1/3, 1]], W2 = [[u, v], [v, u]] with u - v = ``gap`` (only the gap matters), no biases. One step
    on x = (1, 1/3), y = class 1; then x' = (1/3, 1) is looked at.
    """
    W1 = np.array([[1.0, 1.0 / 3.0], [1.0 / 3.0, 1.0]])
    W2 = np.array([[gap, 0.0], [0.0, gap]])
    x, other = np.array([1.0, 1.0 / 3.0]), np.array([1.0 / 3.0, 1.0])

    def look(first: np.ndarray, second: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        h = np.maximum(first @ at, 0.0)
        p = np.exp(second @ h)
        return h, p / p.sum()

    h_x, p_x = look(W1, W2, x)
    error = p_x - np.array([1.0, 0.0])
    back = (W2.T @ error) * (h_x > 0)
    before_h, before_p = look(W1, W2, other)
    after_h, after_p = look(W1 - lr * np.outer(back, x), W2 - lr * np.outer(error, h_x), other)
    numbers: dict[str, float] = {}
    for name, h, p in (("before", before_h, before_p), ("after", after_h, after_p)):
        numbers |= {f"h1_{name}": h[0], f"h2_{name}": h[1], f"p1_{name}": p[0], f"p2_{name}": p[1]}
    return {name: float(value) for name, value in numbers.items()}


def fednlr_theorem2(
    W1: Tensor, W2: Tensor, own: Tensor, x: Tensor, lr: float, local: int = 0, missing: int = 1, gate: bool = True
) -> Tensor:
    """Theorem 2, Eqs. 11-13: the fall of every hidden activation at ``x`` (class ``missing``) after one local step.

    Two classes, no biases, one step on the SUM of the cross-entropies of the samples ``own`` (all class ``local``):
    h - h~ = relu(w.x) - relu(w.x - lr * sum_k (x_k.x) ((p_local(x_k)-1) w2[local,m] + p_missing(x_k) w2[missing,m])).
    The printed form leaves out ReLU's derivative at x_k (``gate=False``); it agrees with autograd only where every
    neuron is active on every local sample. ``gate=True`` is right everywhere.
    """
    fall = torch.zeros(len(W1), dtype=W1.dtype)
    for m in range(len(W1)):
        push = torch.zeros((), dtype=W1.dtype)
        for x_k in own:
            p = torch.softmax(W2 @ torch.relu(W1 @ x_k), dim=0)
            term = (x_k @ x) * ((p[local] - 1.0) * W2[local, m] + p[missing] * W2[missing, m])
            active = 1.0 if not gate or bool(W1[m] @ x_k > 0) else 0.0
            push = push + active * term
        fall[m] = torch.relu(W1[m] @ x) - torch.relu(W1[m] @ x - lr * push)
    return fall


def fednlr_theorem2_autograd(W1: Tensor, W2: Tensor, own: Tensor, x: Tensor, lr: float, local: int = 0) -> Tensor:
    """The same fall, by really taking the step."""
    first = W1.clone().requires_grad_(True)
    logits = torch.relu(own @ first.T) @ W2.T
    y = torch.full((len(own),), local)
    (g,) = torch.autograd.grad(len(own) * cross_entropy(logits, y), first)
    return torch.relu(W1 @ x) - torch.relu((W1 - lr * g) @ x)


# ---------------------------------------------------------------------------------------------------------------
# FedAgg
#
# The client chooses eta_0 .. eta_{L-1} (eta_L = 0, Theorem 1) and walks w_{l+1} = w_l - eta_l phi1_l, so
#     w_k = w_0 - sum_{r<k} eta_r phi1_r,                                    k = 0..L.
# It minimises
#     U(eta) = alpha * sum_{l=0}^{L-1} eta_l^2  +  (1-alpha) * sum_{k=0}^{L} ||w_k - phi2_k||^2.
# The deviation is summed to k = L (the paper's terminal cost, Eq. 20); its k = 0 term does not depend on eta, so
# phi2_0 never enters. eta_l moves w_k for k > l only:
#     0 = dU/d eta_l / 2 = alpha*eta_l - (1-alpha) * sum_{k=l+1}^{L} <phi1_l, w_k - phi2_k>
#       = alpha*eta_l - (1-alpha) * <phi1_l, (L-l) w_0 - sum_{k=l+1}^{L} phi2_k>
#         + (1-alpha) * sum_r eta_r <phi1_l, phi1_r> * #{k : max(l, r) < k <= L}
# and #{...} = L - max(l, r). Divided by alpha, with c = (1-alpha)/alpha: (I + cA) eta = c b,
#     A[l,r] = (L - max(l,r)) <phi1_l, phi1_r>,   b[l] = <phi1_l, (L-l) w_0 - sum_{k=l+1}^{L} phi2_k>.
# Eq. 12 is row l of this with w_l for w_0 (then only r >= l is summed). Tail from epoch s, standing at w_s: the same
# sum with k = s+1..L and w_k = w_s - sum_{s<=r<k} eta_r phi1_r. The counts do not change: rows and columns l, r >= s
# of A, and b[l] with w_s in place of w_0. (Bellman: on the optimal path it gives the rest of the full solution.)


def fedagg_system(phi1: Tensor, phi2: Tensor, w: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
    """(A, b) for epochs start..L-1 of a client at ``w``. phi1 is [L, P], phi2 [L+1, P] (row 0 unused)."""
    L = len(phi1)
    size = L - start
    A, b = torch.zeros(size, size, dtype=phi1.dtype), torch.zeros(size, dtype=phi1.dtype)
    for row in range(start, L):
        for column in range(start, L):
            A[row - start, column - start] = (L - max(row, column)) * (phi1[row] @ phi1[column])
        lag = torch.zeros_like(w)  # (L - row) * w - sum of phi2, as differences: exact when they are close
        for k in range(row + 1, L + 1):
            lag = lag + (w - phi2[k])
        b[row - start] = phi1[row] @ lag
    return A, b


def fedagg_solve(phi1: Tensor, phi2: Tensor, w: Tensor, alpha: float = 0.1, start: int = 0) -> Tensor:
    """eta[start..L-1] from (I + cA) eta = c b, c = (1-alpha)/alpha: Theorem 1 made explicit. Not clipped."""
    A, b = fedagg_system(phi1, phi2, w, start)
    c = (1.0 - alpha) / alpha
    return torch.linalg.solve(torch.eye(len(b), dtype=b.dtype) + c * A, c * b)


def fedagg_objective(eta: Tensor, phi1: Tensor, phi2: Tensor, w: Tensor, alpha: float = 0.1, start: int = 0) -> Tensor:
    """Eq. 10 for one client and round, walked out: epochs start..L-1, deviations start..L."""
    L = len(phi1)
    total = (1.0 - alpha) * ((w - phi2[start]) ** 2).sum()
    for e in range(start, L):
        w = w - eta[e - start] * phi1[e]
        total = total + alpha * eta[e - start] ** 2 + (1.0 - alpha) * ((w - phi2[e + 1]) ** 2).sum()
    return total


def fedagg_brute(phi1: Tensor, phi2: Tensor, w: Tensor, alpha: float = 0.1, start: int = 0) -> Tensor:
    """The minimiser of the walked-out objective: it is quadratic, so one Newton step with autograd's Hessian."""

    def objective(eta: Tensor) -> Tensor:
        return fedagg_objective(eta, phi1, phi2, w, alpha, start)

    zero = torch.zeros(len(phi1) - start, dtype=phi1.dtype)
    hessian = torch.autograd.functional.hessian(objective, zero)
    slope = torch.autograd.functional.jacobian(objective, zero)
    return torch.linalg.solve(hessian, -slope)


def fedagg_eq23(phi1_last: Tensor, w_last: Tensor, phi2_L: Tensor, alpha: float = 0.1) -> float:
    """Eq. 23: the last epoch's rate, which is the case L = 1."""
    c = (1.0 - alpha) / alpha
    return float(c * (phi1_last @ (w_last - phi2_L)) / (1.0 + c * (phi1_last @ phi1_last)))


def fedagg_reference(w0: Tensor, phi1: Tensor, lr: float) -> Tensor:
    """METHODS section 3: phi2[l] = w0 - lr * sum_{p<l} phi1[p], l = 0..L: the path at the nominal rate."""
    rows = [w0]
    for row in phi1:
        rows.append(rows[-1] - lr * row)
    return torch.stack(rows)


class AggRound(NamedTuple):
    w: Tensor
    deltas: list[Tensor]
    phi1: Tensor  # [L, P], for the next round
    rates: list[list[float]]  # [i][l], what was applied


def fedagg_feedback_round(
    layers: Layers, batches: Batches, lr: float, phi1: Tensor | None, alpha: float = 0.1, min_rate: float = 0.0,
    max_rate: float = 0.99, counts: Sequence[float] | None = None, field_weights: Sequence[float] | None = None,
) -> AggRound:  # fmt: skip
    """The ``feedback`` mode. ``phi1`` is the previous round's (None in round 1, which trains at ``lr``, not clipped).

    At the start of epoch l the client solves the tail from l at its own current model against the nominal path from
    this round's w0, clips the first rate of that tail, eta_l, to [min_rate, max_rate] (the later ones are dropped and
    solved again), and takes every mini-batch step of the epoch at it. The new phi1[l] is the cohort mean of the
    clients' SUMS of mini-batch gradients in epoch l, as seen, whatever rate was applied. Eq. 8 makes that mean
    uniform; ``field_weights`` changes it. The models' mean is weighted by n_i (Eq. 3).
    """
    w0, deltas, rates = flatten(layers), [], []
    phi2 = None if phi1 is None else fedagg_reference(w0, phi1, lr)
    sums: list[list[Tensor]] = []
    for epochs in batches:
        w, own_rates, own_sums = w0, [], []
        for e, epoch in enumerate(epochs):
            eta = lr
            if phi1 is not None and phi2 is not None:
                eta = float(fedagg_solve(phi1, phi2, w, alpha, start=e)[0])
                eta = min(max(eta, min_rate), max_rate)
            total = torch.zeros_like(w0)
            for x, y in epoch:
                g = gradient(w, layers, x, y)
                total = total + g
                w = w - eta * g
            own_rates.append(eta)
            own_sums.append(total)
        deltas.append(w - w0)
        rates.append(own_rates)
        sums.append(own_sums)
    L = len(batches[0])
    new = torch.stack([weighted_mean([own[e] for own in sums], field_weights) for e in range(L)])
    update = weighted_mean(deltas, counts_of(batches) if counts is None else counts)
    return AggRound(w0 + update, deltas, new, rates)


class FixedPoint(NamedTuple):
    rates: list[Tensor]  # [i] of [L], of the last sweep
    sweeps: int  # how many were made
    history: list[Tensor]  # [sweeps + 1] of [N, L], the first row is lr
    changes: list[tuple[float, float]]  # (epsilon_1, epsilon_2) after each sweep


def _field(layers: Layers, w: Tensor, epoch: Sequence[Pair], whole: bool) -> Tensor:
    """Grad F_i(w): of the client's whole data (Eq. 1), or the sum of its batches' gradients, all at ``w``."""
    if whole:
        return gradient(w, layers, torch.cat([x for x, _ in epoch]), torch.cat([y for _, y in epoch]))
    total = torch.zeros_like(w)
    for x, y in epoch:
        total = total + gradient(w, layers, x, y)
    return total


def fedagg_fixed_point(
    layers: Layers, batches: Batches, lr: float, alpha: float = 0.1, epsilon: float = 1e-3, sweeps: int = 100,
    along: str = "current", whole: bool = True,
) -> FixedPoint:  # fmt: skip
    """Alg. 1 as printed, for one round, started from ``lr``: every client, every epoch, until EITHER change is small.

    Start: all rates lr; phi1, phi2 are the means along the paths these rates give. A sweep: Theorem 1 for every
    client (the L x L system, at w0, not clipped), the clients' paths by Eq. 11, new means (Eqs. 8, 9: uniform).
    epsilon_1 = sum_{l=0}^{L-1} ||phi1_l new - old||_2, epsilon_2 = sum_{l=0}^{L} ||phi2_l new - old||_2 (printed
    without a norm); lines 9 and 15 stop at L-1, but Theorem 1 needs phi2_L. Both start at 1, so the first sweep is
    always made where ``sweeps`` > 0 (for epsilon < 1). Grad F_i is of the client's whole data (Eq. 1), or with
    ``whole=False`` the sum of the epoch's mini-batch gradients at the same point.

    ``along`` says which phi1 Eq. 11 walks along: "current", the mean of the gradients at the points just reached
    (Eq. 7; then phi2_k = w0 - sum_{r<k} eta_r phi1_r, b = A eta_old, and a sweep is exactly the contraction
    eta -> (I+cA)^-1 cA eta); or "estimate", the phi1 of the sweep before.
    """
    w0, N, L = flatten(layers), len(batches), len(batches[0])

    def walk(rates: list[Tensor], given: Tensor | None) -> tuple[Tensor, Tensor]:
        at = [w0.clone() for _ in range(N)]
        first, second = [], [weighted_mean(at)]
        for e in range(L):
            mean = weighted_mean([_field(layers, at[i], batches[i][e], whole) for i in range(N)])
            first.append(mean)
            step = mean if given is None else given[e]
            at = [at[i] - rates[i][e] * step for i in range(N)]
            second.append(weighted_mean(at))
        return torch.stack(first), torch.stack(second)

    rates = [torch.full((L,), lr, dtype=w0.dtype) for _ in range(N)]
    phi1, phi2 = walk(rates, None)
    history, changes = [torch.stack(rates)], []
    first_change = second_change = 1.0
    made = 0
    while first_change > epsilon and second_change > epsilon and made < sweeps:
        rates = [fedagg_solve(phi1, phi2, w0, alpha) for _ in range(N)]
        new1, new2 = walk(rates, None if along == "current" else phi1)
        first_change = sum(float((new1[e] - phi1[e]).norm()) for e in range(L))
        second_change = sum(float((new2[e] - phi2[e]).norm()) for e in range(L + 1))
        phi1, phi2 = new1, new2
        made += 1
        history.append(torch.stack(rates))
        changes.append((first_change, second_change))
    return FixedPoint(rates, made, history, changes)


class FixedPointRound(NamedTuple):
    w: Tensor
    deltas: list[Tensor]
    found: FixedPoint


def fedagg_fixed_point_round(
    layers: Layers, batches: Batches, lr: float, alpha: float = 0.1, epsilon: float = 1e-3, sweeps: int = 100,
    along: str = "current", whole: bool = True, counts: Sequence[float] | None = None,
    clip: tuple[float, float] | None = None,
) -> FixedPointRound:  # fmt: skip
    """Alg. 2: each client trains its epochs with its OWN mini-batch gradients at the rates Alg. 1 found."""
    found = fedagg_fixed_point(layers, batches, lr, alpha, epsilon, sweeps, along, whole)
    w0, deltas = flatten(layers), []
    for epochs, rates in zip(batches, found.rates, strict=True):
        w = w0
        for epoch, eta in zip(epochs, rates.tolist(), strict=True):
            used = eta if clip is None else min(max(eta, clip[0]), clip[1])
            w = sgd(w, layers, [epoch], used)
        deltas.append(w - w0)
    update = weighted_mean(deltas, counts_of(batches) if counts is None else counts)
    return FixedPointRound(w0 + update, deltas, found)


# ---------------------------------------------------------------------------------------------------------------
# FNR-FL


def fnr_norms(layers: Layers, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Eqs. 6-7: F[c], the mean L2 norm of the features over the samples of class c; 0 where there are none."""
    features = forward(layers, x)[1]
    rows = []
    for c in range(classes):
        norms = [torch.linalg.vector_norm(z) for z, label in zip(features, y, strict=True) if int(label) == c]
        rows.append(torch.stack(norms).mean() if norms else torch.zeros((), dtype=x.dtype))
    return torch.stack(rows)


def fnr_accuracy(layers: Layers, x: Tensor, y: Tensor) -> float:
    """A_i: the share of samples whose largest logit is the label's (the first one where several are largest)."""
    return int((forward(layers, x)[0].argmax(dim=1) == y).sum()) / len(y)


def fnr_chosen(accuracies: Sequence[float], ids: Sequence[int], p: float) -> list[int]:
    """Rows of the floor(p*n) lowest accuracies, lowest first, ties by client id. The floor is exact; p = 1 refused."""
    if not 0 <= p < 1:
        raise ValueError(f"p must be in [0, 1): with p = {p} nobody is left to compare with")
    number = math.floor(Fraction(str(p)) * len(accuracies))
    order = sorted(range(len(accuracies)), key=lambda row: (accuracies[row], ids[row]))
    return order[:number]


def fnr_gradient_penalty(features: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """J of ``mode="gradient"``: sum over the batch's classes of rho_c * |target[c] - F[c](batch)|.

    rho_c = #(y = c)/|B| (Alg. 3 line 36). A class absent from the batch has rho_c = 0 and adds nothing. The gradient
    runs through F(batch) only; at an exact tie |.| has slope 0, and a feature vector of zeros has slope 0.
    """
    total = torch.zeros((), dtype=features.dtype)
    for c in sorted({int(label) for label in y}):
        norms = torch.stack([torch.linalg.vector_norm(z) for z in features[y == c]])
        total = total + len(norms) / len(y) * torch.abs(target[c] - norms.mean())
    return total


def fnr_published_penalty(features: Tensor, y: Tensor, delta: Tensor) -> Tensor:
    """J as printed (Alg. 3 lines 33-38): sum_c rho_c * Delta_j[c]; the features do not enter, so no gradient."""
    del features
    total = torch.zeros((), dtype=delta.dtype)
    for c in sorted({int(label) for label in y}):
        total = total + int((y == c).sum()) / len(y) * delta[c]
    return total


class FnrRound(NamedTuple):
    w: Tensor
    deltas: list[Tensor]  # after both trips
    norms: list[Tensor]  # F_i on the public data after the first trip, [classes]
    accuracies: list[float]
    chosen: list[int]  # rows, lowest accuracy first
    first: list[Tensor]  # deltas after the first trip


def fnr_round(
    layers: Layers, batches: Batches, public: Pair, public_batches: Batches, lr: float, p: float, lam: float,
    mode: str = "gradient", counts: Sequence[float] | None = None, ids: Sequence[int] | None = None,
) -> FnrRound:  # fmt: skip
    """Alg. 3. ``batches`` holds E_train epochs of own data, ``public_batches[i]`` E_re epochs of public data.

    CE is the batch mean in both trips (Alg. 3 prints a sum). The target is the plain mean of F_m[c] over the clients
    not chosen (Alg. 2 prints a sum of signed differences: ``mode="published"`` keeps it, where it has no effect).
    Everyone's delta counts with its own n_i, public samples do not.
    """
    w0 = flatten(layers)
    classes = len(layers[-1][1])
    ids = list(range(len(batches))) if ids is None else ids
    local = [sgd(w0, layers, epochs, lr) for epochs in batches]
    norms = [fnr_norms(unflatten(w, layers), *public, classes) for w in local]
    accuracies = [fnr_accuracy(unflatten(w, layers), *public) for w in local]
    chosen = fnr_chosen(accuracies, ids, p)
    others = [row for row in range(len(batches)) if row not in chosen]
    target = weighted_mean([norms[row] for row in others])
    final = list(local)
    for j in chosen:
        summed = torch.zeros_like(target)
        for m in others:
            summed = summed + (norms[m] - norms[j])

        def penalty(features: Tensor, x: Tensor, y: Tensor, summed: Tensor = summed) -> Tensor:
            if mode == "published":
                return lam * fnr_published_penalty(features, y, summed)
            return lam * fnr_gradient_penalty(features, y, target)

        final[j] = sgd(local[j], layers, public_batches[j], lr, penalty)
    deltas = [w - w0 for w in final]
    update = weighted_mean(deltas, counts_of(batches) if counts is None else counts)
    return FnrRound(w0 + update, deltas, norms, accuracies, chosen, [w - w0 for w in local])


# ---------------------------------------------------------------------------------------------------------------
# FedMRUR
#
# With L = (sqrt(beta + |z|^2), z) every lifted point has <L, L>_L = -beta, so the squared Lorentzian distance
# -2 beta - 2 <Lp, Lg>_L = <Lp - Lg, Lp - Lg>_L. With d = z - zg, s = z + zg and q = the sum of the two first
# coordinates, their difference is (|z|^2 - |zg|^2)/q = <d, s>/q, and
#     distance = |d|^2 - (<d, s>/q)^2.
# What cancels is no longer the norms but only the part of d along s, by the factor beta/|z|^2.


def lorentz_naive(z: Tensor, zg: Tensor, beta: float = 1.0) -> Tensor:
    """Eq. 3 as printed, per sample: -2 beta - 2 <Lp, Lg>_L. Loses all digits for close and long features."""
    first, second = torch.sqrt(beta + (z * z).sum(1)), torch.sqrt(beta + (zg * zg).sum(1))
    return -2.0 * beta - 2.0 * (-first * second + (z * zg).sum(1))


def lorentz(z: Tensor, zg: Tensor, beta: float | Tensor = 1.0) -> Tensor:
    """The same number per sample as a difference: |d|^2 - (<d, s>/q)^2."""
    d, s = z - zg, z + zg
    q = torch.sqrt(beta + (z * z).sum(1)) + torch.sqrt(beta + (zg * zg).sum(1))
    return (d * d).sum(1) - ((d * s).sum(1) / q) ** 2


def lorentz_decimal(z: Sequence[float], zg: Sequence[float], beta: float = 1.0, digits: int = 60) -> float:
    """Eq. 3 as printed for one sample, in 60-digit arithmetic: the truth."""
    with decimal.localcontext() as context:
        context.prec = digits
        p, g = [decimal.Decimal(v) for v in z], [decimal.Decimal(v) for v in zg]
        b = decimal.Decimal(beta)
        first, second = (b + sum(v * v for v in p)).sqrt(), (b + sum(v * v for v in g)).sqrt()
        return float(-2 * b - 2 * (-first * second + sum(u * v for u, v in zip(p, g, strict=True))))


def hyperbolic_penalty(
    z: Tensor, zg: Tensor, gamma: float = 0.005, sigma: float = 1e4, beta: float = 1.0, naive: bool = False
) -> Tensor:
    """Eqs. 2-3: gamma * mean over samples of exp(distance/sigma). It is gamma, not 0, at z = zg. exp not guarded."""
    distance = lorentz_naive(z, zg, beta) if naive else lorentz(z, zg, beta)
    return gamma * torch.exp(distance / sigma).mean()


def euclidean_penalty(z: Tensor, zg: Tensor, gamma: float = 0.005, sigma: float = 1e4) -> Tensor:
    """Table 8's other space: the squared Euclidean distance in the same place."""
    return gamma * torch.exp(((z - zg) ** 2).sum(1) / sigma).mean()


def input_penalty(
    z: Tensor, zg: Tensor, x: Tensor, gamma: float = 0.005, sigma: float = 1e4, beta: float = 1.0
) -> Tensor:
    """Table 9's "original data", one reading (the paper gives no formula): the point lifted is (x, z).

    Both models see the same x, so it drops out of z - zg and only lengthens the first coordinate: per sample the
    features' distance with beta + |x|^2 for beta. Hyperbolic at x = 0, Euclidean as |x| grows.
    """
    longer = beta + (x.reshape(len(x), -1) ** 2).sum(1)
    return gamma * torch.exp(lorentz(z, zg, longer) / sigma).mean()


def poincare_input(x: Tensor, beta: float = 1.0) -> Tensor:
    """Table 9, the other reading: the data themselves are mapped, and the networks see the mapped data.

    Of the Lorentz point (sqrt(beta + |x|^2), x) the chart with as many coordinates as x: the Poincare ball,
    sqrt(beta) * x / (sqrt(beta) + sqrt(beta + |x|^2)).
    """
    rows = x.reshape(len(x), -1)
    root = math.sqrt(beta)
    scale = root / (root + torch.sqrt(beta + (rows * rows).sum(1)))
    return (rows * scale[:, None]).reshape(x.shape)


def normalized_aggregate(
    deltas: Sequence[Tensor], weights: Sequence[float] | None = None, rtol: float = 1e-6
) -> Tensor:
    """Alg. 1 line 15: mean_i ||delta_i|| * (sum delta_i)/||sum delta_i||; uniform as printed.

    The plain mean instead when the sum has cancelled: ||mean delta|| <= rtol * mean ||delta||.
    """
    mean = weighted_mean(deltas, weights)
    size = weighted_mean([delta.norm() for delta in deltas], weights)
    if bool(mean.norm() <= rtol * size):
        return mean
    return size * mean / mean.norm()


class MrurRound(NamedTuple):
    w: Tensor
    D: Tensor  # the last global update as a gradient, for the next round
    update: Tensor  # before the server's step
    deltas: list[Tensor]


def fedmrur_round(
    layers: Layers, batches: Batches, lr: float, D: Tensor | None = None, alpha: float = 0.1, rho: float = 0.05,
    gamma: float = 0.005, sigma: float = 1e4, beta: float = 1.0, space: str = "hyperbolic",
    normalized: bool = True, server_lr: float = 1.0, weights: Sequence[float] | None = None,
) -> MrurRound:  # fmt: skip
    """Alg. 1. Each step: g1 = grad F(w), g = grad F(w + rho*g1/||g1||), w <- w - lr*(alpha*g + (1-alpha)*D).

    F = CE + penalty, in both gradients; the global features are those of w0 on the same batch and get no gradient.
    No perturbation where g1 = 0. D is zero in round 1 (line 3), so that round's steps are alpha times as long;
    afterwards D = -update/(lr*K), with lr and the mean K of the round it came from and without the server's rate.
    ``alpha=1``, ``rho=0``, ``gamma=0``, ``normalized=False`` switch the four parts off. No weight decay, no clipping.
    """
    w0 = flatten(layers)
    D = torch.zeros_like(w0) if D is None else D
    deltas = []

    def penalty(features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            there = forward(layers, x)[1]
        if space == "euclidean":
            return euclidean_penalty(features, there, gamma, sigma)
        if space == "input":
            return input_penalty(features, there, x, gamma, sigma, beta)
        return hyperbolic_penalty(features, there, gamma, sigma, beta)

    for epochs in batches:
        w = w0
        for epoch in epochs:
            for x, y in epoch:
                g = gradient(w, layers, x, y, penalty)
                if rho > 0 and float(g.norm()) > 0:
                    g = gradient(w + rho * g / g.norm(), layers, x, y, penalty)
                w = w - lr * (alpha * g + (1.0 - alpha) * D)
        deltas.append(w - w0)
    update = normalized_aggregate(deltas, weights) if normalized else weighted_mean(deltas, weights)
    steps = [torch.tensor(float(sum(len(epoch) for epoch in epochs)), dtype=w0.dtype) for epochs in batches]
    K = float(weighted_mean(steps, weights))
    return MrurRound(w0 + server_lr * update, -update / (lr * K), update, deltas)
