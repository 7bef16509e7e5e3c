"""FedMRUR, Sec. 3 and Theorem 1: the length of the aggregate, and the distance in the Lorentz model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from holdfast.parts.hyperbolic import lorentz_distance
from holdfast.theory import figure as fig
from holdfast.theory.claim import Claim, above, below, equal
from holdfast.theory.lorentz import distances, features
from holdfast.theory.updates import (
    COHORT,
    METHODS,
    ROUNDS,
    UpdateRounds,
    aggregated,
    length_error,
    played,
    random_deltas,
    signs,
    stretch,
    turn,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LENGTHS = (1, 3, 10, 30, 100, 300, 800, 2000)  # of feature vectors


def claims(data_dir: Path | None = None) -> list[Claim]:
    """Compute and judge the paper's claims."""
    return [*_aggregate_claims(), *_distance_claims(), *_float_claims()]


def _aggregate_claims() -> list[Claim]:
    random, real = random_deltas(), {m: stretch(played(m).deltas) for m in METHODS}
    made = torch.stack([aggregated(d) for d in random[::20]])
    some = UpdateRounds(random[::20], made)
    run = played("fedmrur")
    here, forth, back = signs()
    return [
        above(
            "d_t = Σ‖Δ_i‖ / ‖ΣΔ_i‖ ≥ 1 (Theorem 1) for 2000 random cohorts: least", 1, float(stretch(random).min()),
        ),
        *(
            above(
                f"d_t ≥ 1 in {ROUNDS} rounds of {m} on the digits, dirichlet(0.1): least", 1, float(d.min()),
                f"mean {float(d.mean()):.2f}, largest {float(d.max()):.2f}; "
                f"orthogonal updates of 10 clients would give {COHORT**0.5:.2f}",
            )
            for m, d in real.items()
        ),
        equal(
            "The aggregate of Alg. 1 line 15 is as long as the mean update of a client: largest relative error, random",
            0, length_error(some), 1e-12,
        ),
        equal(
            "The aggregate is as long as the mean update in the rounds of fedmrur, in float32: largest relative error",
            0, length_error(run), 1e-5,
        ),
        equal(
            "The aggregate has the direction of the mean update: largest 1 − cosine, random and real", 0,
            max(turn(some), turn(run)), 1e-6,
        ),
        below(
            "Alg. 1 line 16, w − η_g·Δ with Δ = w_K − w_0, lowers the loss: test loss after one round",
            here, back, f"the bound is the loss before; with w + η_g·Δ, as in the library, it is {forth:.2f}",
        ),
    ]  # fmt: skip


def _distance_claims() -> list[Claim]:
    pairs = [
        features(length, gap, seed=i) for i, (length, gap) in enumerate(((1, 1), (30, 3), (800, 1e-2), (800, 800)))
    ]
    z, zg = (torch.cat(v).double() for v in zip(*pairs, strict=True))
    there, back = lorentz_distance(z, zg, 1.0), lorentz_distance(zg, z, 1.0)
    euclid = ((z - zg) ** 2).sum(1)
    turned = z.flip(1)
    return [
        equal(
            "The Lorentz distance (Eqs. 3, 4) is symmetric: largest difference",
            0, float((there - back).abs().max()), 0,
        ),
        equal(
            "The Lorentz distance is zero for equal features: largest",
            0, float(lorentz_distance(z, z, 1.0).abs().max()), 0,
        ),
        Claim(
            "The Lorentz distance is positive for different features: least of 400 pairs",
            "> 0", float(there.min()), bool(there.min() > 0),
            f"its least share of the squared Euclidean distance is {float((there / euclid).min()):.1e}",
        ),
        below(
            "The Lorentz distance is at most the squared Euclidean distance: largest quotient",
            1, float((there / euclid).max()),
        ),
        equal(
            "The Lorentz distance of features of equal length is the squared Euclidean one: largest relative error", 0,
            float((lorentz_distance(z, turned, 1.0) / ((z - turned) ** 2).sum(1) - 1).abs().max()), 1e-12,
        ),
    ]  # fmt: skip


def _float_claims() -> list[Claim]:
    at = distances(800.0)
    negative = float((at.printed < 0).double().mean())
    return [
        above(
            "The distance as printed, in float32, is never negative at ‖z‖ = 800: least of 100 close pairs",
            0, float(at.printed.min()),
            f"negative for {negative:.0%} of them; the true values are {float(at.true.min()):.1e} to "
            f"{float(at.true.max()):.1e}",
        ),
        equal(
            "The library's form of the distance is exact at ‖z‖ = 800: largest relative error against 60 digits", 0,
            float((at.ours / at.true - 1).abs().max()), 1e-6,
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ picture
def picture(to: Path, data_dir: Path | None = None) -> None:
    """Draw four panels into a file."""
    figure, (first, second, third, fourth) = fig.panels("FedMRUR: normalised aggregation and the Lorentz distance")
    number = range(1, ROUNDS + 1)
    for method, colour in zip(METHODS, (fig.BLUE, fig.ORANGE), strict=True):
        first.plot(number, stretch(played(method).deltas), color=colour, label=method)
    first.axhline(1, color="black", lw=0.8, label="parallel updates")
    first.axhline(COHORT**0.5, color=fig.GREY, lw=0.8, ls="--", label=f"orthogonal updates, √{COHORT}")
    first.set_ylim(0.8, 6)
    fig.label(first, "a  d_t on the digits, dirichlet(0.1)", "round", "Σ‖Δ_i‖ / ‖ΣΔ_i‖")
    fig.legend(first, "upper left")
    run = played("fedmrur")
    second.plot(
        number, torch.linalg.vector_norm(run.deltas, dim=2).mean(1), "o", ms=4, color=fig.ORANGE, label="mean ‖Δ_i‖"
    )
    second.plot(number, torch.linalg.vector_norm(run.updates, dim=1), color=fig.BLUE, lw=1, label="‖aggregate‖")
    second.plot(
        number, torch.linalg.vector_norm(run.deltas.mean(1), dim=1), color=fig.GREY, lw=1, ls="--", label="‖mean Δ_i‖"
    )
    second.set_ylim(bottom=0)
    fig.label(second, "b  lengths in the rounds of fedmrur", "round", "length")
    fig.legend(second)
    _geometry_panel(third)
    _error_panel(fourth)
    fig.save(figure, to)


def _geometry_panel(ax: Axes) -> None:
    """Draw the distance from (1, 0) and (4, 0) along the axis, and the Euclidean one."""
    t = torch.linspace(0, 6, 200, dtype=torch.float64)
    z = torch.stack([t, torch.zeros_like(t)], 1)
    for start, colour in ((1.0, fig.BLUE), (4.0, fig.ORANGE)):
        at = torch.tensor([start, 0.0], dtype=torch.float64).expand_as(z)
        ax.plot(t, lorentz_distance(z, at, 1.0), color=colour, label=f"Lorentz, from length {start:g}")
        ax.plot(t, (t - start) ** 2, color=colour, lw=0.8, ls="--", label="squared Euclidean")
    ax.set_ylim(0, 6)
    fig.label(ax, "c  distance between parallel features", "length of the other feature", "distance")
    fig.legend(ax, "upper right")


def _error_panel(ax: Axes) -> None:
    """Draw the error of small distances, by the length of the features."""
    results = [distances(float(length)) for length in LENGTHS]
    printed = [float((e.printed - e.true).abs().max()) for e in results]
    ours = [float((e.ours - e.true).abs().max()) for e in results]
    ax.loglog(LENGTHS, printed, "o-", ms=4, color=fig.RED, label="as printed, float32")
    ax.loglog(LENGTHS, ours, "s-", ms=4, color=fig.GREEN, label="the library")
    ax.loglog(LENGTHS, [float(e.true.mean()) for e in results], color="black", lw=0.8, label="the distance itself")
    fig.label(ax, "d  close features: largest error of 100 pairs", "‖z‖", "error")
    fig.legend(ax, "center left")
