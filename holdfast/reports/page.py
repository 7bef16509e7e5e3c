"""``holdfast report``: one page that shows a run or a comparison, offline, with still twins of its charts beside it."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.comparison.plan import shown
from holdfast.comparison.sweep_edges import edges
from holdfast.comparison.tables import NEVER, federation, from_python, last_scores, swept
from holdfast.core.errors import HoldfastError
from holdfast.reports import charts, formatting, page_tables, static_charts
from holdfast.reports.charts import Chart
from holdfast.reports.study import read_study

LONG = 72  # letters of a title
SHARES = ("split", "clients", "public")  # settings that decide who holds what
HOLLOW = f"A hollow bar, {NEVER} at its end, is the mean over the luckier seeds alone: the others did not get there."
PARTS = files("holdfast.reports") / "templates"


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, and charts side by side where the window is wide enough."""

    id: str
    title: str
    lead: str
    charts: Sequence[Chart]
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
        static_charts.save(chart, beside)
    plotly, script = get_plotlyjs(), text("page.js")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(text("page.html"))
    return template.render(
        study=study,
        title=title(study),
        facts=facts(study),
        tiles=tiles(study),
        missing=missing(study),
        progress=page_tables.progress(study),
        results=page_tables.results(study),
        scores=page_tables.scores(study),
        reference=reference(study),
        never=never(study),
        edges=edges(study),
        from_python=from_python(study),
        setup=setup(study),
        made=made(study),
        last=last_scores(study),
        sections=parts,
        stills={chart.key: data_uri(beside / f"{chart.key}.svg") for chart in drawn},
        beside=beside.name,
        charts=[asdict(chart) for chart in drawn],
        style=text("page.css"),
        plotly=plotly,
        script=script,
        hashes=[sha(plotly), sha(script)],
        hues=len(static_charts.HUES),
        lap=static_charts.lap,
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
    runs = "the runs that have got there" if "progress" in study else f"{seeds} seeds"
    bands = f"Lines are means over {runs}, bands one standard deviation." if seeds > 1 else ""
    ends = diverged(study)
    lines = " ".join([bands, *ends] if bands else ends)
    costs = charts.costs(study)
    hollow = any(True in bar.hollow for chart in costs for bar in chart.series)
    means = " ".join([*never(study), *(["Bars are means over all seeds."] if seeds > 1 else []), *[HOLLOW] * hollow])
    found = [
        Section("accuracy", "Accuracy", lines, charts.accuracy(study)),
        Section("loss", "Loss", lines, charts.losses(study), columns=2),
        Section("cost", "Cost to reach a target accuracy", means, costs, columns=wide(study)),
        Section("classes", "Classes", "", charts.by_class(study)),
        Section("split", "The split", dealt(study), charts.split(study)),
        Section(
            "drift",
            "Drift",
            " ".join(["How the clients of a round pull apart, round by round.", *ends]),
            charts.drift(study) + ([] if many else charts.feature_norms(study)),
            columns=2,
        ),
    ]
    return [s for s in found if s.charts]


def wide(study: dict[str, Any]) -> int:
    """Charts of bars side by side: one where there are more methods than colours, so that the bars can have names."""
    return 1 if len(study["entries"]) > len(static_charts.HUES) else 3


def diverged(study: dict[str, Any]) -> list[str]:
    """Where the lines end of methods of which some seed diverged."""
    found = []
    for e in study["entries"]:
        many, end = len(e.get("diverged") or []), charts.end(study, e)
        seeds = f"{many} of {formatting.plural(len(study['seeds']), 'seed')} diverged"
        where = f"its line ends at round {end}, the last that all of them finished" if end else "it has no line"
        found += [f"{e['label']}: {seeds}, and {where}."] if many else []
    return found


def dealt(study: dict[str, Any]) -> str:
    """Of which seed and of which point of a sweep the split is."""
    first, seeds = study["entries"][0].get("settings", {}), study["seeds"]
    point = [f"{name} {shown(first[name])}" for name in study.get("sweep") or {} if name in SHARES]
    which = ", ".join(point + ([f"seed {seeds[0]}"] if len(seeds) > 1 else []))
    others = " Other points of the sweep are dealt otherwise." if point else ""
    return f"How the data is dealt to the clients{f' ({which})' if which else ''}.{others}"


def title(study: dict[str, Any]) -> str:
    """Which methods on which data; their number where the names are too long to read."""
    methods = list(dict.fromkeys(e.get("method", e["label"]) for e in study["entries"]))
    names = formatting.listed(methods)
    if len(methods) > 1 and len(names) > LONG:
        names = f"{len(methods)} methods"
    return f"{names} on {study['settings'].get('data', 'own data')}"


def facts(study: dict[str, Any]) -> list[str]:
    """The setting in a few formatting."""
    s, seeds = study["settings"], study["seeds"]
    model = [str(s["model"])] if "model" in s else []
    many = [f"{len(seeds)} seeds"] if len(seeds) > 1 else []
    return [*federation(s), *model, *rounds(study), *swept(study), *many]


def rounds(study: dict[str, Any]) -> list[str]:
    """How many, or how many so far; nothing where they are swept."""
    wanted = study["settings"].get("rounds")
    done = study.get("rounds_done", wanted)
    return [] if wanted is None else [f"{done} rounds" if done == wanted else f"{done} of {wanted} rounds so far"]


def setup(study: dict[str, Any]) -> dict[str, str]:
    """The rows of the table of settings: what all runs share, what is swept, and the seeds."""
    found = {name: str(value) for name, value in study["settings"].items()}
    found |= {name: f"{', '.join(map(shown, values))} (swept)" for name, values in (study.get("sweep") or {}).items()}
    return found | ({"seeds": ", ".join(map(str, study["seeds"]))} if len(study["seeds"]) > 1 else {})


def made(study: dict[str, Any]) -> list[str]:
    """With what, where and when the runs were made, as they say it; whoever writes the page has no part in it."""
    leads = {"holdfast": "Holdfast ", "commit": "commit ", "torch": "torch ", "device": "", "date": ""}
    known = [f"{lead}{study[name]}" for name, lead in leads.items() if study.get(name)]
    return known if study.get("holdfast") else ["Holdfast", *known]


def reference(study: dict[str, Any]) -> str:
    """Whom the methods are compared with, as the comparison's plan has it."""
    if not study.get("sweep"):
        return "the first method"
    several = len({e["method"] for e in study["entries"]}) > 1
    return "the first method at the same point of the sweep" if several else "the first point on the same federation"


def never(study: dict[str, Any]) -> list[str]:
    """What the sign for it means, where some run did not reach a target."""
    targets = [target for e in study["entries"] if charts.whole(e) for target in e["targets"]]
    return [f"{NEVER}: not within the run."] if any(None in target["rounds"] for target in targets) else []


def missing(study: dict[str, Any]) -> list[str]:
    """Of a comparison that is not finished: what is done, what is not, and what that means for the page."""
    p = study.get("progress")
    if p is None:
        return []
    begun = [f"{p['begun']} {'is' if p['begun'] == 1 else 'are'} begun"] if p["begun"] else []
    new = p["runs"] - p["done"] - p["begun"]
    rest = [*begun, *([f"{new} {'is' if new == 1 else 'are'} still to come"] if new else [])]
    done = [e["label"] for e in study["entries"] if charts.whole(e)]
    there = (
        f"Results and costs are those of {formatting.listed(done)}" if done else "There are no results and costs yet"
    )
    return [
        f"{p['done']} of {formatting.plural(p['runs'], 'run')} {'is' if p['done'] == 1 else 'are'} done; "
        f"{', '.join(rest)}.",
        "Curves show every run as far as it is; methods whose seeds differ so far cannot be compared by them. "
        f"{there}: a method needs all its seeds for them.",
    ]


def tiles(study: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The few numbers to see first: (name, value, remark)."""
    entries = [e for e in study["entries"] if charts.whole(e)]
    if len(study["entries"]) == 1:
        return [tile for e in entries for tile in tiles_of_one(e, last_scores(study))]
    scored = [e for e in entries if e["accuracy"]["final"]["mean"] is not None]
    if not scored or ("progress" in study and len(scored) == 1):
        return []
    best = max(scored, key=lambda e: e["accuracy"]["final"]["mean"])
    found = [("Highest final accuracy", formatting.plus_minus(best["accuracy"]["final"]), best["label"])]
    if best.get("difference"):
        d = best["difference"]
        against, sure = d.get("to", entries[0]["label"]), ", ".join(page_tables.interval(d))
        told = [best["verdict"]] if best.get("verdict") else []
        told += [f"95 % interval {sure}"] if sure else []
        found.append((f"Against {against}", f"{formatting.points(d['mean'])} points", ": ".join(told)))
    least = min(e["bytes"]["mean"] for e in scored)
    light = [e["label"] for e in scored if e["bytes"]["mean"] == least]
    who = "the same for all" if len(light) == len(scored) > 1 else formatting.listed(light)
    return [*found, ("Least traffic", formatting.traffic(least), who)]


def tiles_of_one(e: dict[str, Any], last: str) -> list[tuple[str, str, str]]:
    final, best, mean = (formatting.percent(e["accuracy"][name]["mean"]) for name in ("final", "best", "last5"))
    return [
        ("Final accuracy", final, f"mean of the last {last}: {mean}" if last != "1" else ""),
        ("Best accuracy", best, "over all rounds"),
        ("Time", formatting.seconds(e["seconds"]["mean"]), "evaluation included"),
        ("Traffic", formatting.traffic(e["bytes"]["mean"]), "up and down"),
    ]
