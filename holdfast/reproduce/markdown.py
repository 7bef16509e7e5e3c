"""A reproduced table as Markdown, with what was run and what became of the claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.comparison.export import markdown_table
from holdfast.comparison.tables import NEVER, NONE, number
from holdfast.method.config import FIELDS
from holdfast.reproduce.claims import Outcome, outcomes, phrase, printed
from holdfast.reproduce.measure import Measure

RAN = ("run", "diverged")  # cells with a number of ours, or with the reason why there is none

LEAK = "Numbers marked LEAK are of runs that use test data in training: their accuracy means nothing."


def headline(t: dict[str, Any]) -> str:
    """Which scale, data, rounds and seeds were used: said before any number."""
    ran = [c for row in t["rows"] for c in row["cells"] if "seeds" in c]
    if not ran:
        return f"{t['scale'].upper()} scale: nothing of it was run"
    data, models = used(t)
    rounds, seeds = sorted({c["rounds"] for c in ran}), sorted({s for c in ran for s in c["seeds"]})
    changed = "".join(f", {k} = {v}" for k, v in t["changed"].items())
    what = {
        "smoke": "A SMOKE TEST on other data and a tiny setting: it shows that the cell runs, and nothing else",
        "small": "SMALL SCALE, not the paper's setting: NOT a reproduction",
        "full": "FULL SCALE, the paper's setting" if t["reproduction"] else "The paper's setting, CHANGED",
    }[t["scale"]]
    return (
        f"{what}{changed}. Data: {data}; model: {models}; rounds: {', '.join(map(str, rounds))}; "
        f"seeds: {', '.join(map(str, seeds))}; measure: {measured(t)}"
    )


def measured(t: dict[str, Any]) -> str:
    """What the numbers that were run are, in words."""
    ran = [c for row in t["rows"] for c in row["cells"] if "seeds" in c]
    found = [(Measure.parse(c.get("measure", t["measure"]), t["table"]), c["rounds"]) for c in ran]
    return ", ".join(dict.fromkeys(m.words_in(rounds) for m, rounds in found))


def caption(t: dict[str, Any]) -> str:
    """The paper's caption; where that setting was not kept, with the data and network that were run instead."""
    data, models = used(t)
    return f"{t['caption']} (in the paper; here: {data}, {models})" if data and not t["reproduction"] else t["caption"]


def used(t: dict[str, Any]) -> tuple[str, str]:
    """The data sets and the networks that were run."""
    settings = [c["settings"] for row in t["rows"] for c in row["cells"] if "seeds" in c]
    data, models = ({s.get(name, FIELDS[name].default) for s in settings} for name in ("data", "model"))
    return ", ".join(sorted(data)), ", ".join(sorted(models))


def ours_title(t: dict[str, Any]) -> str:
    if t["reproduction"]:
        return "ours"
    changed = ", changed" if t["changed"].keys() - {"precision"} else ""
    return f"ours ({t['scale']}{changed}: not a reproduction)"


def table_markdown(t: dict[str, Any]) -> str:
    """One line per cell that was run; the rest is counted."""
    lines, notes = [], []
    for row in t["rows"]:
        ran = [(column, c) for column, c in zip(t["columns"], row["cells"], strict=True) if c["status"] in RAN]
        lines += [[row["name"], name, f"`{c['method']}`", published(c), ours(c), difference(c)] for name, c in ran]
        notes += [f"- {row['name']}: {row['note']}"] if ran and row["note"] else []
    unit = f" [{t['unit']}]" if t["unit"] else ""
    head = ["row", "column", "method", f"published{unit}", ours_title(t), "difference"]
    parts = [markdown_table(head, lines)] if lines else []
    parts += [text for text in (rest(t), "\n".join(notes)) if text]
    if any(c.get("leaks_test_data") for row in t["rows"] for c in row["cells"]):
        parts.append(LEAK)
    return "\n\n".join(parts)


def rest(t: dict[str, Any]) -> str:
    """The cells without a number of ours, counted, in one line."""
    others = [c for row in t["rows"] for c in row["cells"] if c["status"] not in RAN]
    idle = sum(c["status"] == "not run" for c in others)
    lacking = [c["why"] for c in others if c["status"] == "data absent"]
    never = Counter(c["why"] for c in others if c["status"] == "absent")
    left = t.get("not_asked", 0)
    said = [f"{counted(left)} not asked for."] if left else []
    said += [f"{counted(idle)} not run{which(t)}."] if idle else []
    said += [f"The {wanting(lacking, 'here')}."] if lacking else []
    said += [f"{counted(n)} not run: {why.removesuffix('.')}." for why, n in never.items()]
    return " ".join(said)


def which(t: dict[str, Any]) -> str:
    """The rows and columns of which nothing was run, and how many cells beside; nothing where that is all of them."""
    ran = [[c["status"] in RAN for c in row["cells"]] for row in t["rows"]]
    idle = [[c["status"] == "not run" for c in row["cells"]] for row in t["rows"]]
    rows = [i for i, line in enumerate(ran) if not any(line) and any(idle[i])]
    columns = [j for j in range(len(t["columns"])) if not any(line[j] for line in ran)]
    if not any(map(any, ran)):
        return ""
    more = sum(cell for i, line in enumerate(idle) for j, cell in enumerate(line) if i not in rows and j not in columns)
    named = [f"row{'s' * (len(rows) > 1)} {ranges([i + 1 for i in rows])}"] if rows else []
    named += (
        ["column" + "s" * (len(columns) > 1) + " " + " / ".join(t["columns"][j] for j in columns)] if columns else []
    )
    return ": " + "; ".join([*named, *([f"{more} more"] if more else [])]) if named else ""


def ranges(numbers: Sequence[int]) -> str:
    """
    >>> ranges([1, 2, 3, 5, 7, 8])
    '1-3, 5, 7-8'
    """
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][-1] + 1:
            found[-1].append(n)
        else:
            found.append([n])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)


def counted(n: int) -> str:
    return "1 cell was" if n == 1 else f"{n} cells were"


def wanting(whys: Sequence[str], where: str) -> str:
    """How many cells lack their data, and which, from the cells' reasons: "cifar10 is not here"."""
    sets = Counter(why.split()[0] for why in whys)
    names = ", ".join(f"{name} ({n})" for name, n in sorted(sets.items()))
    return f"data of {len(whys)} cell{'s' * (len(whys) != 1)} is not {where}: {names}"


def made_line(t: dict[str, Any]) -> str:
    """When, where and with what the numbers were made, as far as their runs say; nothing where there are none."""
    cells = [c.get("made", []) for row in t["rows"] for c in row["cells"] if c["status"] in RAN]
    leads = {"date": " ", "device": " on ", "torch": ", torch ", "commit": ", commit "}
    known = "".join(f"{lead}{text}" for name, lead in leads.items() if (text := valued(cells, name)))
    said = [f"Made{known}."] if known else []
    return " ".join([*said, t["made"]["note"]]).strip() if cells else ""


def valued(cells: Sequence[Sequence[Mapping[str, str]]], name: str) -> str:
    """What the runs of some cells say of themselves; of how many cells, where it is not all of them.

    >>> valued([[{"torch": "2.1"}], [{"torch": "2.2"}], [{"torch": "2.1"}, {"torch": "2.1"}], []], "torch")
    '2.1 (2 cells) and 2.2 (1 cell)'
    """
    counts = Counter(value for runs in cells for value in {run[name] for run in runs if run.get(name)})
    said = [value if n == len(cells) else f"{value} ({n} cell{'s' * (n > 1)})" for value, n in sorted(counts.items())]
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))


def published(c: dict[str, Any]) -> str:
    if c["published"] is None:
        return NONE
    plus = "" if c["spread"] is None else f" ± {c['spread']:g}"
    return NEVER if c["published"] == "inf" else f"{c['published']:g}{plus}"


def ours(c: dict[str, Any]) -> str:
    if c["status"] != "run":
        return f"{c['status']}: {c['why']}"
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
    digits = 4 if c["unit"] == "fraction" else 0 if c["unit"] == "rounds" and value == int(value) else 2
    return f"{value:.{digits}f}" if abs(value) < 1000 else number(value)


def section(t: dict[str, Any]) -> str:
    """A table for the page: what was run, the numbers, the claim."""
    parts = [f"## {t['paper']}, table {t['table']}: {caption(t)}", t["why_not"] or f"**{headline(t)}.**"]
    if not t["why_not"]:
        parts.append(table_markdown(t))
    parts += [said for said in (claim_line(t), made_line(t)) if said]
    return "\n\n".join(parts) + "\n"


def claim_line(t: dict[str, Any]) -> str:
    if not t["claim"]:
        return ""
    first, second = outcomes(t)
    seen, total = printed(t)
    said = f"Claim: {t['claim']} {told(t, first)}" + (f"; printed: {seen} of {total}." if total else ".")
    return said + (f" With our variant: {told(t, second)}." if second else "")


def told(t: dict[str, Any], o: Outcome) -> str:
    """What became of it, with the tests and pairs that it rests on."""
    counts = [f"{o.seen} of {o.tested} tests seen"] if o.tested else []
    counts += [f"{o.pairs_run} of {o.pairs} pairs run"] if o.pairs_run < o.pairs else []
    asked = " in the cells asked for" if t.get("not_asked") and o.tested else ""
    return phrase(t, o) + asked + (f": {', '.join(counts)}" if counts else "")
