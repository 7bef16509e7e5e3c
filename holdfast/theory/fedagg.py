"""FedAgg, Secs. V and VI: the rates of Theorem 1, the fixed point of Alg. 1, and how feedback changes the rates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.parts.fedagg import FedAgg
from holdfast.runs.setup import prepare_simulation
from holdfast.theory import feedback
from holdfast.theory import figure as fig
from holdfast.theory.claim import Claim, above, below, equal
from holdfast.theory.rates import (
    brute_force,
    fields,
    fixed_point,
    last_rate,
    least_eigenvalue,
    problems,
    rates,
    stopped,
    theorem1,
)
from holdfast.theory.recorder import Recorder, recorded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDS = 100
DIGITS = {
    "data": "digits", "split": "shards(2)", "model": "linear", "epochs": 3, "lr": 0.1, "cohort": 5, "device": "cpu",
}  # fmt: skip


@cache
def digits_rates(rounds: int = ROUNDS) -> Tensor:
    """Return every client's mean rate in every round of ``fedagg`` on the digits, [round, client]."""
    simulation = prepare_simulation(Config().changed(**DIGITS), Method((FedAgg(), Recorder())), None, None)
    means = []
    for t in range(1, rounds + 1):
        simulation.play(t)
        means.append(recorded(simulation)["rates"])
    return torch.stack(means)


# ------------------------------------------------------------------------------------------------ claims
def claims(data_dir: Path | None = None) -> list[Claim]:
    """Compute and judge the paper's claims."""
    return [*_solution_claims(), *_fixed_point_claims(), *_feedback_claims()]


def _solution_claims() -> list[Claim]:
    some = problems()
    brute = float((torch.cat([rates(p) for p in some]) - brute_force()).abs().max())
    implicit = max(float((rates(p) - theorem1(p, rates(p))).abs().max()) for p in some)
    single = max(float((rates(p)[0] - last_rate(p)).abs()) for p in some if len(p.phi1) == 1)
    every = torch.cat([rates(p) for p in some])
    return [
        equal(
            "The solution of (I + cA)η = cb minimises the objective, Eq. 10: largest distance to brute force",
            0, brute, 1e-6, f"{len(some)} random clients with 1 to 8 epochs; L-BFGS with autograd",
        ),
        equal("The solution satisfies Theorem 1, Eq. 12, with η on both sides: largest error", 0, implicit, 1e-9),
        equal("Eq. 23 is the solution for L = 1: largest error", 0, single, 1e-12),
        above(
            "A is positive semidefinite: least eigenvalue as a share of the largest, over 900 random φ₁",
            -1e-12, min(least_eigenvalue(phi1) for phi1 in fields(900)),
            "including few directions and almost parallel ones: the kernel L − max(l, r) alone is positive definite",
        ),
        equal(
            "Theorem 4: every rate lies in (0, 1): share of the rates of random clients off the mean path",
            1, float(((every > 0) & (every < 1)).double().mean()), 0,
            f"from {float(every.min()):.2f} to {float(every.max()):.2f}: a client that ran ahead gets a negative "
            "rate, so the library clips the rates",
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
        below("A sweep of Alg. 1 is a contraction: largest factor of (I + cA)⁻¹cA", 1, found.factor),
        equal(
            "The fixed point of Alg. 1 (Theorem 3) is η = 0: mean rate after 1000 sweeps from 0.1",
            0, float(means[-1]), 1e-6, f"{means[10]:.3f} after 10, {means[100]:.3f} after 100",
        ),
        equal(
            "Alg. 1 with its ε = 0.001 returns the fixed point: mean rate it returns",
            0, float(early.mean()), 1e-6, "it stops as soon as one of two changes is small, far from the fixed point",
        ),
    ]  # fmt: skip


def _feedback_claims() -> list[Claim]:
    fall, held = (feedback.rates(f).mean((1, 2)) for f in ("self", "anchored"))
    same, digits = feedback.rates("anchored", equal=True), digits_rates().mean(1)
    lr = feedback.LR
    return [
        below(
            "Feedback of the cohort's own adapted path decays: mean rate in round 100",
            1e-6, float(fall[-1]), f"{fall[0]:.2g} in round 1, {fall[19]:.1e} in round 20, {fall[59]:.1e} in round 60",
        ),
        above(
            "Feedback anchored on the nominal rate 0.1 does not vanish: least mean rate of 100 rounds",
            lr / 2, float(held.min()), f"{float(held[49:].mean()):.3f} from round 50",
        ),
        below(
            "Feedback anchored on the nominal rate 0.1 does not explode: largest mean rate of 100 rounds",
            4 * lr, float(held.max()),
        ),
        above(
            "The part fedagg at lr 0.1 on the digits, shards(2), does not vanish: least mean rate of 100 rounds",
            lr / 2, float(digits.min()),
            f"mean {float(digits.mean()):.3f}; last ten rounds {float(digits[-10:].mean()):.3f}",
        ),
        below(
            "The part fedagg at lr 0.1 on the digits, shards(2), does not explode: largest mean rate of 100 rounds",
            4 * lr, float(digits.max()),
        ),
        equal(
            "Equal clients get equal rates: largest difference within a round",
            0, float((same.amax(2) - same.amin(2)).max()), 1e-12,
        ),
        equal(
            "Equal clients get rates near the nominal 0.1 while gradients are large: mean of rounds 2 to 10",
            lr, float(same[1:10].mean()), lr / 4,
        ),
        equal(
            "Equal clients keep rates near the nominal 0.1: mean of round 100",
            lr, float(same[-1].mean()), lr / 4,
            "they converge, φ₁ vanishes, but αη² does not scale with it: where c·A ≪ 1 the rate is about c·A·lr",
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ picture
def picture(to: Path, data_dir: Path | None = None) -> None:
    """Draw four panels into a file."""
    figure, (first, second, third, fourth) = fig.panels("FedAgg: learning rates from the cohort's mean path")
    ours, brute = torch.cat([rates(p) for p in problems()]), brute_force()
    ends = [float(brute.min()), float(brute.max())]
    first.plot(ends, ends, color="black", lw=0.8)
    first.axvspan(ends[0], 0, color=fig.RED, alpha=0.1, lw=0, label="excluded by Theorem 4")
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


def _eigenvalue_panel(ax: Axes) -> None:
    """Draw the least eigenvalue of A for random phi1, by the number of epochs."""
    kinds = {"any directions": fig.BLUE, "two directions": fig.ORANGE, "almost parallel": fig.GREEN}
    for kind, (name, colour) in enumerate(kinds.items()):
        some = fields(900)[kind::3]
        epochs = [len(phi1) + 0.2 * (kind - 1) for phi1 in some]
        ax.semilogy(epochs, [least_eigenvalue(phi1) for phi1 in some], ".", ms=3, color=colour, label=name)
    fig.label(ax, "b  A is positive semidefinite, for 900 random φ₁", "epochs L", "least / largest eigenvalue")
    fig.legend(ax, "lower left")


def _round_panel(ax: Axes) -> None:
    """Draw the mean rate of every round."""
    number = range(1, ROUNDS + 1)
    ax.axhline(feedback.LR, color="black", lw=0.8, label="nominal rate")
    ax.semilogy(number, feedback.rates("self").mean((1, 2)), color=fig.RED, label="feedback of its own path")
    ax.semilogy(number, feedback.rates("anchored").mean((1, 2)), color=fig.BLUE, label="anchored (the library)")
    ax.semilogy(number, digits_rates().mean(1), color=fig.GREEN, lw=1, label="fedagg on the digits")
    ax.set_ylim(1e-12, 5)
    fig.label(ax, "d  mean rate of the cohort", "round", "rate")
    fig.legend(ax, "center right")
