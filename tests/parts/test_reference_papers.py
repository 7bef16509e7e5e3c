"""The references of ``reference_papers.py`` against themselves, hand-computed cases and the papers' own claims."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import reference_papers as ref

torch.set_num_threads(1)

SIZES = (4, 6, 5, 3)
COUNTS = (12, 20, 7)


def close(a: Tensor, b: Tensor, rtol: float = 1e-10) -> bool:
    return bool((a - b).norm() <= rtol * b.norm())


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def network(seed: int = 0) -> ref.Layers:
    return ref.random_layers(SIZES, seed)


def data(epochs: int = 3, seed: int = 1, counts: tuple[int, ...] = COUNTS) -> ref.Batches:
    return ref.random_batches(counts, epochs, 5, SIZES[0], SIZES[-1], seed)


def fedavg(layers: ref.Layers, batches: ref.Batches, lr: float) -> tuple[Tensor, list[Tensor]]:
    """The round everything else is measured against, by torch's own optimiser."""
    w0, deltas = ref.flatten(layers), []
    for epochs in batches:
        parameters = [piece.clone().requires_grad_(True) for layer in layers for piece in layer]
        optimiser = torch.optim.SGD(parameters, lr)
        for epoch in epochs:
            for x, y in epoch:
                h = x
                for i in range(0, len(parameters), 2):
                    h = F.linear(h if i == 0 else F.relu(h), parameters[i], parameters[i + 1])
                optimiser.zero_grad()
                F.cross_entropy(h, y).backward()
                optimiser.step()
        deltas.append(torch.cat([p.detach().reshape(-1) for p in parameters]) - w0)
    counts = torch.tensor(ref.counts_of(batches), dtype=torch.float64)
    return w0 + (counts / counts.sum()) @ torch.stack(deltas), deltas


# -- the base ---------------------------------------------------------------------------------------------------


def test_flat_order_and_plain_sgd_agree_with_torch() -> None:
    layers, batches = network(), data()
    assert torch.equal(ref.flatten(ref.unflatten(ref.flatten(layers), layers)), ref.flatten(layers))
    w0 = ref.flatten(layers)
    ours = [ref.sgd(w0, layers, epochs, 0.1) - w0 for epochs in batches]
    w, theirs = fedavg(layers, batches, 0.1)
    assert all(close(a, b) for a, b in zip(ours, theirs, strict=True))
    assert close(w0 + ref.weighted_mean(ours, ref.counts_of(batches)), w)


# -- FedBug -----------------------------------------------------------------------------------------------------


def test_unfreezing_is_counted_in_integers() -> None:
    assert [ref.fedbug_unfrozen(k, 10, 4, 0.4) for k in range(1, 11)] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert ref.fedbug_unfrozen(1, 10, 4, 0) == 4
    for K, M, tenths in product(range(1, 13), range(1, 6), range(1, 11)):
        for k in range(1, K + 1):  # the ceiling is the least m with 10*k*M <= m*tenths*K
            least = next(m for m in range(1, 10 * k * M + 1) if 10 * k * M <= m * tenths * K)
            assert ref.fedbug_unfrozen(k, K, M, tenths / 10) == min(M, least)


def test_toy_conserves_and_ends_where_the_corrected_form_says() -> None:
    for a0, v0 in ((0.3, 1.7), (1.9, 0.2), (1.0, 0.5)):
        a, _, v = ref.fedbug_toy(a0, a0, v0, rounds=1, steps=20_000, lr=1e-3)[-1] * [2, 1, 1] - [a0, 0, 0]
        assert ref.fedbug_conserved(a, v) == pytest.approx(ref.fedbug_conserved(a0, v0), abs=5e-3)
        limit = ref.fedbug_limit(a0, v0)
        assert (a, v) == pytest.approx(limit, abs=3e-3)
        assert limit[0] * limit[1] == pytest.approx(1.0, rel=1e-12)
        assert ref.fedbug_conserved(*limit) == pytest.approx(ref.fedbug_conserved(a0, v0), rel=1e-9)
        assert (limit[0] / 2) * (limit[1] / 2) == pytest.approx(0.25)  # the form as printed


def test_toy_conservation_error_falls_with_the_step() -> None:
    def drift(lr: float, steps: int) -> float:
        a, _, v = ref.fedbug_toy(0.3, 0.3, 1.7, rounds=1, steps=steps, lr=lr)[-1] * [2, 1, 1] - [0.3, 0, 0]
        return abs(ref.fedbug_conserved(a, v) - ref.fedbug_conserved(0.3, 1.7))

    assert drift(1e-3, 10_000) == pytest.approx(drift(1e-2, 1_000) / 10, rel=0.1)


@pytest.mark.parametrize(("method", "frozen"), [("fedavg", 0), ("fedbug", 10), ("fedbabu", 400)])
def test_toy_contracts_as_the_theorems_say_near_the_minimum(method: str, frozen: int) -> None:
    a, v = 0.8, 1.25
    path = ref.fedbug_toy(a + 1e-5, a - 1e-5, v, method, rounds=1, steps=400, lr=0.1, P=0.05)
    ratio = (path[1, 0] - path[1, 1]) / (path[0, 0] - path[0, 1])
    assert ratio == pytest.approx(ref.fedbug_contraction(a, v, 0.1, frozen), rel=1e-5)
    if method == "fedbabu":
        assert ratio == pytest.approx(0.5, abs=1e-9)


def test_toy_fedbug_contracts_more_than_fedavg() -> None:
    rng = np.random.default_rng(0)
    for a, b, v in rng.uniform(0.3, 2.0, size=(20, 3)):
        gaps = {m: abs(np.diff(ref.fedbug_toy(a, b, v, m, rounds=5)[-1, :2])[0]) for m in ("fedavg", "fedbug")}
        assert gaps["fedbug"] < gaps["fedavg"]


# -- FedNLR -----------------------------------------------------------------------------------------------------


def test_factors_have_mean_one_and_ratio_mu() -> None:
    layers = network()
    x = ref.samples_of(data()[0])[0]
    h = ref.fednlr_activations(layers, x)
    factors = ref.fednlr_factors(layers, x)
    for number, (own, factor) in enumerate(zip(h, factors, strict=True), start=1):
        mu = 1 + number / 3 + math.log10(len(own))
        T = (own.max() - own.min()) / math.log(mu)
        assert close(factor, len(own) * torch.softmax(own / T, 0), 1e-13)  # Eq. 15 as printed
        assert float(factor.mean()) == pytest.approx(1.0, rel=1e-14)
        assert float(factor.max() / factor.min()) == pytest.approx(mu, rel=1e-13)
        assert torch.equal(factor.argsort(), own.argsort())
    for factor in ref.fednlr_factors(layers, x, mu=3.0) + ref.fednlr_factors(layers, x, mu=[3.0, 3.0, 3.0]):
        assert float(factor.max() / factor.min()) == pytest.approx(3.0, rel=1e-13)


def test_factors_in_the_edge_cases() -> None:
    one = torch.ones(4, dtype=torch.float64)
    assert torch.equal(ref.fednlr_layer_factors(0.7 * one, 2.0), one)
    assert torch.equal(ref.fednlr_layer_factors(0 * one, 2.0), one)  # a dead layer
    assert torch.equal(ref.fednlr_layer_factors(torch.tensor([0.3, 0.3 * (1 + 1e-7), 0.3, 0.3]), 2.0), torch.ones(4))
    assert torch.equal(ref.fednlr_layer_factors(one[:1], 2.0), one[:1])  # one neuron
    assert torch.equal(ref.fednlr_layer_factors(rand(4).abs(), 1.0), one)
    assert not torch.equal(ref.fednlr_layer_factors(one + 1e-5 * one.cumsum(0), 2.0), one)
    with pytest.raises(ValueError, match="mu"):
        ref.fednlr_layer_factors(one, 0.9)


def test_conv_activation() -> None:
    out, scale, shift = rand(3, 6, 4, 5), rand(6, seed=1), rand(6, seed=2)
    assert close(ref.fednlr_conv_activation(out), torch.relu(out).mean(dim=(0, 2, 3)))
    normed = F.group_norm(out, 2, scale, shift)
    assert close(ref.fednlr_conv_activation(out, (2, scale, shift)), torch.relu(normed).mean(dim=(0, 2, 3)))
    W, x = rand(6, 4, seed=3), rand(9, 4, seed=4)
    dense = ref.fednlr_activations([(W, torch.zeros(6, dtype=torch.float64))], x)[0]
    assert close(ref.fednlr_conv_activation((x @ W.T)[:, :, None, None]), dense)


def test_fednlr_round_scales_rows_and_is_fedavg_at_mu_one() -> None:
    layers, batches = network(), data()
    assert close(ref.fednlr_round(layers, batches, 0.1, mu=1.0).w, fedavg(layers, batches, 0.1)[0])
    x, y = batches[0][0][0]
    single = ref.fednlr_round(layers, [[[(x, y)]]], 0.1)
    steps = ref.unflatten(single.deltas[0], layers)
    plain = ref.unflatten(-0.1 * ref.gradient(ref.flatten(layers), layers, x, y), layers)
    for (W, b), (W1, b1), factor in zip(steps, plain, single.factors[0], strict=True):
        assert close(W, factor[:, None] * W1)
        assert close(b, factor * b1)
    r = ref.fednlr_round(layers, batches, 0.1)
    assert close(r.w - ref.flatten(layers), sum(n * d for n, d in zip(COUNTS, r.deltas, strict=True)) / sum(COUNTS))


def test_example_1_prints_its_numbers() -> None:
    numbers = ref.fednlr_example1()
    printed = {"h1_before": 0.67, "h1_after": 0.73, "h2_before": 1.11, "h2_after": 1.04}
    printed |= {"p1_before": 0.45, "p1_after": 0.63, "p2_before": 0.55, "p2_after": 0.37}
    assert {name: round(value, 2) for name, value in numbers.items()} == printed
    # by autograd, and with another W2 of the same gap
    first = torch.tensor([[1, 1 / 3], [1 / 3, 1]], dtype=torch.float64, requires_grad=True)
    second = torch.tensor([[0.2, -0.25], [-0.25, 0.2]], dtype=torch.float64, requires_grad=True)
    x, other = torch.tensor([1, 1 / 3], dtype=torch.float64), torch.tensor([1 / 3, 1], dtype=torch.float64)
    loss = ref.cross_entropy((second @ torch.relu(first @ x))[None], torch.tensor([0]))
    g1, g2 = torch.autograd.grad(loss, (first, second))
    h = torch.relu((first - 0.5 * g1) @ other)
    p = torch.softmax((second - 0.5 * g2) @ h, 0)
    after = [numbers[name] for name in ("h1_after", "h2_after", "p1_after", "p2_after")]
    assert torch.cat([h, p]).tolist() == pytest.approx(after, rel=1e-12)


def test_theorem_2_against_autograd() -> None:
    W1, W2, own, x = rand(25, 6), rand(2, 25, seed=1), rand(8, 6, seed=2), rand(6, seed=3)
    truth = ref.fednlr_theorem2_autograd(W1, W2, own, x, 0.05)
    assert close(ref.fednlr_theorem2(W1, W2, own, x, 0.05), truth)
    assert not close(ref.fednlr_theorem2(W1, W2, own, x, 0.05, gate=False), truth, 1e-2)
    W1, own, x = W1.abs(), own.abs(), x.abs()  # every neuron active: the printed form is right too
    truth = ref.fednlr_theorem2_autograd(W1, W2, own, x, 0.05)
    assert close(ref.fednlr_theorem2(W1, W2, own, x, 0.05, gate=False), truth)
    # neural collapse, Eq. 2: neurons bound to the missing class lose activation, whatever the data
    W2 = torch.stack([torch.cat([torch.ones(10), torch.zeros(15)]), torch.cat([torch.zeros(10), torch.ones(15)])])
    assert bool((ref.fednlr_theorem2(W1, W2.double(), own, x, 0.05)[10:] > 0).all())


# -- FedAgg -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("L", [1, 2, 3, 5])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 1.0])
def test_the_linear_system_is_the_minimiser_at_every_start(L: int, alpha: float) -> None:
    phi1, phi2, w = rand(L, 7, seed=L), rand(L + 1, 7, seed=10 + L), rand(7, seed=20 + L)
    for start in range(L):
        eta = ref.fedagg_solve(phi1, phi2, w, alpha, start)
        assert torch.allclose(eta, ref.fedagg_brute(phi1, phi2, w, alpha, start), rtol=1e-9, atol=1e-13)
        best = ref.fedagg_objective(eta, phi1, phi2, w, alpha, start)
        for seed in range(10):
            other = eta + 1e-3 * rand(L - start, seed=seed)
            assert bool(ref.fedagg_objective(other, phi1, phi2, w, alpha, start) > best)
    last = ref.fedagg_solve(phi1, phi2, w, alpha, L - 1)
    assert float(last[0]) == pytest.approx(ref.fedagg_eq23(phi1[-1], w, phi2[-1], alpha), rel=1e-12, abs=1e-15)
    moved = torch.cat([phi2[:1] + 3.0, phi2[1:]])
    assert torch.equal(ref.fedagg_solve(phi1, moved, w, alpha), ref.fedagg_solve(phi1, phi2, w, alpha))


def test_the_tail_on_the_optimal_path_is_the_rest_of_the_solution() -> None:
    phi1, phi2, w = rand(4, 9), rand(5, 9, seed=1), rand(9, seed=2)
    eta = ref.fedagg_solve(phi1, phi2, w)
    for start in range(4):
        assert close(ref.fedagg_solve(phi1, phi2, w, start=start), eta[start:], 1e-10)
        w = w - eta[start] * phi1[start]


def test_the_solution_satisfies_equation_12_as_printed() -> None:
    phi1, phi2, w = rand(3, 9), rand(4, 9, seed=1), rand(9, seed=2)
    eta = ref.fedagg_solve(phi1, phi2, w)
    for start in range(3):
        right = (3 - start) * w - phi2[start + 1 :].sum(0)
        for r in range(start, 3):
            right = right - (3 - r) * eta[r] * phi1[r]
        assert float(9 * phi1[start] @ right) == pytest.approx(float(eta[start]), rel=1e-9)
        w = w - eta[start] * phi1[start]


def test_the_matrix_is_positive_semidefinite() -> None:
    for seed in range(20):
        L, P = 1 + seed % 6, 1 + seed % 4  # often more epochs than dimensions: a singular Gram matrix
        A, _ = ref.fedagg_system(rand(L, P, seed=seed), rand(L + 1, P, seed=99), rand(P, seed=98))
        assert torch.allclose(A, A.T, rtol=1e-14, atol=1e-14)
        values = torch.linalg.eigvalsh(A)
        assert bool(values.min() >= -1e-12 * values.max())


def test_one_sweep_of_the_published_fixed_point_is_the_contraction() -> None:
    layers, batches = network(), data()
    w0, eta = ref.flatten(layers), torch.full((3,), 0.1, dtype=torch.float64)
    found = ref.fedagg_fixed_point(layers, batches, 0.1, sweeps=4, epsilon=0.0)
    for sweep in range(4):
        at, rows = w0, []
        for e in range(3):
            pairs = [(torch.cat([x for x, _ in c[e]]), torch.cat([y for _, y in c[e]])) for c in batches]
            rows.append(sum(ref.gradient(at, layers, x, y) for x, y in pairs) / len(pairs))
            at = at - eta[e] * rows[-1]
        phi1 = torch.stack(rows)
        A, _ = ref.fedagg_system(phi1, ref.fedagg_reference(w0, phi1, 0.1), w0)
        eta = torch.linalg.solve(torch.eye(3, dtype=torch.float64) + 9 * A, 9 * A @ eta)
        for own in found.history[sweep + 1]:
            assert close(own, eta, 1e-9)


@pytest.mark.parametrize("along", ["current", "estimate"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_published_fixed_point_is_zero(along: str, whole: bool) -> None:
    layers, batches = network(), data(epochs=2, counts=(6, 9))
    found = ref.fedagg_fixed_point(layers, batches, 0.1, 0.5, 1e-12, 300, along, whole)
    sizes = [float(row.norm()) for row in found.history]
    assert all(torch.equal(row[0], row[1]) for row in found.history)  # the clients' paths coincide
    if along == "current":
        assert all(later < earlier for earlier, later in pairwise(sizes))
    assert sizes[-1] < 1e-6 * sizes[0]


def test_the_published_loop_stops_at_either_change_or_the_limit() -> None:
    layers, batches = network(), data()
    found = ref.fedagg_fixed_point(layers, batches, 0.1)
    assert min(found.changes[-1]) <= 1e-3
    assert all(min(change) > 1e-3 for change in found.changes[:-1])
    assert max(found.changes[-1]) > 1e-3  # "and" in the while: one of them still moves
    assert ref.fedagg_fixed_point(layers, batches, 0.1, sweeps=2).sweeps == 2
    idle = ref.fedagg_fixed_point_round(layers, batches, 0.1, sweeps=0)
    assert close(idle.w, fedavg(layers, batches, 0.1)[0])


def test_feedback_starts_as_fedavg_and_sums_the_epochs_gradients() -> None:
    layers, batches = network(), data()
    r = ref.fedagg_feedback_round(layers, batches, 0.1, None)
    w, deltas = fedavg(layers, batches, 0.1)
    assert close(r.w, w)
    assert close(-0.1 * r.phi1.sum(0), sum(deltas) / 3)  # uniform over clients


def test_feedback_rates_at_the_start_and_for_who_lags() -> None:
    w0, phi1 = rand(9), rand(3, 9, seed=1)
    phi2 = ref.fedagg_reference(w0, phi1, 0.1)
    A, b = ref.fedagg_system(phi1, phi2, w0)
    assert close(b, 0.1 * A @ torch.ones(3, dtype=torch.float64))
    A, _ = ref.fedagg_system(phi1, phi2, w0, start=1)
    on_time = ref.fedagg_solve(phi1, phi2, phi2[1], start=1)
    assert close(on_time, 0.1 * torch.linalg.solve(torch.eye(2, dtype=torch.float64) / 9 + A, A.sum(1)))
    lags = ref.fedagg_solve(phi1, phi2, phi2[1] + 0.1 * phi1[1], start=1)
    leads = ref.fedagg_solve(phi1, phi2, phi2[1] - 0.1 * phi1[1], start=1)
    assert float(leads[0]) < float(on_time[0]) < float(lags[0])


def test_feedback_rates_live_and_equal_clients_get_equal_rates() -> None:
    layers, own = network(), data(epochs=2, counts=(10,))[0]
    at, phi1, means = layers, None, []
    for _ in range(100):
        r = ref.fedagg_feedback_round(at, [own, own, own], 0.1, phi1, min_rate=1e-4, max_rate=0.9)
        assert r.rates[0] == r.rates[1] == r.rates[2]
        if phi1 is not None:  # exactly lr * (I + cA)^-1 cA 1: near lr while gradients are there, less as they vanish
            w0 = ref.flatten(at)
            A, _ = ref.fedagg_system(phi1, ref.fedagg_reference(w0, phi1, 0.1), w0)
            nominal = 0.1 * torch.linalg.solve(torch.eye(2, dtype=torch.float64) + 9 * A, 9 * A.sum(1))
            assert r.rates[0][0] == pytest.approx(float(nominal[0]), rel=1e-9)
        phi1, at = r.phi1, ref.unflatten(r.w, layers)
        means.append(float(np.mean(r.rates)))
    assert min(means[:20]) > 0.05
    assert min(means) > 0.005
    assert max(means) < 0.2


def test_feedback_clips_what_is_applied() -> None:
    layers, batches = network(), data()
    phi1 = ref.fedagg_feedback_round(layers, batches, 0.1, None).phi1
    r = ref.fedagg_feedback_round(layers, batches, 0.1, phi1, min_rate=0.09, max_rate=0.11)
    rates = np.array(r.rates)
    assert rates.min() == 0.09
    assert rates.max() == 0.11
    assert len(set(rates[:, 0])) == 1  # all are at w0 when epoch 0 begins


# -- FNR-FL -----------------------------------------------------------------------------------------------------


def fnr_case(mode: str, lam: float, p: float = 0.4) -> ref.FnrRound:
    clients, public = data(epochs=2), data(epochs=2, seed=5, counts=(15, 15, 15))
    return ref.fnr_round(network(), clients, ref.samples_of(public[0]), public, 0.1, p, lam, mode)


def test_the_published_penalty_has_no_gradient() -> None:
    printed, without = fnr_case("published", 7.0), fnr_case("gradient", 0.0)
    assert torch.equal(printed.w, without.w)
    assert not close(fnr_case("gradient", 0.5).w, without.w, 1e-6)
    layers, (x, y) = network(), data()[0][0][0]
    w = ref.flatten(layers)
    delta = rand(3)
    constant = ref.gradient(w, layers, x, y, lambda z, x, y: ref.fnr_published_penalty(z, y, delta))
    assert torch.equal(constant, ref.gradient(w, layers, x, y))


def test_fnr_refines_the_weakest_only() -> None:
    r = fnr_case("gradient", 0.5)
    assert r.chosen == [min(range(3), key=lambda i: (r.accuracies[i], i))]
    for i in range(3):
        assert torch.equal(r.deltas[i], r.first[i]) == (i not in r.chosen)
    w0 = ref.flatten(network())
    assert close(r.w - w0, sum(n * d for n, d in zip(COUNTS, r.deltas, strict=True)) / sum(COUNTS))
    assert close(fnr_case("gradient", 0.5, p=0.3).w, fedavg(network(), data(epochs=2), 0.1)[0])  # floor(0.9) = 0


def test_fnr_choice_is_exact_and_breaks_ties_by_id() -> None:
    assert len(ref.fnr_chosen([0.5] * 100, range(100), 0.29)) == 29
    assert ref.fnr_chosen([0.5, 0.5, 0.1, 0.5], [9, 4, 7, 6], 0.5) == [2, 1]
    with pytest.raises(ValueError, match="nobody"):
        ref.fnr_chosen([0.5, 0.4], [0, 1], 1.0)


def test_fnr_penalty_by_hand() -> None:
    z = torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]], dtype=torch.float64, requires_grad=True)
    y, target = torch.tensor([2, 0, 2]), torch.tensor([3.0, 100.0, 5.0], dtype=torch.float64)
    J = ref.fnr_gradient_penalty(z, y, target)  # 1/3*|3-1| + 2/3*|5-7.5|; class 1 is absent
    assert float(J.detach()) == pytest.approx(2 / 3 + 5 / 3)
    (g,) = torch.autograd.grad(J, z)
    hand = [[0.6 / 3, 0.8 / 3], [0.0, -1 / 3], [0.6 / 3, 0.8 / 3]]
    assert torch.allclose(g, torch.tensor(hand, dtype=torch.float64))
    zero = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(ref.fnr_gradient_penalty(zero, torch.tensor([0, 1]), target), zero)
    assert torch.equal(g, torch.zeros_like(g))
    assert ref.fnr_norms([(torch.eye(2), torch.zeros(2))], z.detach().float(), y, 3).tolist() == [1.0, 0.0, 7.5]


# -- FedMRUR ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
def test_distance_as_a_difference_is_exact(beta: float) -> None:
    for size, gap in product((1e-3, 1.0, 30.0, 800.0), (1e-6, 1e-2, 1.0)):
        z = size * rand(4, 8)
        zg = z + size * gap * rand(4, 8, seed=1)
        truth = [ref.lorentz_decimal(a.tolist(), b.tolist(), beta) for a, b in zip(z, zg, strict=True)]
        assert ref.lorentz(z, zg, beta).tolist() == pytest.approx(truth, rel=1e-12)
    z = 800 * rand(4, 8) / rand(4, 8).norm(dim=1, keepdim=True)
    truth = ref.lorentz_decimal(z[0].tolist(), (z[0] * 1.001).tolist(), beta)  # along z: the hardest direction
    assert float(ref.lorentz(z, z * 1.001, beta)[0]) == pytest.approx(truth, rel=1e-7)
    assert float(ref.lorentz_naive(z, z * 1.001, beta)[0]) != pytest.approx(truth, rel=1e-7)


def test_printed_form_fails_in_float32_and_the_difference_does_not() -> None:
    z = (800 * rand(50, 16) / rand(50, 16).norm(dim=1, keepdim=True)).float()
    zg = z + (1e-4 * rand(50, 16, seed=1)).float()
    truth = ref.lorentz(z.double(), zg.double())
    assert float(ref.lorentz_naive(z, zg).min()) < -0.01
    assert bool((ref.lorentz(z, zg) - truth).abs().max() <= 1e-4 * truth.max())


def test_penalty_is_least_and_flat_at_the_global_features() -> None:
    zg = 3 * rand(5, 4)
    for name in ("hyperbolic", "euclidean", "input"):

        def penalty(z: Tensor, name: str = name) -> Tensor:
            if name == "euclidean":
                return ref.euclidean_penalty(z, zg, 0.3, 10.0)
            if name == "input":
                return ref.input_penalty(z, zg, rand(5, 2, 3), 0.3, 10.0)
            return ref.hyperbolic_penalty(z, zg, 0.3, 10.0)

        z = zg.clone().requires_grad_(True)
        least = penalty(z)
        assert float(least.detach()) == pytest.approx(0.3, rel=1e-15)
        assert torch.equal(torch.autograd.grad(least, z)[0], torch.zeros_like(zg))
        for seed in range(20):
            assert float(penalty(zg + 0.1 * rand(5, 4, seed=seed))) > 0.3


def test_the_three_spaces_in_order() -> None:
    z, zg, x = rand(5, 4), rand(5, 4, seed=1), rand(5, 2, 3)
    naive = ref.hyperbolic_penalty(z, zg, 1.0, 10.0, naive=True)
    hyperbolic, euclidean = ref.hyperbolic_penalty(z, zg, 1.0, 10.0), ref.euclidean_penalty(z, zg, 1.0, 10.0)
    assert float(naive) == pytest.approx(float(hyperbolic), rel=1e-13)
    assert float(hyperbolic) < float(ref.input_penalty(z, zg, x, 1.0, 10.0)) < float(euclidean)
    assert float(ref.input_penalty(z, zg, 0 * x, 1.0, 10.0)) == float(hyperbolic)
    assert float(ref.input_penalty(z, zg, 1e6 * x, 1.0, 10.0)) == pytest.approx(float(euclidean), rel=1e-9)
    both, both_g = torch.cat([x.reshape(5, -1), z], 1), torch.cat([x.reshape(5, -1), zg], 1)
    assert float(ref.hyperbolic_penalty(both, both_g, 1.0, 10.0)) == pytest.approx(
        float(ref.input_penalty(z, zg, x, 1.0, 10.0)), rel=1e-12
    )
    ball = ref.poincare_input(100 * x, 4.0).reshape(5, -1).norm(dim=1)
    assert bool((ball < 2.0).all())  # a ball of radius sqrt(beta)


def test_normalized_aggregate() -> None:
    deltas = [rand(9, seed=seed) * (seed + 1) for seed in range(4)]
    update, mean = ref.normalized_aggregate(deltas), sum(deltas) / 4
    assert float(update.norm()) == pytest.approx(sum(float(d.norm()) for d in deltas) / 4, rel=1e-14)
    assert close(update / update.norm(), mean / mean.norm(), 1e-14)
    assert float(update.norm()) >= float(mean.norm())
    assert close(ref.normalized_aggregate(deltas[:1]), deltas[0], 1e-15)
    noise = [deltas[0], -deltas[0] * (1 + 1e-9)]
    assert torch.equal(ref.normalized_aggregate(noise), ref.weighted_mean(noise))
    still = [torch.zeros(9, dtype=torch.float64)] * 2
    assert torch.equal(ref.normalized_aggregate(still), still[0])


def test_fedmrur_switched_off_is_fedavg() -> None:
    layers, batches = network(), data()
    r = ref.fedmrur_round(
        layers, batches, 0.1, alpha=1.0, rho=0.0, gamma=0.0, normalized=False, weights=ref.counts_of(batches)
    )
    assert close(r.w, fedavg(layers, batches, 0.1)[0])


def test_momentum_alone_repeats_the_last_update() -> None:
    layers, batches = network(), data(counts=(10, 10, 10))
    first = ref.fedmrur_round(layers, batches, 0.1)
    again = ref.fedmrur_round(ref.unflatten(first.w, layers), batches, 0.1, first.D, alpha=0.0)
    assert close(again.update, first.update, 1e-12)
    assert close(again.D, first.D, 1e-12)


def test_sam_takes_the_gradient_uphill() -> None:
    layers, (x, y) = network(), data()[0][0][0]
    w0 = ref.flatten(layers)
    g = ref.gradient(w0, layers, x, y)
    r = ref.fedmrur_round(layers, [[[(x, y)]]], 0.1, alpha=1.0, rho=0.3, gamma=0.0)
    assert close(r.deltas[0], -0.1 * ref.gradient(w0 + 0.3 * g / g.norm(), layers, x, y))
    # one step, one client: at w0 the penalty is flat, so only SAM's second gradient sees it
    off = ref.fedmrur_round(layers, [[[(x, y)]]], 0.1, alpha=1.0, rho=0.0, gamma=5.0, sigma=1.0)
    assert close(off.deltas[0], -0.1 * g)
    on = ref.fedmrur_round(layers, [[[(x, y)]]], 0.1, alpha=1.0, rho=0.3, gamma=5.0, sigma=1.0)
    assert not close(on.deltas[0], r.deltas[0], 1e-3)


def test_everyone_standing_still_moves_nothing() -> None:
    layers, batches = network(), data()
    w0 = ref.flatten(layers)
    assert torch.equal(ref.fednlr_round(layers, batches, 0.0).w, w0)
    assert torch.equal(ref.fedagg_feedback_round(layers, batches, 0.0, None).w, w0)
    update = ref.normalized_aggregate([torch.zeros_like(w0)] * 3)
    assert torch.equal(w0 + update, w0)
