"""A reproduced table as Markdown, and whether the paper's claim is seen in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from holdfast.comparison.export import markdown_table
from holdfast.comparison.tables import NEVER, NONE, number

RULE = (
    "A claim is a list of comparisons, “A is better than B”, each tested in every row (or column) where both were run, "
    "by the mean over the seeds. It *holds* when all of them are seen, *holds partly* when at least half are, and "
    "*does not hold here* otherwise; it is *not tested* when none was run, or at smoke scale. A run that diverged, "
    "or never reached the target, is worse than one that did. Chance is not accounted for: look at the deviations."
)


def headline(t: dict[str, Any]) -> str:
    """Which scale, data, rounds and seeds were used: said before any number."""
    ran = [c for row in t["rows"] for c in row["cells"] if "seeds" in c]
    if not ran:
        return f"{t['scale'].upper()} scale: nothing of it was run"
    data = sorted({c["settings"].get("data", "digits") for c in ran})
    models = sorted({c["settings"].get("model", "mlp") for c in ran})
    rounds, seeds = sorted({c["rounds"] for c in ran}), sorted({s for c in ran for s in c["seeds"]})
    changed = "".join(f", {k} = {v}" for k, v in t["changed"].items())
    what = {
        "smoke": "A SMOKE TEST on other data and a tiny setting: it shows that the cell runs, and nothing else",
        "small": "SMALL SCALE, not the paper's setting: NOT a reproduction",
        "full": "FULL SCALE, the paper's setting" if t["reproduction"] else "The paper's setting, CHANGED",
    }[t["scale"]]
    return (
        f"{what}{changed}. Data: {', '.join(data)}; model: {', '.join(models)}; rounds: {', '.join(map(str, rounds))}; "
        f"seeds: {', '.join(map(str, seeds))}"
    )


def ours_title(t: dict[str, Any]) -> str:
    if t["reproduction"]:
        return "ours"
    return f"ours ({t['scale']}{', changed' if t['changed'] else ''}: not a reproduction)"


def table_markdown(t: dict[str, Any]) -> str:
    """One line per cell that was asked for or is absent; the rest is counted."""
    lines = []
    for row in t["rows"]:
        for column, c in zip(t["columns"], row["cells"], strict=True):
            if c["status"] != "not run":
                lines.append([row["name"], column, f"`{c['method']}`", published(c), ours(c), difference(c)])
    left = sum(c["status"] == "not run" for row in t["rows"] for c in row["cells"])
    unit = f" [{t['unit']}]" if t["unit"] else ""
    head = ["row", "column", "method", f"published{unit}", ours_title(t), "difference"]
    parts = [markdown_table(head, lines)] if lines else []
    parts += [f"{left} cells were not asked for."] if left else []
    notes = [f"- {row['name']}: {row['note']}" for row in t["rows"] if row["note"]]
    parts += ["\n".join(notes)] if notes else []
    if any(c.get("leaks_test_data") for row in t["rows"] for c in row["cells"]):
        parts.append("LEAK: these runs use test data in training; their accuracy means nothing.")
    return "\n\n".join(parts)


def made_line(t: dict[str, Any]) -> str:
    m = t["made"]
    where = ", ".join(sorted({c["device"] for row in t["rows"] for c in row["cells"] if c.get("device")}))
    commit = f", commit {m['commit']}" if m["commit"] else ""
    note = f" {m['note']}" if m["note"] else ""
    return f"Made {m['date']}{f' on {where}' if where else ''}, torch {m['torch']}{commit}.{note}"


def published(c: dict[str, Any]) -> str:
    if c["published"] is None:
        return NONE
    plus = "" if c["spread"] is None else f" ± {c['spread']:g}"
    return NEVER if c["published"] == "inf" else f"{c['published']:g}{plus}"


def ours(c: dict[str, Any]) -> str:
    if c["status"] != "run":
        return f"{c['status']}: {c['why']}" if c["why"] else c["status"]
    mean, std = c["ours"]["mean"], c["ours"]["std"]
    leak = " (LEAK)" if c.get("leaks_test_data") else ""
    if mean is None:
        there = [v for v in c["ours"]["values"] if v is not None]
        return NEVER + (f" ({len(there)} of {len(c['ours']['values'])} reach it)" if there else "") + leak
    classes = f" (by class: {', '.join(shown(v, c) for v in c['by_class'])})" if c.get("by_class") else ""
    return shown(mean, c) + ("" if std is None else f" ± {shown(std, c)}") + classes + leak


def difference(c: dict[str, Any]) -> str:
    gap = c.get("difference")
    return NONE if gap is None else ("+" if gap >= 0 else "-") + shown(abs(gap), c)


def shown(value: float, c: dict[str, Any]) -> str:
    digits = 4 if c["unit"] == "fraction" else 2
    return f"{value:.{digits}f}" if abs(value) < 1000 else number(value)


# ------------------------------------------------------------------------------------------------ claims


def claim(t: dict[str, Any]) -> dict[str, Any]:
    """How often the expected direction is seen in our numbers and in the published ones, and the verdict."""
    mine, printed = tested(t, our_score), tested(t, printed_score)
    seen, total = sum(mine), len(mine)
    verdict = "not tested"
    if total and t["scale"] != "smoke":
        verdict = "holds" if seen == total else "holds partly" if 2 * seen >= total else "does not hold here"
    return {
        "verdict": verdict,
        "seen": seen,
        "tested": total,
        "printed_seen": sum(printed),
        "printed_tested": len(printed),
    }


def tested(t: dict[str, Any], score: Callable[[dict[str, Any]], float | None]) -> list[bool]:
    """Whether A is better than B, for every comparison that both numbers are there for."""
    names = [row["name"] for row in t["rows"]]
    found = []
    for text in t["expect"]:
        a, b = (side.strip() for side in text.split(" > "))
        if a in t["columns"] and b in t["columns"]:
            i, j = t["columns"].index(a), t["columns"].index(b)
            pairs = [(row["cells"][i], row["cells"][j]) for row in t["rows"]]
        else:
            first, second = (t["rows"][names.index(side)]["cells"] for side in (a, b))
            pairs = list(zip(first, second, strict=True))
        for x, y in pairs:
            mine, other = score(x), score(y)
            if mine is not None and other is not None and not (math.isinf(mine) and math.isinf(other)):
                found.append(mine > other)
    return found


def our_score(c: dict[str, Any]) -> float | None:
    """Higher is better; never reached and diverged are the worst; None where it was not run."""
    if c["status"] == "diverged":
        return -math.inf
    if c["status"] != "run":
        return None
    mean = c["ours"]["mean"]
    return -math.inf if mean is None else better(mean, c)


def printed_score(c: dict[str, Any]) -> float | None:
    if c["published"] is None:
        return None
    return -math.inf if c["published"] == "inf" else better(c["published"], c)


def better(value: float, c: dict[str, Any]) -> float:
    """The number turned so that higher is better."""
    return -value if c["less_is_better"] else value
