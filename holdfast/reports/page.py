"""``holdfast report``: one page that shows a run or a comparison, offline, with still twins of its charts beside it."""

from __future__ import annotations

import base64
import hashlib
import shutil
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.reports import charts, still, words
from holdfast.reports.charts import Chart
from holdfast.reports.study import read_study

LONG = 72  # letters of a title
PARTS = files("holdfast.reports") / "page"


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, and charts side by side where the window is wide enough."""

    id: str
    title: str
    lead: str
    charts: list[Chart]
    columns: int = 1


def report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page for the run or comparison in ``folder``, by default into it, and return its path."""
    folder = Path(folder)
    study = read_study(folder)
    path = Path(out) if out is not None else folder / "report.html"
    if path.suffix.lower() not in (".html", ".htm"):
        raise HoldfastError(f"--out {path} must be an HTML file, such as report.html")
    beside = path.with_name(f"{path.stem}_files")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        path.write_text(html(study, beside), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"cannot write the report {path}: {error.strerror}") from error
    return path


def html(study: dict[str, Any], beside: Path) -> str:
    """The page; the still twins are written into the folder ``beside``."""
    from jinja2 import Environment, StrictUndefined
    from plotly.offline import get_plotlyjs

    parts = sections(study)
    drawn = [chart for part in parts for chart in part.charts]
    for chart in drawn:
        still.save(chart, beside)
    plotly, script = get_plotlyjs(), text("page.js")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(text("page.html"))
    return template.render(
        study=study,
        title=title(study),
        facts=facts(study),
        tiles=tiles(study),
        table=table(study),
        sections=parts,
        stills={chart.key: data_uri(beside / f"{chart.key}.svg") for chart in drawn},
        beside=beside.name,
        charts=[asdict(chart) for chart in drawn],
        style=text("page.css"),
        plotly=plotly,
        script=script,
        hashes=[sha(plotly), sha(script)],
        hues=len(still.HUES),
    )


def text(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def sha(script: str) -> str:
    """What the page's security policy lets run: nothing but its own scripts."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def data_uri(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()


# ------------------------------------------------------------------------------------------------------ what it says
def sections(study: dict[str, Any]) -> list[Section]:
    many, seeds = len(study["entries"]) > 1, len(study["seeds"])
    bands = f"Lines are means over {seeds} seeds, bands one standard deviation." if seeds > 1 else ""
    means = "Means over the seeds that got there." if seeds > 1 else ""
    found = [
        Section("accuracy", "Accuracy", bands, charts.accuracy(study)),
        Section("loss", "Loss", bands, charts.losses(study), columns=2),
        Section("cost", "Cost to reach a target accuracy", means, charts.costs(study), columns=3),
        Section("classes", "Classes", "", charts.by_class(study)),
        Section("split", "The split", "How the data is dealt to the clients" + first_seed(study), charts.split(study)),
        Section(
            "drift",
            "Drift",
            "How the clients of a round pull apart, round by round.",
            charts.drift(study) + ([] if many else charts.feature_norms(study)),
            columns=2,
        ),
    ]
    return [s for s in found if s.charts]


def first_seed(study: dict[str, Any]) -> str:
    return f" (seed {study['seeds'][0]})." if len(study["seeds"]) > 1 else "."


def title(study: dict[str, Any]) -> str:
    """Which methods on which data; their number where the names are too long to read."""
    methods = list(dict.fromkeys(e.get("method", e["label"]) for e in study["entries"]))
    names = words.listed(methods)
    if len(methods) > 1 and len(names) > LONG:
        names = f"{len(methods)} methods"
    return f"{names} on {study['settings'].get('data', 'own data')}"


def facts(study: dict[str, Any]) -> list[str]:
    """The setting in a few words."""
    s, seeds = study["settings"], study["seeds"]
    clients = f"{s['split']} over {s['clients']} clients" if {"split", "clients"} <= s.keys() else ""
    cohort = f"{s['cohort']} per round" if s.get("cohort") else ""
    done = study.get("rounds_done", s.get("rounds"))
    rounds = f"{done} rounds" if done == s.get("rounds") else f"{done} of {s.get('rounds')} rounds so far"
    return [
        f for f in (clients, cohort, str(s.get("model", "")), rounds, f"{len(seeds)} seeds" * (len(seeds) > 1)) if f
    ]


def tiles(study: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The few numbers to see first: (name, value, remark)."""
    entries = study["entries"]
    if len(entries) == 1:
        e = entries[0]
        final, best, last = (words.percent(e["accuracy"][name]["mean"]) for name in ("final", "best", "last5"))
        return [
            ("Final accuracy", final, f"mean of the last five {last}"),
            ("Best accuracy", best, "over all rounds"),
            ("Time", words.seconds(e["seconds"]["mean"]), "evaluation included"),
            ("Traffic", words.traffic(e["bytes"]["mean"]), "up and down"),
        ]  # fmt: skip
    scored = [e for e in entries if e["accuracy"]["final"]["mean"] is not None]
    if not scored:
        return []
    best = max(scored, key=lambda e: e["accuracy"]["final"]["mean"])
    fast = min(scored, key=lambda e: e["seconds"]["mean"])
    light = min(scored, key=lambda e: e["bytes"]["mean"])
    found = [("Highest final accuracy", words.plus_minus(best["accuracy"]["final"]), best["label"])]
    if best.get("difference"):
        d = best["difference"]
        against, sure = d.get("to", entries[0]["label"]), ", ".join(interval(d))
        told = [best["verdict"]] if best.get("verdict") else []
        told += [f"95 % interval {sure}"] if sure else []
        found.append((f"Against {against}", f"{words.points(d['mean'])} points", ": ".join(told)))
    return [
        *found,
        ("Least time", words.seconds(fast["seconds"]["mean"]), fast["label"]),
        ("Least traffic", words.traffic(light["bytes"]["mean"]), light["label"]),
    ]


def interval(difference: dict[str, Any]) -> list[str]:
    """The confidence interval and the chance, where there are seeds enough."""
    low, high, p = (difference.get(k) for k in ("low", "high", "p"))
    known = [] if low is None or high is None else [f"{words.points(low)} to {words.points(high)}"]
    return known + ([] if p is None else [words.chance(p)])


def table(study: dict[str, Any]) -> dict[str, Any]:
    """The result of every entry, as text."""
    many = len(study["entries"]) > 1
    targets = [f"Rounds to\N{NO-BREAK SPACE}{100 * t:g}\N{NO-BREAK SPACE}%" for t in study["targets"]] if many else []
    head = ["Final", "Best", "Last five", *(["Difference"] if many else []), *targets, "Time", "Traffic", "κ", "ρ"]
    return {"head": head, "rows": [row(e, many) for e in study["entries"]], "first": study["entries"][0]["label"]}


def reached(rounds: list[int | None]) -> tuple[str, list[str]]:
    """The mean of the seeds that got there, and how many they were where some did not."""
    known = [r for r in rounds if r is not None]
    some = [f"{len(known)} of {len(rounds)} seeds"] if 0 < len(known) < len(rounds) else []
    return words.count(charts.mean(known)) if known else "never", some


def row(e: dict[str, Any], many: bool) -> dict[str, Any]:
    nothing: list[str] = []
    cells = [(words.plus_minus(e["accuracy"][name]), nothing) for name in ("final", "best", "last5")]
    if many:
        d = e.get("difference")
        told = [e["verdict"]] if e.get("verdict") else []
        cells.append((words.points(d["mean"]), interval(d) + told) if d else (words.NONE, nothing))
        cells += [reached(target["rounds"]) for target in e["targets"]]
    cells += [(words.seconds(e["seconds"]["mean"]), nothing), (words.traffic(e["bytes"]["mean"]), nothing)]
    cells += [(words.figure(e[name]["mean"]) if e.get(name) else words.NONE, nothing) for name in ("kappa", "rho")]
    remarks = [f"diverged with seed {d['seed']}" for d in e.get("diverged") or []]
    remarks += ["leaks test data: its accuracy means nothing"] if e.get("leaks_test_data") else []
    return {"label": e["label"], "cells": cells, "remarks": remarks}
