"""FedNLR, Sec. 4, Appendix A and Fig. 3: Example 1, Theorem 2, the verification experiment and the temperatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.theory import figure as fig
from holdfast.theory import temperature
from holdfast.theory.claim import Claim, above, below, equal
from holdfast.theory.grid import Grid
from holdfast.theory.neuron_drift import ACCURACY, SEEDS, NeuronDrift, drifts
from holdfast.theory.neurons import collapsed_falls, example, random_falls

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRINTED = {  # Eq. 9: before, after, difference
    "h₁,₁": (0.67, 0.73, -0.06),
    "h₁,₂": (1.11, 1.04, 0.07),
    "p₁": (0.45, 0.63, -0.18),
    "p₂": (0.55, 0.37, 0.18),
}


def claims(data_dir: Path | None = None) -> list[Claim]:
    """Compute and judge the paper's claims."""
    return [*_example_claims(), *_theorem_claims(), *_drift_claims(data_dir), *temperature.claims(data_dir)]


def tables(data_dir: Path | None = None) -> list[Grid]:
    """Return the numbers of Fig. 3."""
    return temperature.tables(data_dir)


def _example_claims() -> list[Claim]:
    before, after = example().tolist()
    rows = []
    for (name, printed), first, last in zip(PRINTED.items(), before, after, strict=True):
        for what, number, found in zip(("before", "after"), printed, (first, last), strict=False):
            rows.append(equal(f"Example 1, Eq. 9: {name} on class 2, {what}", number, found, 0.005))
        rounded = round(first, 2) - round(last, 2)
        note = f"difference of the rounded numbers, as printed; the exact one is {first - last:.4f}"
        rows.append(equal(f"Example 1, Eq. 9: {name} on class 2, difference", printed[2], rounded, 1e-9, note))
    calm = example("fednlr")
    falls = [float(e[0, 1] - e[1, 1]) for e in (example(), calm)]
    return [
        *rows,
        equal(
            "Example 1: the activation of all neurons over class 2 is reduced (text above Eq. 9): how many of 2",
            2, sum(last < first for first, last in zip(before[:2], after[:2], strict=True)), 0,
            "by the paper's numbers h₁,₁ rises; only the neuron bound to class 2 falls",
        ),
        below(
            "Example 1 with FedNLR's rates (Eqs. 14-17): the bound neuron h₁,₂ falls less: share of FedAvg's fall",
            1, falls[1] / falls[0],
            f"{falls[0]:.3f} with FedAvg, {falls[1]:.3f} with FedNLR; p₂ does not gain, it ends at {after[3]:.3f} and "
            f"{float(calm[1, 3]):.3f}: the classifier's rates are spread as well",
        ),
    ]  # fmt: skip


def _theorem_claims() -> list[Claim]:
    mixed, active = random_falls(False), random_falls(True)
    wrong = (mixed.printed - mixed.real).abs()
    return [
        equal(
            "Theorem 2 with ReLU's gate agrees with autograd on random networks: largest error",
            0, float((mixed.gated - mixed.real).abs().max()), 1e-12,
        ),
        equal(
            "Theorem 2 as printed agrees with autograd where every neuron is active: largest error",
            0, float((active.printed - active.real).abs().max()), 1e-12,
        ),
        equal(
            "Theorem 2 as printed agrees with autograd on random networks: largest error",
            0, float(wrong.max()), 1e-12,
            f"wrong for {float((wrong > 1e-9).double().mean()):.0%} of the neurons; "
            f"the mean real change is {float(mixed.real.abs().mean()):.3f}",
        ),
        above(
            "Theorem 2: with w₂,c = A·h^c (Eq. 2) and x_k·x > 0 no bound neuron of class 2 rises: least fall",
            -1e-12, float(collapsed_falls().min()),
        ),
    ]  # fmt: skip


def _drift_claims(data_dir: Path | None) -> list[Claim]:
    name, runs = drifts(data_dir)
    where = f"Appendix A on {name}"
    plain, calm = (torch.cat([run.pairs(m) for run in runs]) for m in ("fedavg", "fednlr"))
    fell = plain > 0
    least = min(int(run.bound.any(1).sum()) for run in runs)
    reached = ", ".join(f"{run.accuracy:.1%} after {run.rounds} rounds" for run in runs)
    rise = {m: -torch.cat([run.own_falls(m) for run in runs]).nanmean() for m in ("fedavg", "fednlr")}
    return [
        above(
            f"{where}: the model from an intermediate phase of FedAvg has 88% accuracy",
            ACCURACY, min(run.accuracy for run in runs), f"{len(SEEDS)} seeds: {reached}",
        ),
        above(
            f"{where}: some neurons are bound by Definition 1 (least on the class above largest on the others): number",
            1, max(run.strict for run in runs), "so from here on a neuron is bound to the class with its largest mean",
        ),
        equal(
            f"{where}: every class has a bound neuron, by its mean activation: fewest classes that have one",
            10, least, 0,
        ),
        above(
            f"{where}: another class's bound neurons fall in local training with FedAvg: mean fall in %",
            0, 100 * float(plain.mean()), f"{len(plain)} pairs of a client and a class it lacks",
        ),
        equal(
            f"{where}: bound neurons fall for every pair of a client and a class it lacks: share of pairs",
            1, float(fell.double().mean()), 0, "neuron drift is a tendency, not a law",
        ),
        below(
            f"{where}: bound neurons of absent classes fall less with FedNLR than with FedAvg: mean fall in %",
            100 * float(plain.mean()), 100 * float(calm.mean()),
            f"while the client's own bound neurons rise by {float(rise['fednlr']):.0%} "
            f"(FedAvg {float(rise['fedavg']):.0%})",
        ),
        above(
            f"{where}: of the pairs that fall with FedAvg, FedNLR's fall is smaller in most: share",
            0.5, float((calm < plain)[fell].double().mean()),
            f"mean fall of these pairs {float(plain[fell].mean()):.1%} with FedAvg, "
            f"{float(calm[fell].mean()):.1%} with FedNLR",
        ),
        below(
            f"{where}: FedNLR restricts the update of bound neurons of absent classes (Sec. 5): mean |change| in %",
            100 * float(plain.abs().mean()), 100 * float(calm.abs().mean()), "the bound is FedAvg's",
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ picture
def picture(to: Path, data_dir: Path | None = None) -> None:
    """Draw four panels into a file."""
    figure, (first, second, third, fourth) = fig.panels("FedNLR: neuron drift")
    _example_panel(first)
    _theorem_panel(second)
    name, runs = drifts(data_dir)
    _pairs_panel(third, name, *(torch.cat([run.pairs(m) for run in runs]) for m in ("fedavg", "fednlr")))
    _neuron_panel(fourth, runs[0])
    fig.save(figure, to)


def _example_panel(ax: Axes) -> None:
    """Draw Example 1: before, after FedAvg's step, and after FedNLR's step."""
    bars = {"before": example()[0], "after, FedAvg": example()[1], "after, FedNLR": example("fednlr")[1]}
    for i, ((name, values), colour) in enumerate(zip(bars.items(), (fig.GREY, fig.BLUE, fig.ORANGE), strict=True)):
        at = torch.arange(4) + 0.27 * (i - 1)
        ax.bar(at.numpy(), values.numpy(), width=0.25, color=colour, label=name)
        for x, value in zip(at.tolist(), values.tolist(), strict=True):
            ax.text(x, value + 0.01, f"{value:.2f}", ha="center", fontsize=7.5)
    ax.set_xticks(range(4), list(PRINTED))
    ax.set_ylim(0, 1.32)
    fig.label(ax, "a  Example 1: client 1 trains, class 2 is looked at", "", "activation or probability")
    fig.legend(ax, "upper right")


def _theorem_panel(ax: Axes) -> None:
    """Draw Theorem 2, as printed and with ReLU's gate, against autograd."""
    falls = random_falls(False)
    some = torch.arange(0, len(falls.real), 4)
    ax.plot(falls.real[some], falls.printed[some], ".", ms=3, color=fig.RED, label="as printed")
    ax.plot(falls.real[some], falls.gated[some], ".", ms=3, color=fig.GREEN, label="with ReLU's gate")
    fig.label(ax, "b  Theorem 2 on random networks", "fall of an activation, by autograd", "by the closed form")
    fig.legend(ax, "upper left")


def _pairs_panel(ax: Axes, name: str, plain: Tensor, calm: Tensor) -> None:
    """Draw the falls of bound neurons with FedAvg and with FedNLR."""
    low, high = float(torch.minimum(plain, calm).min()) * 100, float(torch.maximum(plain, calm).max()) * 100
    ax.plot([low, high], [low, high], color="black", lw=0.8)
    ax.axhline(0, color=fig.GREY, lw=0.6)
    ax.axvline(0, color=fig.GREY, lw=0.6)
    ax.plot(100 * plain, 100 * calm, ".", ms=4, color=fig.BLUE, label="client × another class")
    means = [100 * float(v.mean()) for v in (plain, calm)]
    ax.plot(*means, "+", ms=12, mew=2.5, color=fig.RED, label=f"mean: {means[0]:.1f}% and {means[1]:.1f}%")
    title = f"c  Appendix A on {name}: fall of bound neurons"
    fig.label(ax, title, "with FedAvg, % of the activation", "with FedNLR, %")
    fig.legend(ax, "upper left")


def _neuron_panel(ax: Axes, run: NeuronDrift) -> None:
    """Draw Table 4: the activations of one class before and after the client of another class trained."""
    client, other = int(torch.nonzero(run.own == 0)[0]), 1
    order = run.before[other].argsort(descending=True)
    bound = run.bound[other][order]
    bars = {"before": run.before[other], **{m: a[client, other] for m, a in run.after.items()}}
    names = ("before", "after, FedAvg", "after, FedNLR")
    for values, name, colour, mark in zip(bars.values(), names, (fig.GREY, fig.BLUE, fig.ORANGE), "s_.", strict=True):
        ax.plot(values[order], mark, ms=7 if mark != "_" else 9, mew=2, color=colour, label=name)
    for at in torch.nonzero(bound).flatten().tolist():
        ax.axvspan(at - 0.5, at + 0.5, color=fig.ORANGE, alpha=0.12, lw=0)
    fig.label(
        ax, "d  digit 1, after the client of digit 0 trained", "hidden neuron, sorted; bound ones shaded", "activation"
    )
    fig.legend(ax, "upper right")
