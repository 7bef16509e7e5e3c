"""FedBug, Sec. 4 and Appendix B: how fast two clients agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from holdfast.theory import figure as fig
from holdfast.theory.claim import Claim, above, below, equal
from holdfast.theory.two_clients import (
    LR,
    ROUNDS,
    SEEDS,
    STEPS,
    bound,
    flow,
    hessian,
    limit,
    loss,
    path,
    printed_limit,
    ratio,
    slack,
    starts,
    thawed,
    visited,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = (0.1, 0.2, 0.4)
NEAR = 1e-4  # "near the minimum": the loss of the server's model


def claims(data_dir: Path | None = None) -> list[Claim]:
    """Compute and judge the paper's claims."""
    return [*_flow_claims(), *_fedavg_claims(), *_fedbug_claims(), *_fedbabu_claims()]


def _flow_claims() -> list[Claim]:
    a, _, v = starts().unbind(-1)
    end_a, end_v = flow(a, v)
    drift = ((end_a**2 - end_v**2) - (a**2 - v**2)).abs().max()
    right_a, right_v = limit(a, v)
    error = torch.maximum((right_a - end_a).abs(), (right_v - end_v).abs()).max()
    wrong_a, wrong_v = printed_limit(a, v)
    eigenvalues = torch.linalg.eigvalsh(hessian(0.1, 0.1))
    return [
        equal("Gradient flow conserves a² − v² (B.3): largest change over 50 starts", 0, float(drift), 1e-8),
        equal(
            "Gradient flow ends where the corrected closed form says (B.3 without its factor ½): largest error",
            0, float(error), 1e-8,
        ),
        equal(
            "The minimiser as printed in B.3, with the factor ½, satisfies its own condition a·v = 1",
            1, float((wrong_a * wrong_v).mean()), 1e-9,
            "the printed ½ contradicts the condition it is derived from; the corrected form gives "
            f"{float((right_a * right_v).mean()):.6f}",
        ),
        Claim(
            "The loss is not convex: at a = v = 0.1 one eigenvalue of the Hessian is negative (B.4)",
            "< 0", float(eigenvalues[0]), bool(eigenvalues[0] < 0 < eigenvalues[1]),
            f"the other is {float(eigenvalues[1]):.2f}",
        ),
    ]  # fmt: skip


def _fedavg_claims() -> list[Claim]:
    plain = thawed(0)
    everywhere, near = visited(), visited(NEAR)
    all_found, found, theory = ratio(everywhere, plain), ratio(near, plain), bound(near)
    pairs = torch.stack([bound(everywhere), all_found])
    correlation = float(torch.corrcoef(pairs)[0, 1])
    over = float((found > theory).double().mean())
    return [
        above(
            "Fig. 2a: the ratio estimated from θ follows FedAvg's measured one: correlation over all rounds",
            0.95, correlation,
            f"{len(everywhere)} rounds; near the minimum (loss < {NEAR:g}, {len(near)} rounds) "
            f"{float(torch.corrcoef(torch.stack([theory, found]))[0, 1]):.6f}",
        ),
        below(
            "Theorem 1: near the minimum FedAvg's ratio is at most (1 + (1+α)cos²θ)/2 with a small α: α needed",
            0.01, slack(near, plain), falling(plain),
        ),
        below(
            "Theorem 1 read with α = 0: (1 + cos²θ)/2 is an upper bound near the minimum: largest excess",
            0, float((found - theory).max()),
            f"{over:.0%} of the rounds are slightly above it: it is the limit of the ratio, not a bound",
        ),
    ]  # fmt: skip


def falling(moves: tuple[bool, ...]) -> str:
    """Describe how alpha falls on the way to the minimum."""
    steps = [f"{slack(visited(most), moves):.1g} at loss < {most:g}" for most in (1e-2, 1e-3, NEAR, 1e-6)]
    return "α falls with the loss: " + ", ".join(steps)


def _fedbug_claims() -> list[Claim]:
    plain, one = thawed(0), (False, *thawed(0)[1:])
    near, everywhere = visited(NEAR), visited()
    better = torch.stack([ratio(everywhere, thawed(s)) < ratio(everywhere, plain) for s in SHARES]).all(0)
    close = better[loss(everywhere) < NEAR]
    least = float(loss(everywhere[~better]).min())
    means = {s: float(ratio(near, thawed(s)).mean()) for s in (0.0, *SHARES)}
    curves = {s: loss(path(thawed(s))).mean(1) for s in (0.0, 0.4)}
    last = {s: float(c[-1]) for s, c in curves.items()}
    behind = torch.nonzero(curves[0.4][1:] >= curves[0.0][1:]).flatten() + 1
    first = int(behind.max()) + 1 if len(behind) else 1
    return [
        below(
            "Theorem 2: with one frozen step the ratio is at most (1 + (1 − ηv²)(1+α)cos²θ)/2: α needed",
            0.01, slack(near, one), falling(one),
        ),
        equal(
            "Fig. 2c: near the minimum FedBug (10, 20, 40%) contracts more than FedAvg from the same model: share",
            1, float(close.double().mean()), 0,
            "mean ratio " + ", ".join(f"{'FedAvg' if s == 0 else f'{s:.0%}'} {m:.3f}" for s, m in means.items()),
        ),
        equal(
            "Fig. 2c: FedBug contracts more than FedAvg from every model that FedAvg visits: share of rounds",
            1, float(better.double().mean()), 0,
            f"the {int((~better).sum())} exceptions are far from the minimum, with a loss of at least {least:.2g}",
        ),
        below(
            "Fig. 2b: FedBug (40%) ends with a lower training loss than FedAvg: its loss as a share of FedAvg's",
            1, last[0.4] / last[0.0], f"after {ROUNDS} rounds {last[0.0]:.1e} (FedAvg) and {last[0.4]:.1e}",
        ),
        equal(
            "Fig. 2b: FedBug's mean loss is below FedAvg's from the first round on: the round in which that starts",
            1, first, 0, "in earlier rounds, freezing v has a cost",
        ),
    ]  # fmt: skip


def _fedbabu_claims() -> list[Claim]:
    frozen = (False,) * STEPS
    first = starts()
    found, exact = ratio(first, frozen), (1 + (1 - LR * first[:, 2] ** 2) ** STEPS) / 2
    half = float(((found - 0.5).abs() < 0.01).double().mean())
    done = first[(1 - LR * first[:, 2] ** 2) ** STEPS < 1e-3]
    return [
        equal(
            "FedBABU's ratio is (1 + (1 − ηv²)^K)/2: largest error (v never moves, so it is a geometric series)",
            0, float((found - exact).abs().max()), 1e-9,
        ),
        equal(
            "B.7: FedBABU's ratio is ½ where local training converges: largest error",
            0, float((ratio(done, frozen) - 0.5).abs().max()), 1e-3,
            f"{len(done)} of {len(first)} starts, those with (1 − ηv²)^K < 0.001",
        ),
        equal(
            f"B.7: FedBABU's ratio is ½ from every start with {STEPS} local steps: largest ratio",
            0.5, float(found.max()), 0.01, f"within 0.01 of ½ for {half:.0%} of the starts; a small v learns slowly",
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ picture
def picture(to: Path, data_dir: Path | None = None) -> None:
    """Draw Fig. 2 a-c of the paper, and the closed form in the plane of (a, v)."""
    figure, (first, second, third, fourth) = fig.panels("FedBug: two clients, f(x) = x[a, b]ᵀv")
    plain = thawed(0)
    colours = dict(zip(SHARES, (fig.GREEN, fig.ORANGE, fig.PURPLE), strict=True))
    models = visited()
    near = loss(models) < NEAR
    first.plot([0.5, 1], [0.5, 1], color="black", lw=0.8)
    for some, colour, name in ((~near, fig.GREY, f"loss ≥ {NEAR:g}"), (near, fig.BLUE, f"loss < {NEAR:g}")):
        first.plot(bound(models[some]), ratio(models[some], plain), ".", ms=3, color=colour, label=name)
    fig.label(first, "a  contraction of |a − b|, FedAvg", "from θ: (1 + cos²θ)/2", "measured in a round")
    fig.legend(first)
    second.semilogy(loss(path(plain)).mean(1), color=fig.BLUE, label="FedAvg")
    for share, colour in colours.items():
        second.semilogy(loss(path(thawed(share))).mean(1), color=colour, label=f"FedBug {share:.0%}")
    second.semilogy(loss(path((False,) * STEPS)).mean(1), color=fig.GREY, label="FedBABU")
    fig.label(second, f"b  mean loss of {SEEDS} runs", "round", "loss")
    fig.legend(second, "lower left")
    for share, colour in colours.items():
        third.plot(
            ratio(models, plain), ratio(models, thawed(share)), ".", ms=3, color=colour, label=f"FedBug {share:.0%}"
        )
    third.plot([0, 1], [0, 1], color="black", lw=0.8)
    third.set(xlim=(0.4, 1.02), ylim=(0.3, 1.1))
    fig.label(third, "c  contraction from the same model", "FedAvg", "FedBug")
    fig.legend(third, "upper left")
    _plane(fourth)
    fig.save(figure, to)


def _plane(ax: Axes) -> None:
    """Draw some gradient flows with both closed forms of their ends."""
    curve = torch.linspace(0.35, 2.6, 200)
    ax.plot(curve, 1 / curve, color="black", lw=0.8, label="av = 1")
    a, _, v = starts(16).unbind(-1)
    steps = [(a, v)]
    for _ in range(60):
        steps.append(flow(*steps[-1], time=0.25))
    ax.plot(torch.stack([s[0] for s in steps]), torch.stack([s[1] for s in steps]), color=fig.BLUE, lw=0.9, alpha=0.7)
    ax.plot(*limit(a, v), "o", ms=4.5, color=fig.GREEN, label="corrected end")
    ax.plot(*printed_limit(a, v), "x", ms=5, color=fig.RED, label="as printed, with ½")
    ax.set(xlim=(0, 2.4), ylim=(0, 2.4))
    fig.label(ax, "d  gradient flow of one client", "a", "v")
    fig.legend(ax, "upper right")
