"""A small study on non-IID digits: every paper's method, tuned, against FedAvg, tuned in the same way.

    python examples/digits_study.py              runs what is missing, prints the table, draws the pictures

Each method is tuned on three seeds: every learning rate with every value of its parameter, or a coordinate search where
it has two, over the few values of ``STUDY``. The chosen setting is then run on five fresh seeds, each paired with
FedAvg on the same split, the same cohorts and the same batches. The network is the ``mlp``. Every run is kept in
``docs/digits_study.json``; a study that was broken off goes on from there. Half an hour on a free core.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

import holdfast
from holdfast.data.sources import load
from holdfast.parts.fedbug import unfrozen
from holdfast.parts.fednlr import FedNLR, factors
from holdfast.parts.fnr import Fnr, length
from holdfast.parts.hyperbolic import Hyperbolic

DOCS = Path(__file__).resolve().parent.parent / "docs"
STORE = DOCS / "digits_study.json"
SETTING = {"data": "digits", "split": "dirichlet(0.1)", "clients": 20, "cohort": 5, "rounds": 40}
TUNING, SEEDS = (100, 101, 102), (0, 1, 2, 3, 4)
LR = (0.1, 0.2, 0.3)  # where the search starts comes first
WIDER = {0.1: 0.03, 0.03: 0.01, 0.3: 0.5, 0.5: 1.0}  # tried as long as the best rate lies at an end of the grid
T95 = 2.776  # two-sided 95% of Student's t with four degrees of freedom


@dataclass(frozen=True)
class Contender:
    """A method with the values to try: ``text`` is filled with one value per axis, the first of each at the start."""

    name: str
    text: str
    axes: dict[str, tuple[float | str, ...]] = field(default_factory=dict)
    like: str = ""  # take the setting tuned for this contender instead of tuning


@dataclass(frozen=True)
class Comparison:
    """Contenders on equal terms; the first is FedAvg."""

    name: str
    epochs: int
    public: float
    contenders: tuple[Contender, ...]


FEDAVG = Contender("fedavg", "fedavg")
MRUR = {"alpha": (0.1, 0.5), "rho": (0.05, 0.01, 0.1, 0.5)}  # 0.5 is what the paper prints
SAM = "fedcm({alpha})+sam({rho})"
STUDY = (
    Comparison(
        "5 epochs", 5, 0.0,
        (
            FEDAVG,
            Contender("fedbug", "fedbug({share})", {"share": (0.4, 0.2, 0.1)}),
            Contender("fednlr", "{set}", {"set": ("fednlr", "fednlr-tables")}),
            Contender("fedcm+sam", SAM, MRUR),
            Contender("fedcm+sam+hyperbolic", SAM + "+hyperbolic", like="fedcm+sam"),
            Contender("fedmrur", "fedmrur(alpha={alpha}, rho={rho})", MRUR),
            Contender("fedcm+sam+normalized", SAM + "+normalized", like="fedmrur"),
            Contender("normalized", "normalized"),
        ),
    ),
    Comparison("3 epochs", 3, 0.0, (FEDAVG, Contender("fedagg", "fedagg({alpha})", {"alpha": (0.1, 0.01, 0.5)}))),
    Comparison(
        "5 epochs, 5% public", 5, 0.05,
        (
            FEDAVG,
            Contender(
                "fnr", "fnr(p={p}, weight={weight})", {"p": (0.4, 0.2, 0.6, 0.8), "weight": (0.1, 0, 0.01, 1)}
            ),
        ),
    ),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- running


class Study:
    """The runs that are done, by what they were, and how to do more."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = json.loads(STORE.read_text())["runs"] if STORE.exists() else {}
        self.used: set[str] = set()
        self.begun = time.perf_counter()

    def run(self, method: str, lr: float, comparison: Comparison, seed: int) -> dict[str, Any]:
        """One run: its mean accuracy over the last five rounds and its accuracy after each round."""
        key = f"{method} lr={lr:g} epochs={comparison.epochs} public={comparison.public:g} seed={seed}"
        self.used.add(key)
        if key not in self.runs:
            settings = SETTING | {"lr": lr, "epochs": comparison.epochs, "public": comparison.public, "seed": seed}
            try:
                result = holdfast.run(method, **settings)
                found: dict[str, Any] = {"last5": round(result.summary["last5"], 5)}
                if seed in SEEDS:
                    found["accuracy"] = [round(r.test_accuracy or 0.0, 4) for r in result.history]
                    traffic = [result.summary[f"{way}_bytes"] for way in ("upload", "download")]
                    found["bytes"] = traffic
            except holdfast.HoldfastError as error:  # it diverged, or the setting is out of range
                found = {"last5": 0.0, "error": str(error)}
            self.runs[key] = found
            self.save()
            print(f"{time.perf_counter() - self.begun:6.0f} s  run {len(self.runs):3}  {found['last5']:.4f}  {key}")
        return self.runs[key]

    def score(self, method: str, lr: float, comparison: Comparison) -> float:
        """The mean over the tuning seeds."""
        return statistics.mean(self.run(method, lr, comparison, seed)["last5"] for seed in TUNING)

    def tune(self, contender: Contender, comparison: Comparison) -> dict[str, Any]:
        """Every learning rate with every value of the method's parameter. With two parameters a coordinate search: the
        learning rate, one parameter after the other, the learning rate again."""
        best: dict[str, Any] = {"lr": LR[0], **{axis: values[0] for axis, values in contender.axes.items()}}
        tried: dict[str, float] = {}

        def score(setting: dict[str, Any]) -> float:
            found = self.score(contender.text.format(**setting), setting["lr"], comparison)
            tried[", ".join(f"{k}={v}" for k, v in setting.items())] = round(found, 4)
            return found

        axes = {"lr": LR, **contender.axes}
        for group in [tuple(axes)] if len(axes) <= 2 else [("lr",), *((axis,) for axis in contender.axes), ("lr",)]:
            moves = [dict(zip(group, values, strict=True)) for values in product(*(axes[axis] for axis in group))]
            best = max((best | move for move in moves), key=score)
            edge = WIDER.get(best["lr"])
            while "lr" in group and edge is not None:
                best = max(best, best | {"lr": edge}, key=score)
                edge = WIDER.get(edge) if best["lr"] == edge else None
        return {"setting": best, "tried": tried}

    def compare(self, comparison: Comparison) -> dict[str, dict[str, Any]]:
        """Every contender at its tuned setting on the fresh seeds, beside FedAvg."""
        rows: dict[str, dict[str, Any]] = {}
        for contender in comparison.contenders:
            tuned = {"setting": rows[contender.like]["setting"]} if contender.like else self.tune(contender, comparison)
            method, lr = contender.text.format(**tuned["setting"]), tuned["setting"]["lr"]
            last5 = [self.run(method, lr, comparison, seed)["last5"] for seed in SEEDS]
            row = {"method": method, "lr": lr, **tuned, "last5": last5}
            row |= {"mean": round(statistics.mean(last5), 4), "std": round(statistics.stdev(last5), 4)}
            if contender is not comparison.contenders[0]:
                row |= paired(last5, rows["fedavg"]["last5"])
            rows[contender.name] = row
        return rows

    def save(self, **found: Any) -> None:
        head = {"setting": SETTING, "tuning_seeds": TUNING, "seeds": SEEDS}
        runs = {key: run for key, run in self.runs.items() if key in self.used} if found else self.runs
        content = json.dumps({**head, **found, "runs": runs})
        aside = STORE.with_suffix(".part")
        aside.write_text(content.replace('}, "', '},\n"') + "\n")
        os.replace(aside, STORE)


def paired(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """The mean difference, its standard error, and whether zero lies within its 95% interval."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    verdict = "no difference seen" if abs(mean) <= T95 * error else "better" if mean > 0 else "worse"
    return {"difference": round(mean, 4), "error": round(error, 4), "verdict": verdict}


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The results in percent, as a table for Markdown."""
    lines = [
        "| comparison | method at its tuned setting | lr | last-5 accuracy, % | minus FedAvg | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for comparison, rows in results.items():
        for row in rows.values():
            difference = "difference" in row and f"{100 * row['difference']:+.1f} ± {100 * row['error']:.1f}"
            cells = [comparison, f"`{row['method']}`", f"{row['lr']:g}"]
            cells += [f"{100 * row['mean']:.1f} ± {100 * row['std']:.1f}", difference or "", row.get("verdict", "")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------- looking into a round


NOTES: dict[str, list[Any]] = {}


@dataclass(frozen=True)
class Watch(holdfast.Part):
    """A part that changes nothing and takes notes. Only for the loop engine, where hooks see plain numbers."""

    name = "watch"
    p: float = holdfast.param(0.4, "of fnr")

    def direction(self, c: holdfast.Client, g: Tensor, w: Tensor) -> tuple[Tensor, holdfast.Tensors]:
        if c.eta.dim() == 0:
            NOTES["rate"].append((int(c.round), int(c.id), int(c.epoch), float(c.eta)))
        return g, {}

    def end(self, c: holdfast.Client, w: Tensor, delta: Tensor) -> tuple[holdfast.Tensors, holdfast.Tensors]:
        NOTES["pull"].append(pull(c, w))
        return (Fnr().end(c, w, delta)[0] if any(len(b.y) for b in c.public()) else {}), {}

    def absorb(self, s: holdfast.Tensors, r: holdfast.Round) -> holdfast.Tensors:
        lengths = torch.linalg.vector_norm(r.deltas, dim=1)
        NOTES["shrink"].append(float(lengths.mean() / torch.linalg.vector_norm(r.deltas.mean(0))))
        if r.uploads:
            weak = Fnr(p=self.p).weakest(r)
            after = torch.stack([class_norms(r.net, r.w + r.deltas[row], r) for row in weak])
            rest = torch.ones(len(r.ids), dtype=torch.bool).scatter(0, weak, False)
            before = r.uploads["norms"]
            NOTES["norms"].append((before[rest].mean(0).tolist(), before[weak].tolist(), after.tolist()))
        return {}


def pull(c: holdfast.Client, w: Tensor) -> tuple[float, float]:
    """How strongly, at the end of local training, the loss at ``w0`` and FedMRUR's penalty at ``w`` pull."""
    batch = next(c.samples())
    view = copy.copy(c)
    view.teacher = {"global": c.net(c.w0, batch.x)}
    with torch.enable_grad():
        start, end = (v.detach().clone().requires_grad_() for v in (c.w0, w))
        loss = batch.cross_entropy(c.net(start, batch.x).logits)
        penalty = Hyperbolic().penalty(view, c.net(end, batch.x), batch)
        g = (*torch.autograd.grad(loss, start), *torch.autograd.grad(penalty, end, allow_unused=True))
    return float(g[0].norm()), float(g[1].norm())


def class_norms(net: holdfast.Net, w: Tensor, r: holdfast.Round) -> Tensor:
    """The mean feature norm of every class on the public data."""
    batches = list(r.public())
    norms = torch.cat([length(net(w, b.x).features) for b in batches])
    y = torch.cat([b.y for b in batches])
    return torch.stack([norms[y == label].mean() for label in range(net.classes)])


def watched(method: str, lr: float, comparison: Comparison, **settings: Any) -> dict[str, list[Any]]:
    """Run a method on the first seed and take notes."""
    NOTES.update({"rate": [], "pull": [], "shrink": [], "norms": []})
    parts = holdfast.Method.parse(method) + Watch(**settings)
    more = {"lr": lr, "epochs": comparison.epochs, "public": comparison.public, "seed": SEEDS[0], "engine": "loop"}
    holdfast.run(parts, **SETTING | more)
    return NOTES


# --------------------------------------------------------------------------------------------------- pictures

COLOURS = ("#777777", "#2a7391", "#d1603d", "#5b8c3e", "#8a5aa8", "#c9a227")


class Pictures:
    """One picture per paper: on the left how it works, on the right its accuracy beside FedAvg's."""

    def __init__(self, study: Study, results: dict[str, dict[str, dict[str, Any]]]) -> None:
        self.study, self.results = study, results
        self.by_name = {c.name: c for c in STUDY}

    def draw(self) -> dict[str, Any]:
        """Draw them all; also what was measured on the way."""
        self.fedbug()
        self.fednlr()
        self.fedagg()
        self.fnr()
        return self.fedmrur()

    def row(self, comparison: str, name: str) -> dict[str, Any]:
        return self.results[comparison][name]

    def figure(self, comparison: str, names: tuple[str, ...]) -> tuple[Any, Any]:
        """A figure whose right half shows accuracies; its left half is returned."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 3.7), dpi=100, layout="constrained")
        left, right = figure.subplots(1, 2)
        terms = self.by_name[comparison]
        for name, colour in zip(names, COLOURS, strict=False):
            row = self.row(comparison, name)
            curves = [self.study.run(row["method"], row["lr"], terms, seed)["accuracy"] for seed in SEEDS]
            low, mean, high = zip(
                *((min(v), statistics.mean(v), max(v)) for v in zip(*curves, strict=True)), strict=True
            )
            rounds = range(1, len(mean) + 1)
            style = "--" if "hyperbolic" in name or name == "fedmrur" else "-"  # would hide the line without it
            label = f"{row['method']}, lr {row['lr']:g}"
            right.plot(rounds, mean, style, color=colour, linewidth=1.6, label=label)
            if len(names) <= 3:
                right.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        band = "mean and range" if len(names) <= 3 else "mean"
        right.set(xlabel="round", ylabel="test accuracy", ylim=(0.2, 1))
        right.set_title(f"digits, {comparison}: {band} of seeds 0 to 4", fontsize=10)
        right.legend(fontsize=8, loc="lower right")
        right.grid(alpha=0.25)
        return figure, left

    def save(self, figure: Any, name: str) -> None:
        (DOCS / "pictures").mkdir(exist_ok=True)
        file = DOCS / "pictures" / f"{name}.png"
        figure.savefig(file, metadata={"Software": None})
        Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(file, optimize=True)
        print(f"drawn: {name}.png")

    def fedbug(self) -> None:
        figure, ax = self.figure("5 epochs", ("fedavg", "fedbug"))
        M, K = 4, 50
        counts = [int(unfrozen(torch.tensor(k), torch.tensor(K), M, 0.4)) for k in range(1, K + 1)]
        for block in range(1, M + 1):
            thawed = [k for k, m in enumerate(counts, 1) if m >= block]
            ax.barh(block, K, left=0.5, color="#dfe8ec")
            ax.barh(block, len(thawed), left=thawed[0] - 0.5, color=COLOURS[1])
        ax.set(
            xlabel="local step k of K = 50", ylabel="block, input first", yticks=range(1, M + 1), xlim=(0.5, K + 0.5)
        )
        ax.set_title("updated (dark) and frozen (pale) blocks: M = 4, P = 0.4")
        self.save(figure, "fedbug")

    def fednlr(self) -> None:
        figure, ax = self.figure("5 epochs", ("fedavg", "fednlr"))
        federation = holdfast.federate(load("digits"), SETTING["split"], SETTING["clients"], SEEDS[0])
        result = holdfast.run("fedavg", federation, **{"rounds": 10, "cohort": 5, "lr": 0.1, "seed": SEEDS[0]})
        net, held = result.net, federation.deal.counts(federation.data.y.numpy(), federation.classes)
        client = min(range(len(held)), key=lambda i: (held[i].sum() < 50, (held[i] > 0).sum()))  # few classes
        own = torch.from_numpy(federation.deal.client(client))
        x, y = federation.inputs(federation.data.x[own]), federation.data.y[own]
        h = net.neurons(result.w, x).mean(0)
        for part, style in ((FedNLR(), "-"), (FedNLR(a1=0.45, a2=0.3), ":")):
            rates = factors(h, part.spreads(net.layout), net.layout)
            for number, layer in enumerate(net.layout.layers):
                own_rates = rates[layer.first : layer.first + layer.neurons].sort().values
                place = torch.linspace(0, 1, layer.neurons)
                label = f"layer {number + 1}, {layer.neurons} neurons" if style == "-" else None
                ax.plot(place, own_rates, style, color=COLOURS[number + 1], label=label)
        classes = ", ".join(str(c) for c in torch.unique(y).tolist())
        ax.set(xlabel="neurons of a layer by activation, least to most", ylabel="factor on the learning rate")
        ax.set_title(
            f"client {client} of seed 0 (classes {classes}), round 10;\nsolid: a1 = a2 = 1, dotted: 0.45, 0.3",
            fontsize=10,
        )
        ax.legend(fontsize=8)
        ax.grid(alpha=0.25)
        self.save(figure, "fednlr")

    def fedagg(self) -> None:
        figure, ax = self.figure("3 epochs", ("fedavg", "fedagg"))
        row = self.row("3 epochs", "fedagg")
        notes = watched(row["method"], row["lr"], self.by_name["3 epochs"])
        rates: dict[int, dict[tuple[int, int], float]] = {}
        for t, client, epoch, eta in notes["rate"]:
            rates.setdefault(epoch, {})[t, client] = eta
        for epoch, found in rates.items():
            ax.plot([t + 0.2 * (epoch - 1) for t, _ in found], list(found.values()), ".", markersize=3.5,
                    color=COLOURS[epoch + 1], label=f"epoch {epoch + 1}")  # fmt: skip
        ax.axhline(row["lr"], color=COLOURS[0], linewidth=1, label="nominal rate")
        ax.set(
            xlabel="round", ylabel="learning rate", yscale="log", title=f"rates of all clients, {row['method']}, seed 0"
        )
        ax.legend(fontsize=8)
        ax.grid(alpha=0.25)
        self.save(figure, "fedagg")

    def fnr(self) -> None:
        name = "5 epochs, 5% public"
        figure, ax = self.figure(name, ("fedavg", "fnr"))
        row = self.row(name, "fnr")
        notes = watched(row["method"], row["lr"], self.by_name[name], p=row["setting"]["p"])
        others, before, after = notes["norms"][19]
        classes = range(len(others))
        ax.plot(classes, others, "_", markersize=22, color=COLOURS[0], label="mean of the others")
        for number, (b, a) in enumerate(zip(before, after, strict=True)):
            place = [c + 0.16 * (number - (len(before) - 1) / 2) for c in classes]
            first = number == 0
            ax.plot(
                place,
                b,
                "o",
                markersize=4,
                color=COLOURS[2],
                fillstyle="none",
                label="refined: before" if first else None,
            )
            ax.plot(place, a, "o", markersize=4, color=COLOURS[1], label="refined: after" if first else None)
        ax.set(xlabel="class", ylabel="mean feature norm", xticks=classes, ylim=(0, None))
        ax.set_title("public data, round 20, seed 0")
        ax.legend(fontsize=8)
        self.save(figure, "fnr")

    def fedmrur(self) -> dict[str, Any]:
        names = (
            "fedavg",
            "fedcm+sam",
            "normalized",
            "fedcm+sam+normalized",
            "fedcm+sam+hyperbolic",
            "fedmrur",
        )
        figure, ax = self.figure("5 epochs", names)
        found: dict[str, Any] = {}
        for name in ("fedavg", "fedcm+sam", "fedmrur"):
            row = self.row("5 epochs", name)
            notes = watched(row["method"], row["lr"], self.by_name["5 epochs"])
            ax.plot(range(1, len(notes["shrink"]) + 1), notes["shrink"], color=COLOURS[names.index(name)], label=name)
            loss, penalty = (statistics.median(v) for v in zip(*notes["pull"], strict=True))
            found[name] = {"gradient of the loss": loss, "gradient of the penalty": penalty}
        ax.set(xlabel="round", ylabel="mean length / length of the mean")
        ax.set_title("what normalising makes up for, seed 0", fontsize=10)
        ax.set_ylim(bottom=1)
        ax.legend(fontsize=8)
        ax.grid(alpha=0.25)
        self.save(figure, "fedmrur")
        return {"median gradient norms, seed 0": found}


def main() -> None:
    torch.set_num_threads(1)
    study = Study()
    results = {comparison.name: study.compare(comparison) for comparison in STUDY}
    study.save(results=results)
    print(table(results))
    study.save(results=results, measured=Pictures(study, results).draw())


if __name__ == "__main__":
    main()
