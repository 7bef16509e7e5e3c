"""A split in the terminal, as a picture and as JSON: samples by client and class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from holdfast.data.skew import features, figures, total_variation
from holdfast.data.splits import Deal
from holdfast.reports.formatting import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from rich.console import RenderableType

ROWS = 40  # clients shown in the terminal
HEADS = 44  # characters for the names of classes above their counts
COLUMNS = 1000  # clients shown in the heat map, and listed in JSON
SHADES = " ·░▒▓█"
INK = ("#ffffff", "#d3e8ee", "#74b3c8", "#2a7391", "#0a2f45")
ACCENT = "#d1603d"


def record(
    deal: Deal,
    labels: np.ndarray,
    classes: int,
    x: Tensor | None = None,
    names: Sequence[str] = (),
    class_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a split for JSON.

    Args:
        deal: The split.
        labels: The labels of all samples.
        classes: The number of classes.
        x: The samples, to measure how much the clients' features differ.
        names: The names of the clients, if they have any.
        class_names: The names of the classes.

    Returns:
        Its figures, and the samples per class of its first clients.
    """
    return {
        "figures": figures(deal, labels, classes, x),
        "names": list(names[:COLUMNS]),
        "classes": list(class_names) or [str(c) for c in range(classes)],
        "counts": deal.counts(labels, classes)[:COLUMNS].tolist(),
        "noise_sigma": [] if deal.noise is None else deal.noise.sigma[:COLUMNS].tolist(),
    }


# ------------------------------------------------------------------------------------------------ terminal


def terminal(
    deal: Deal, labels: np.ndarray, classes: int, names: Sequence[str] = (), class_names: Sequence[str] = ()
) -> RenderableType:
    """Return a shaded table of clients and classes, with the figures below it.

    Args:
        deal: The split.
        labels: The labels of all samples.
        classes: The number of classes. A few show their counts; many are one shade each, or several classes share a
            shade if they do not fit in a line.
        names: The names of the clients, if they have any.
        class_names: The names of the classes: above the counts where they fit, otherwise below the table.

    Returns:
        A renderable for ``rich``.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts = deal.counts(labels, classes)
    visible = counts[:ROWS]
    numbered = classes <= 12
    group = 1 if numbered else -(-classes // 80)
    merged = np.add.reduceat(visible, np.arange(0, classes, group), axis=1)
    depth = np.sqrt(merged / max(1, merged.max()))
    heads, legend = class_heads(class_names, classes) if numbered else ([], "")
    width = max(3, len(str(merged.max())), *map(len, heads)) + 1
    table = Table.grid(padding=(0, 1))
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True, overflow="crop")
    head = "".join(f"{name:>{width}}" for name in heads) if numbered else f"classes 0 to {classes - 1}"
    table.add_row(Text("client", "bold"), Text("samples", "bold"), Text(head, "bold"))
    for i, row in enumerate(merged):
        cells = Text()
        for count, d in zip(row, depth[i], strict=True):
            shade = f"{count or '·':>{width}}" if numbered else SHADES[int(np.ceil(d * (len(SHADES) - 1)))]
            cells.append(shade, style=_style(float(d)))
        table.add_row(Text(names[i]) if names else str(i), str(int(row.sum())), cells)
    notes = [f"the first {ROWS} of {len(counts)} clients"] if len(counts) > ROWS else []
    notes += [f"each shade covers {group} classes"] if group > 1 else []
    below = [Text(legend)] * bool(legend) + [Text("; ".join(notes), "dim")] * bool(notes)
    return Group(table, *below, Text("\n".join(lines(figures(deal, labels, classes)))))


def class_heads(names: Sequence[str], classes: int) -> tuple[list[str], str]:
    """Return what is above the counts of each class, and a line that says which number is which class.

    >>> class_heads(["healthy", "sepsis"], 2)
    (['healthy', 'sepsis'], '')
    >>> class_heads(["healthy", "infection without a fever"], 2)
    (['0', '1'], 'class 0: healthy; class 1: infection without a fever')
    """
    numbers = [str(c) for c in range(classes)]
    if list(names) == numbers or not names:
        return numbers, ""
    if classes * (max(map(len, names)) + 1) <= HEADS:
        return list(names), ""
    return numbers, "; ".join(f"class {c}: {name}" for c, name in enumerate(names))


def _style(depth: float) -> str:
    """Return a cell's colours: white to deep blue, with readable text."""
    low, high = np.array([238, 244, 247]), np.array([10, 47, 69])
    r, g, b = (low + (high - low) * depth).astype(int)
    return f"{'white' if depth > 0.45 else 'black'} on rgb({r},{g},{b})"


def lines(f: dict[str, Any]) -> list[str]:
    """Return the figures as sentences."""
    n, k = f["samples_per_client"], f["classes_per_client"]
    empty = f" ({f['empty_clients']} empty)" if f["empty_clients"] else ""
    out = [
        f"{f['clients']} clients{empty}, {f['samples']} samples",
        f"samples per client {_range(n)}, Gini {f['gini']:.2f}",
        f"classes per client {_range(k)}, effective {f['effective_classes']:.1f}",
        f"label skew {f['label_skew']:.3f} (mean total variation from the global mix), "
        f"Wasserstein {f['wasserstein']:.3f} (mean L1)",
    ]
    if "noise_sigma" in f:
        out.append(f"feature noise sigma {_range(f['noise_sigma'])}")
    if "feature_shift" in f:
        out.append(f"feature-mean shift {f['feature_shift']:.3f}")
    return out


def _range(s: dict[str, float]) -> str:
    if s["min"] == s["max"]:
        return f"{s['min']:g}"
    return f"{s['min']:.3g} to {s['max']:g}, mean {s['mean']:.3g}, median {s['median']:.3g}"


# ------------------------------------------------------------------------------------------------- picture


def png(
    deal: Deal,
    labels: np.ndarray,
    classes: int,
    path: Path | str,
    x: Tensor | None = None,
    title: str = "",
    names: Sequence[str] = (),
    class_names: Sequence[str] = (),
) -> None:
    """Write the picture of a split: a heat map with client sizes, histograms, and images under feature noise.

    Args:
        deal: The split.
        labels: The labels of all samples.
        classes: The number of classes.
        path: The file; its ending decides the format.
        x: The samples, to show images under feature noise.
        title: The heading.
        names: The names of the clients, if they have any.
        class_names: The names of the classes.
    """
    from matplotlib.figure import Figure

    counts = deal.counts(labels, classes)
    images = deal.noise is not None and x is not None and x.dim() == 4 and x.shape[1] in (1, 3)
    tall = min(max(2.4, 0.17 * classes), 6.5)
    heights = [tall + 1.5, 2.4] + ([2.7] if images else [])
    figure = Figure(figsize=(11, sum(heights) + 0.9), dpi=130, layout="constrained", facecolor="white")
    figure.suptitle(title or "Split", fontsize=13, fontweight="bold", x=0.01, ha="left")
    top, middle, *rest = cast("list[SubFigure]", figure.subfigures(len(heights), 1, height_ratios=heights))
    below = "\n".join(lines(figures(deal, labels, classes)))
    top.suptitle(below, fontsize=8.5, color="#444444", x=0.01, ha="left")
    _heat_map(top, counts, tall, names, class_names)
    _histograms(middle, counts)
    if rest and x is not None:
        _images(rest[0], deal, x, names)
    figure.savefig(path)


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def _heat_map(
    figure: SubFigure, counts: np.ndarray, tall: float, names: Sequence[str], class_names: Sequence[str]
) -> None:
    """Draw the samples of every client (across) and class (down), with the client sizes above.

    Args:
        figure: Where to draw.
        counts: The samples, a row per client.
        tall: The height of the heat map in inches.
        names: The names of the clients, if they have any.
        class_names: The names of the classes.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.ticker import MaxNLocator

    shown = counts[:COLUMNS]
    clients, classes = shown.shape
    sizes, heat = figure.subplots(2, 1, sharex=True, height_ratios=[1, tall])
    sizes.bar(np.arange(clients), shown.sum(axis=1), width=0.8 if clients <= 200 else 1.0, color=INK[3])
    sizes.set_ylabel("samples", fontsize=8)
    _plain(sizes)
    sizes.tick_params(bottom=False, labelbottom=False)
    # The darkest shade is at least six times the mean, so that an iid split looks pale and a skewed one dark.
    norm = PowerNorm(0.5, vmin=0, vmax=max(1.0, float(shown.max()), 6 * float(shown.mean())))
    ink = LinearSegmentedColormap.from_list("ink", INK)
    image = heat.imshow(shown.T, aspect="auto", cmap=ink, norm=norm, interpolation="nearest")
    if clients * classes <= 250:
        for (i, c), count in np.ndenumerate(shown):
            if count:
                colour = "white" if norm(count) > 0.5 else INK[4]
                heat.text(i, c, str(count), ha="center", va="center", fontsize=6.5, color=colour)
    some = f" (the first {clients} of {len(counts)})" if len(counts) > clients else ""
    heat.set_xlabel(f"client{some}", fontsize=9)
    heat.set_ylabel("class", fontsize=9)
    heat.tick_params(labelsize=8)
    if clients <= 30:
        slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "parse_math": False} if names else {}
        heat.set_xticks(np.arange(clients), list(names) or None, **slanted)
    if classes <= 26:
        labels = ["\n".join(wrapped(name, 24)) for name in class_names or map(str, range(classes))]
        heat.set_yticks(np.arange(classes), labels, parse_math=False)
    bar = figure.colorbar(image, ax=[sizes, heat], pad=0.01, aspect=30, ticks=MaxNLocator(8, integer=True))
    bar.set_label("samples of a class", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _histograms(figure: SubFigure, counts: np.ndarray) -> None:
    """Draw the distributions of client sizes and label skew; the means are over clients that hold samples."""
    from matplotlib.ticker import MaxNLocator

    left, right = figure.subplots(1, 2)
    n = counts.sum(axis=1)
    many = int(np.clip(3 * np.sqrt(len(n)), 20, 40))
    step = -(-(int(n.max()) + 1) // many)
    bins = np.arange(0, n.max() + step + 1, step) - 0.5
    left.hist(n, bins=bins, color=INK[3], edgecolor="white", linewidth=0.4)
    left.set_xlabel("samples of a client", fontsize=9)
    distance = total_variation(counts[n > 0])
    right.hist(distance, bins=np.linspace(0, 1, many + 1), color=INK[2], edgecolor="white", linewidth=0.4)
    right.set_xlabel("total variation of a client's label mix from the global one", fontsize=9)
    for ax, mean in ((left, n[n > 0].mean()), (right, distance.mean())):
        ax.axvline(mean, color=ACCENT, linewidth=1.4)
        ax.set_title(f"mean {mean:.3g}", loc="right", color=ACCENT, fontsize=8)
        ax.set_ylabel("clients", fontsize=9)
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        _plain(ax)


def _images(figure: SubFigure, deal: Deal, x: Tensor, names: Sequence[str], many: int = 8) -> None:
    """Draw one sample of a few clients, as stored and as the client sees it, from the least noise to the most."""
    assert deal.noise is not None
    held = np.flatnonzero(deal.sizes)
    by_noise = held[np.argsort(deal.noise.sigma[held], kind="stable")]
    picked = by_noise[np.unique(np.linspace(0, len(by_noise) - 1, many).round().astype(int))]
    index = deal.index[deal.offsets[picked]]
    clean = features(Deal(deal.index, deal.offsets), x, index, picked)
    seen = features(deal, x, index, picked)
    axes = figure.subplots(2, len(picked), squeeze=False)
    for row, images in zip(axes, (clean, seen), strict=True):
        for ax, image, base in zip(row, images, clean, strict=True):
            low, high = min(0.0, float(base.min())), max(1.0, float(base.max()))
            shown = ((image - low) / (high - low)).clamp(0, 1).movedim(0, -1)
            ax.imshow(shown.numpy(), cmap="gray", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
    for ax, i in zip(axes[0], picked, strict=True):
        who = names[i] if names else f"client {i}"
        ax.set_title(f"{who}\nσ = {deal.noise.sigma[i]:.2g}", fontsize=8, parse_math=False)
    axes[0][0].set_ylabel("stored", fontsize=9)
    axes[1][0].set_ylabel("seen", fontsize=9)
