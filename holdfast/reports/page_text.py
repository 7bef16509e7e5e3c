"""What the page says besides tables and charts: title, facts, the numbers at the top, setup and origin."""

from __future__ import annotations

from holdfast.comparison.study_schema import Study, StudyEntry
from holdfast.comparison.tables import NEVER, federation, last_scores, swept, values_text
from holdfast.reports import formatting, page_tables

LONG = 72  # characters of a title

Tile = tuple[str, str, str]  # name, value, remark


def title(study: Study) -> str:
    """Name the methods and the data; only the number of methods where their names are too long."""
    names = formatting.listed(study.methods)
    if len(study.methods) > 1 and len(names) > LONG:
        names = f"{len(study.methods)} methods"
    return f"{names} on {study.settings.get('data', 'own data')}"


def facts(study: Study) -> list[str]:
    """Describe the setup in a few words."""
    model = [str(study.settings["model"])] if "model" in study.settings else []
    seeds = [f"{len(study.seeds)} seeds"] if len(study.seeds) > 1 else []
    return [*federation(study.settings), *model, *rounds(study), *swept(study), *seeds]


def rounds(study: Study) -> list[str]:
    """Return the number of rounds, or of those done so far; nothing if they are swept."""
    total = study.settings.get("rounds")
    if total is None:
        return []
    done = total if study.rounds_done is None else study.rounds_done
    return [f"{done} rounds" if done == total else f"{done} of {total} rounds so far"]


def setup(study: Study) -> dict[str, str]:
    """Return the rows of the table of settings: what all runs share, what is swept, and the seeds."""
    rows = {name: str(value) for name, value in study.settings.items()}
    rows |= {name: f"{values_text(name, values)} (swept)" for name, values in study.sweep.items()}
    return rows | ({"seeds": ", ".join(map(str, study.seeds))} if len(study.seeds) > 1 else {})


def made(study: Study) -> list[str]:
    """Say with what, where and when the runs were made; the machine that writes the page does not matter."""
    known = {
        "Holdfast ": study.holdfast, "commit ": study.commit, "torch ": study.torch, "": study.device,
    }  # fmt: skip
    words = [f"{lead}{value}" for lead, value in known.items() if value] + [study.date] * bool(study.date)
    return words if study.holdfast else ["Holdfast", *words]


def reference(study: Study) -> str:
    """Say what the methods are compared with."""
    if not study.sweep:
        return "the first method"
    several = len(study.methods) > 1
    return "the first method at the same point of the sweep" if several else "the first point on the same federation"


def never(study: Study) -> list[str]:
    """Explain the sign for it if some run did not reach a target."""
    targets = [target for e in study.entries if e.complete for target in e.targets]
    return [f"{NEVER}: not within the run."] if any(None in target.rounds for target in targets) else []


def missing(study: Study) -> list[str]:
    """Say what is done in an unfinished comparison, what is not, and what that means for the page."""
    p = study.progress
    if p is None:
        return []
    rest = {"started": p.started, "not started yet": p.runs - p.done - p.started}
    states = [f"{many} {'is' if many == 1 else 'are'} {state}" for state, many in rest.items() if many]
    done = [e.label for e in study.entries if e.complete]
    complete = f"only {formatting.listed(done)} {'has' if len(done) == 1 else 'have'}" if done else "no method has"
    return [
        f"{p.done} of {formatting.plural(p.runs, 'run')} {'is' if p.done == 1 else 'are'} done; {', '.join(states)}.",
        "Curves show every run as far as it is. Do not compare methods by them while different seeds are finished. "
        f"Results and costs need all seeds of a method: so far {complete} them.",
    ]


def tiles(study: Study) -> list[Tile]:
    """Return the few numbers to see first."""
    entries = [e for e in study.entries if e.complete]
    if len(study.entries) == 1:
        return [tile for e in entries for tile in tiles_of_one(e, last_scores(study))]
    scored = [(e.accuracy.final.mean, e) for e in entries if e.accuracy.final.mean is not None]
    if not scored or (study.progress is not None and len(scored) == 1):
        return []
    best = max(scored, key=lambda pair: pair[0])[1]
    first = ("Highest final accuracy", formatting.plus_minus(best.accuracy.final), best.label)
    return [first, *difference_tile(best), traffic_tile([e for _, e in scored])]


def difference_tile(best: StudyEntry) -> list[Tile]:
    d = best.difference
    if d is None:
        return []
    interval = ", ".join(page_tables.interval(d))
    remarks = [*[best.verdict] * bool(best.verdict), *[f"95 % interval {interval}"] * bool(interval)]
    return [(f"Compared with {d.to}", f"{formatting.points(d.mean)} points", ": ".join(remarks))]


def traffic_tile(entries: list[StudyEntry]) -> Tile:
    least = min(e.bytes.mean for e in entries if e.bytes.mean is not None)
    labels = [e.label for e in entries if e.bytes.mean == least]
    who = "the same for all" if len(labels) == len(entries) > 1 else formatting.listed(labels)
    return ("Least traffic", formatting.traffic(least), who)


def tiles_of_one(e: StudyEntry, last: str) -> list[Tile]:
    """Return the numbers of a single method."""
    final, best, mean = (formatting.percent(s.mean) for s in (e.accuracy.final, e.accuracy.best, e.accuracy.last5))
    return [
        ("Final accuracy", final, f"mean of the last {last}: {mean}" if last != "1" else ""),
        ("Best accuracy", best, "over all rounds"),
        ("Time", formatting.seconds(e.seconds.mean), "including evaluation"),
        ("Traffic", formatting.traffic(e.bytes.mean), "up and down"),
    ]
