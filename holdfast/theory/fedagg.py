"""FedAgg, Secs. V and VI: the rates of Theorem 1, the fixed point of Alg. 1, and what feedback does to the rates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.config import Config
from holdfast.method import Method
from holdfast.parts.fedagg import FedAgg, solve, system, walk
from holdfast.rounds import prepare
from holdfast.theory import feedback
from holdfast.theory import figure as fig
from holdfast.theory.claim import Claim, above, below, equal
from holdfast.theory.watch import Watch, seen

ALPHA = 0.1
C = (1 - ALPHA) / ALPHA
ROUNDS = 100
DIGITS = {"data": "digits", "split": "shards(2)", "model": "linear", "epochs": 3, "lr": 0.1, "cohort": 5}


# ------------------------------------------------------------------------------------------------ Theorem 1
class Problem(NamedTuple):
    """What a client is given: phi1[0..L-1], phi2[0..L] and its model."""

    phi1: Tensor
    phi2: Tensor
    w: Tensor


def problems(number: int, size: int = 12, seed: int = 0) -> list[Problem]:
    """Random ones with L = 1..8 epochs; the client is off the mean path."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    found = []
    for i in range(number):
        phi1, w0 = normal(1 + i % 8, size), normal(size)
        steps = torch.cat([torch.zeros(1, size, dtype=torch.float64), 0.1 * phi1.cumsum(0)])
        found.append(Problem(phi1, w0 - steps, w0 + 0.3 * normal(size)))
    return found


def rates(p: Problem) -> Tensor:
    """The library's solution."""
    return solve(p.phi1, p.w - p.phi2[1:], ALPHA, 0)


def path(p: Problem, eta: Tensor) -> Tensor:
    """w[0..L] (Eq. 11)."""
    return torch.cat([p.w[None], p.w - (eta[:, None] * p.phi1).cumsum(0)])


def objective(p: Problem, eta: Tensor) -> Tensor:
    """Eq. 10 for one round."""
    return ALPHA * (eta**2).sum() + (1 - ALPHA) * ((path(p, eta) - p.phi2) ** 2).sum()


def minimised(p: Problem) -> Tensor:
    """The minimiser of Eq. 10 by brute force: L-BFGS with autograd's gradients, from zero."""
    eta = torch.zeros(len(p.phi1), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [eta], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        value = objective(p, eta)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[arg-type]
    return eta.detach()


def theorem1(p: Problem, eta: Tensor) -> Tensor:
    """What Eq. 12 says the rates are, given the rates: eta is on both of its sides."""
    L, w = len(eta), path(p, eta)
    sides = []
    for epoch in range(L):
        later = sum(((L - r) * eta[r] * p.phi1[r] for r in range(epoch, L)), torch.zeros_like(p.w))
        sides.append(C * p.phi1[epoch] @ ((L - epoch) * w[epoch] - later - p.phi2[epoch + 1 :].sum(0)))
    return torch.stack(sides)


def last_rate(p: Problem) -> Tensor:
    """Eq. 23: the rate of the last epoch, for L = 1."""
    phi = p.phi1[-1]
    return C * (phi @ (p.w - p.phi2[-1])) / (1 + C * (phi @ phi))


def least_eigenvalue(phi1: Tensor) -> float:
    """The least eigenvalue of A as a share of the largest."""
    values = torch.linalg.eigvalsh(system(phi1))
    return float(values[0] / values[-1])


def fields(number: int) -> list[Tensor]:
    """Random phi1, a third of them with fewer directions than epochs, a third almost parallel."""
    rng = torch.Generator().manual_seed(1)
    found = []
    for i in range(number):
        L = 2 + i % 9
        phi1 = torch.randn(L, 2 if i % 3 == 1 else 20, generator=rng, dtype=torch.float64)
        found.append(phi1[:1] + 1e-6 * phi1 if i % 3 == 2 else phi1)
    return found


# ------------------------------------------------------------------------------------------------ Algorithm 1
class Sweeps(NamedTuple):
    rates: Tensor  # [sweep + 1, L]
    error: float  # of (I + cA)^-1 cA eta as a description of a sweep
    factor: float  # the largest factor of the last sweep


@cache
def fixed_point(sweeps: int = 1000) -> Sweeps:
    """Alg. 1 of the paper on the small federation, without its early stop."""
    w = torch.zeros(feedback.CLASSES * (feedback.INPUTS + 1), dtype=torch.float64)
    eta = torch.full((feedback.EPOCHS,), feedback.LR, dtype=torch.float64)
    found, error = [eta], 0.0
    A = torch.empty(0)
    for _ in range(sweeps):
        way, field = walk(w, eta, feedback.visit)
        A = C * system(field)
        contracted = torch.linalg.solve(torch.eye(len(A), dtype=A.dtype) + A, A @ eta)
        eta = solve(field, w - way[1:], ALPHA, 0)
        error = max(error, float((eta - contracted).abs().max()))
        found.append(eta)
    largest = float(torch.linalg.eigvalsh(A)[-1])
    return Sweeps(torch.stack(found), error, largest / (1 + largest))


def stopped(epsilon: float = 1e-3) -> Tensor:
    """The rates that the library's Alg. 1 gives with the paper's epsilon and no limit on the sweeps."""
    w = torch.zeros(feedback.CLASSES * (feedback.INPUTS + 1), dtype=torch.float64)
    part = FedAgg(mode="fixed_point", epsilon=epsilon, sweeps=10**6)
    return part.consult(w, torch.tensor(feedback.LR, dtype=torch.float64), feedback.EPOCHS, feedback.visit)["eta"]


# ------------------------------------------------------------------------------------------------ a real run
@cache
def digits_rates(rounds: int = ROUNDS) -> Tensor:
    """Every client's mean rate in every round of ``fedagg`` on the digits, [round, client]."""
    simulation = prepare(Config().changed(**DIGITS), Method((FedAgg(), Watch())), None, None)
    found = []
    for t in range(1, rounds + 1):
        simulation.play(t)
        found.append(seen(simulation)["rates"])
    return torch.stack(found)


# ------------------------------------------------------------------------------------------------ claims
def claims(data_dir: Path | None = None) -> list[Claim]:
    return [*_solution_claims(), *_fixed_point_claims(), *_feedback_claims()]


def _solution_claims() -> list[Claim]:
    some = problems(80)
    brute = max(float((rates(p) - minimised(p)).abs().max()) for p in some)
    implicit = max(float((rates(p) - theorem1(p, rates(p))).abs().max()) for p in some)
    single = max(float((rates(p)[0] - last_rate(p)).abs()) for p in some if len(p.phi1) == 1)
    every = torch.cat([rates(p) for p in some])
    return [
        equal(
            "The solution of (I + cA)η = cb minimises the objective, Eq. 10: largest distance to brute force",
            0, brute, 1e-6, f"{len(some)} random clients with 1 to 8 epochs; L-BFGS with autograd",
        ),
        equal("It satisfies Theorem 1, Eq. 12, in which η stands on both sides: largest error", 0, implicit, 1e-9),
        equal("Eq. 23 is its case L = 1: largest error", 0, single, 1e-12),
        above(
            "A is positive semidefinite: least eigenvalue as a share of the largest, over 900 random φ₁",
            -1e-12, min(least_eigenvalue(phi1) for phi1 in fields(900)),
            "with few directions or almost parallel ones too; below zero only by rounding",
        ),
        equal(
            "Theorem 4: every rate lies in (0, 1): share of the rates of these random clients",
            1, float(((every > 0) & (every < 1)).double().mean()), 0,
            f"from {float(every.min()):.2f} to {float(every.max()):.2f}: who ran ahead gets a negative rate; hence the "
            "library clips",
        ),
    ]  # fmt: skip


def _fixed_point_claims() -> list[Claim]:
    found, early = fixed_point(), stopped()
    means = found.rates.mean(1)
    return [
        equal(
            "Alg. 1: a sweep maps η to (I + cA)⁻¹cA η, since all clients walk along the same φ₁: largest error",
            0, found.error, 1e-12,
        ),
        below("This map is a contraction: its largest factor", 1, found.factor),
        equal(
            "So the fixed point of Theorem 3 is η = 0: mean rate after 1000 sweeps from 0.1",
            0, float(means[-1]), 1e-6, f"{means[10]:.3f} after 10, {means[100]:.3f} after 100",
        ),
        equal(
            "Alg. 1 with its ε = 0.001 returns the fixed point: mean rate it returns",
            0, float(early.mean()), 1e-6, "it stops when one of two changes is small, still far from the fixed point",
        ),
    ]  # fmt: skip


def _feedback_claims() -> list[Claim]:
    own, anchored, same = (feedback.rates(f, ROUNDS, e) for f, e in (("self", False), ("anchored", False), ("anchored", True)))
    fall, held, digits = own.mean((1, 2)), anchored.mean((1, 2)), digits_rates().mean(1)
    lr = feedback.LR
    return [
        below(
            "Feedback of the cohort's own adapted path decays: mean rate in round 100",
            1e-6, float(fall[-1]), f"{fall[0]:.2g} in round 1, {fall[19]:.1e} in round 20, {fall[59]:.1e} in round 60",
        ),
        above(
            "Feedback anchored on the nominal rate 0.1 does not die: least mean rate of 100 rounds",
            lr / 2, float(held.min()), f"from round 50 on {float(held[49:].mean()):.3f}",
        ),
        below("nor does it explode: largest mean rate of 100 rounds", 4 * lr, float(held.max())),
        above(
            "The part fedagg on the digits, shards(2): least mean rate of a cohort in 100 rounds",
            lr / 2, float(digits.min()), f"mean {float(digits.mean()):.3f}; last ten rounds {float(digits[-10:].mean()):.3f}",
        ),
        below("and its largest", 4 * lr, float(digits.max())),
        equal(
            "Equal clients get equal rates: largest difference within a round",
            0, float((same.amax(2) - same.amin(2)).max()), 1e-12,
        ),
        equal(
            "and these are near the nominal rate 0.1: mean of 100 rounds",
            lr, float(same.mean()), lr / 4, f"from {float(same.min()):.3f} to {float(same.max()):.3f}",
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ picture
def picture(to: Path, data_dir: Path | None = None) -> None:
    figure, (first, second, third, fourth) = fig.panels("FedAgg: learning rates from the cohort's mean path")
    some = problems(80)
    ours, brute = torch.cat([rates(p) for p in some]), torch.cat([minimised(p) for p in some])
    first.plot([float(brute.min()), float(brute.max())], [float(brute.min()), float(brute.max())], color="black", lw=0.8)
    first.axvspan(float(brute.min()), 0, color=fig.RED, alpha=0.1, lw=0, label="excluded by Theorem 4")
    first.plot(brute, ours, ".", ms=4, color=fig.BLUE, label="rates of 80 random clients")
    fig.label(first, "a  Theorem 1 as a linear system", "by brute force", "(I + cA)η = cb")
    fig.legend(first)
    _eigenvalue_panel(second)
    for epoch, colour in enumerate((fig.BLUE, fig.ORANGE, fig.GREEN)):
        third.semilogy(fixed_point().rates[:, epoch], color=colour, label=f"epoch {epoch + 1}")
    third.axhline(float(stopped().mean()), color=fig.RED, lw=1, ls="--", label="where ε = 0.001 stops (mean)")
    fig.label(third, "c  Alg. 1: the fixed point is zero", "sweep", "rate")
    fig.legend(third)
    _round_panel(fourth)
    fig.save(figure, to)


def _eigenvalue_panel(ax: fig.Axes) -> None:
    """All eigenvalues of A for random phi1, as shares of the largest."""
    ordinary = [phi1 for phi1 in fields(900) if phi1.shape[1] == 20 and float((phi1[0] - phi1[1]).abs().max()) > 1e-3]
    for phi1 in ordinary[::3]:
        values = torch.linalg.eigvalsh(system(phi1)).flip(0)
        ax.semilogy(range(1, len(values) + 1), values / values[0], "-", color=fig.BLUE, lw=0.6, alpha=0.35)
    fig.label(ax, "b  A is positive semidefinite", "eigenvalue, sorted", "share of the largest")


def _round_panel(ax: fig.Axes) -> None:
    number = range(1, ROUNDS + 1)
    ax.axhline(feedback.LR, color="black", lw=0.8, label="nominal rate")
    ax.semilogy(number, feedback.rates("self").mean((1, 2)), color=fig.RED, label="feedback of its own path")
    ax.semilogy(number, feedback.rates("anchored").mean((1, 2)), color=fig.BLUE, label="anchored (the library)")
    ax.semilogy(number, digits_rates().mean(1), color=fig.GREEN, lw=1, label="fedagg on the digits")
    fig.label(ax, "d  mean rate of the cohort", "round", "rate")
    fig.legend(ax, "lower left")
