"""A comparison as tables of text, and the notes that belong to them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.comparison.plan import shown
from holdfast.comparison.sweep_edges import edges

NEVER, NONE = "∞", "–"
OPTIMISTIC = (
    "The best point of a sweep was picked by the accuracy on the test data: its own accuracy is optimistic. Run the "
    "chosen points again on fresh seeds (--first-seed) before you report them."
)
ONE_SEED = "With one seed there is no interval, no test and no verdict: use --seeds 5."
NO_SCIPY = "No intervals and tests: scipy is not installed here. `holdfast compare --tables FOLDER` adds them."
LEAK = "Rows marked LEAK use test data in training: their accuracy means nothing."
MANY = "Every interval stands alone: of 20 methods that change nothing, one is expected to look different."
CLOCK = (
    "Seconds, and so κ, are those of the clock over whole rounds: evaluation is in them, and what a run's first round "
    "takes to warm up and to compile. Compare methods by rounds and MB."
)
RATIOS = "κ and ρ are means of the ratio of every seed, not ratios of the means."
TOLD = ("data", "split", "clients", "cohort", "participation", "model", "rounds")  # settings with words of their own
MANY_FROM = 5  # methods from which that is said


@dataclass(frozen=True)
class TextTable:
    """Cells as text; the first column is the method. ``spare`` names columns to do without, the first one first."""

    title: str
    head: list[str]
    rows: list[list[str]]
    spare: tuple[str, ...] = ()


def tables(found: dict[str, Any]) -> list[TextTable]:
    """Accuracy and difference; other scores and cost; what it takes to reach the targets; accuracy by class."""
    return [accuracy(found), cost(found), targets(found), *classes(found)]


def accuracy(found: dict[str, Any]) -> TextTable:
    several = len({e["difference"]["to"] for e in found["entries"] if e["difference"]}) > 1
    head = ["method", "final %", "difference", "95% interval", "p", "verdict"]
    head += ["compared with"] if several else []
    rows = []
    for e in found["entries"]:
        a, d = e["accuracy"], e["difference"]
        row = [name(e), percent(a["final"])]
        if e["diverged"]:
            row[1] = f"diverged ({len(e['diverged'])} of {len(e['runs'])} seeds)"
        row += [points(d["mean"]), interval(d), p_value(d["p"]), e["verdict"] or NONE] if d else [NONE] * 4
        rows.append(row + ([d["to"] if d else NONE] if several else []))
    return TextTable("Test accuracy", head, rows, spare=("p", "compared with", "95% interval", "verdict"))


def targets(found: dict[str, Any]) -> TextTable:
    head = ["method", *(f"{100 * target:g}%" for target in found["targets"])]
    rows = [[name(e), *map(reached, e["targets"])] for e in found["entries"]]
    title = f"Rounds, seconds and MB to reach an accuracy ({NEVER}: not within the run)"
    return TextTable(title, head, rows, spare=tuple(head[1:-1]))


def cost(found: dict[str, Any]) -> TextTable:
    rows = []
    for e in found["entries"]:
        megabytes = None if e["bytes"]["mean"] is None else e["bytes"]["mean"] / 1e6
        means = [e["seconds"]["mean"], megabytes, e["kappa"]["mean"], e["rho"]["mean"]]
        scores = [percent(e["accuracy"][kind]) for kind in ("best", "last5")]
        rows.append([name(e), *scores, *(number(m) for m in means)])
    title = "Other scores and cost (κ: accuracy · 10⁴ per second, ρ: accuracy · 10⁴ per MB)"
    head = ["method", "best %", f"last {last_scores(found)} %", "s", "MB", "κ", "ρ"]
    return TextTable(title, head, rows, spare=("ρ", "κ", "MB", "s"))


def classes(found: dict[str, Any], most: int = 20) -> list[TextTable]:
    if len(found["classes"]) > most:
        return []
    rows = []
    for e in found["entries"]:
        mean = e["by_class"]["mean"]
        cells = [NONE] * len(found["classes"]) if mean is None else [percent_of(m) for m in mean]
        rows.append([name(e), *cells])
    return [TextTable("Final accuracy by class, %", ["method", *found["classes"]], rows)]


def notes(found: dict[str, Any]) -> list[str]:
    """What a reader must know beside the numbers."""
    seeds, entries = found["seeds"], found["entries"]
    gaps = [e["difference"] for e in entries if e["difference"]]
    said = []
    for e in entries:
        said += [f"{e['label']}, seed {d['seed']}: diverged, {d['why']}" for d in e["diverged"]]
    if len(seeds) == 1:
        said.append(ONE_SEED)
    elif gaps and all(d["low"] is None for d in gaps):
        said.append(NO_SCIPY)
    elif len(gaps) >= MANY_FROM:
        said.append(MANY)
    if found.get("best_points"):
        said += [f"best point of {method}: {label}" for method, label in found["best_points"].items()]
        said += [*edges(found), OPTIMISTIC]
    said += [LEAK] if any(e["leaks_test_data"] for e in entries) else []
    return [*said, CLOCK, *([RATIOS] if len(seeds) > 1 else [])]


def describe(found: dict[str, Any]) -> str:
    """One line on what was compared."""
    s, seeds = found["settings"], found["seeds"]
    how = [s["model"]] if "model" in s else []
    how += [f"{s['rounds']} rounds"] if "rounds" in s else []
    how += [f"{name} {shown(value)}" for name, value in s.items() if name not in TOLD]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    parts = [", ".join([s["data"], *federation(s)]), ", ".join(how), *swept(found), which, found["device"]]
    return "; ".join(filter(None, parts))


def federation(settings: dict[str, Any]) -> list[str]:
    """How the data is dealt and who takes part in a round, as far as all runs share it."""
    clients = f"{settings['clients']} clients" if "clients" in settings else ""
    dealt = " over ".join(filter(None, (settings.get("split"), clients)))
    who = f"{settings['cohort']} per round" if settings.get("cohort") else ""
    if settings.get("participation"):
        who = f"each with probability {shown(settings['participation'])}"
    return [part for part in (dealt, who) if part]


def swept(found: dict[str, Any]) -> list[str]:
    """What the runs do not share, such as ``swept split: iid, shards(2)``."""
    return [f"swept {name}: {', '.join(map(shown, values))}" for name, values in (found.get("sweep") or {}).items()]


def from_python(found: dict[str, Any]) -> str:
    """Why no command makes a comparison again; nothing where one does."""
    own = " and ".join(f"{what} ({name})" for what, name in (found.get("own") or {}).items())
    return f"Started from Python with {own} of its own: there is no command to type." if own else ""


# ------------------------------------------------------------------------------------------------ cells


def name(entry: dict[str, Any]) -> str:
    return str(entry["label"]) + (" (LEAK)" if entry["leaks_test_data"] else "")


def percent(stat: dict[str, Any]) -> str:
    if stat["mean"] is None:
        return NONE
    plus = "" if stat["std"] is None else f" ± {100 * stat['std']:.2f}"
    return f"{100 * stat['mean']:.2f}{plus}"


def percent_of(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f}"


def points(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:+.2f}"


def interval(d: dict[str, Any]) -> str:
    return NONE if d["low"] is None else f"[{100 * d['low']:+.2f}, {100 * d['high']:+.2f}]"


def p_value(p: float | None) -> str:
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def reached(to: dict[str, Any]) -> str:
    """Rounds, seconds and megabytes, in the mean over seeds."""
    kinds = ("rounds", "seconds", "bytes")
    there = list(zip(*(to[what] for what in kinds), strict=True))

    def taken(known: Sequence[tuple[int, float, int]]) -> str:
        rounds, seconds, traffic = map(statistics.fmean, zip(*known, strict=True))
        return f"{number(rounds)} ({number(seconds)} s, {number(traffic / 1e6)} MB)"

    return unless_never([None if None in seed else seed for seed in there], taken)


def unless_never(values: Sequence[Any], show: Callable[[Sequence[Any]], str]) -> str:
    """What it took, seed by seed: infinite as soon as one seed never gets there, with those that do in brackets."""
    there = [v for v in values if v is not None]
    if not there:
        return NEVER
    return show(there) if len(there) == len(values) else f"{NEVER} ({len(there)} of {len(values)}: {show(there)})"


def last_scores(found: dict[str, Any]) -> str:
    """Of how many evaluated rounds the "mean of the last five" is: of fewer where a run has no five."""
    scored = [e for e in found["entries"] if e["accuracy"]["last5"]["mean"] is not None]
    counts = {min(5, len(e["curves"]["rounds"])) for e in scored}
    low, high = min(counts, default=5), max(counts, default=5)
    return str(low) if low == high else f"{low} to {high}"
