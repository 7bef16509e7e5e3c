"""What the page says besides tables and charts: title, facts, the numbers at the top, setup and origin."""

from __future__ import annotations

from holdfast.comparison.stats import leaders
from holdfast.comparison.study_schema import Study, StudyEntry
from holdfast.comparison.sweep_edges import edges
from holdfast.comparison.tables import (
    NEVER,
    VIRTUAL,
    best_point_lines,
    candidates,
    chosen,
    direction,
    federation,
    has_clock,
    has_ratios,
    how_chosen,
    last_scores,
    leading,
    listed,
    splits_of_seeds,
    swept,
    values_text,
)
from holdfast.method.config_text import setting_to_text
from holdfast.reports import formatting, page_tables
from holdfast.reports.formatting import score_text

LONG = 72  # characters of a title

Tile = tuple[str, str, str]  # name, value, remark


def title(study: Study) -> str:
    """Name the methods and the data; only the number of methods where their names are too long."""
    names = listed(study.methods)
    if len(study.methods) > 1 and len(names) > LONG:
        names = f"{len(study.methods)} methods"
    return f"{names} on {study.settings.get('data', 'own data')}"


def facts(study: Study) -> list[str]:
    """Describe the setup in a few words."""
    model = [str(study.settings["model"])] if "model" in study.settings else []
    seeds = [f"{len(study.seeds)} seeds"] if len(study.seeds) > 1 else []
    return [*federation(study.settings), *model, *rounds(study), *swept(study), *seeds, *splits_of_seeds(study)]


def rounds(study: Study) -> list[str]:
    """Return the number of rounds, of those before an early stop, or of those done so far; nothing if it is swept."""
    total = study.settings.get("rounds")
    if total is None:
        return []
    done = total if study.rounds_done is None else study.rounds_done
    if study.stopped_early:
        return [f"stopped early after {formatting.plural(done, 'round')}"]
    return [f"{done} rounds" if done == total else f"{done} of {total} rounds so far"]


def setup(study: Study) -> dict[str, str]:
    """Return the rows of the table of settings: what all runs share, what is swept, and the seeds."""
    rows = {name: str(value) for name, value in study.settings.items() if value is not None}
    rows |= {name: f"{setting_to_text(value)} (default)" for name, value in study.defaults.items()}
    rows |= {"metric": study.metric, "task": study.task}
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
    complete = f"only {listed(done)} {'has' if len(done) == 1 else 'have'}" if done else "no method has"
    return [
        f"{p.done} of {formatting.plural(p.runs, 'run')} {'is' if p.done == 1 else 'are'} done; {', '.join(states)}.",
        "Curves show every run as far as it is. Do not compare methods by them while different seeds are finished. "
        f"Results and costs need all seeds of a method: so far {complete} them.",
    ]


def tiles(study: Study) -> list[Tile]:
    """Return the few numbers to see first."""
    entries = [e for e in study.entries if e.complete]
    if len(study.entries) == 1:
        return [tile for e in entries for tile in tiles_of_one(study, e)]
    scored = [e for e in entries if e.scores.final.mean is not None]
    if not scored or (study.progress is not None and len(scored) == 1):
        return []
    first = leaders(candidates(study), study.goes_by)
    return [*leader_tile(study, first), *difference_tile(study, first), traffic_tile(scored)]


def leader_tile(study: Study, first: list[StudyEntry]) -> list[Tile]:
    """Return the best final score, with the method that has it or those that tie for it."""
    if not first:
        return []
    which = "Highest" if study.higher_is_better else "Lowest"
    labels = listed([e.label for e in first])
    remark = labels if len(first) == 1 else f"{labels} tie"
    value = score_text(study).spread(first[0].scores.final)
    return [(f"{which} final {study.goes_by.spoken}", value, remark)]


def difference_tile(study: Study, first: list[StudyEntry]) -> list[Tile]:
    """Return how far the best method is from the one that it is compared with, unless these two tie."""
    d = first[0].difference if first else None
    if d is None or d.to in [e.label for e in first]:
        return []
    best, interval = first[0], ", ".join(page_tables.interval(study, d))
    remarks = [*[best.verdict] * bool(best.verdict), *[f"95 % interval {interval}"] * bool(interval)]
    gap = formatting.minus(score_text(study).difference(d.mean)) + " points" * study.percent
    who = f"{best.label} compared with {d.to}" if len(first) > 1 else f"Compared with {d.to}"
    return [(who, gap, ": ".join(remarks))]


def results(study: Study) -> str:
    """Return the text above the results."""
    several, spoken = len(study.seeds) > 1, study.goes_by.spoken
    over = f", mean ± standard deviation over {len(study.seeds)} seeds" if several else ""
    unit = " are in percentage points, paired by seed" if study.percent else " are paired by seed"
    test = ", with a 95 % interval and a paired t test" if several else ""
    return f"Test {spoken}{direction(study)}{over}. Differences from {reference(study)}{unit}{test}."


def result_remarks(study: Study) -> list[str]:
    """Return remarks below that text: ties, and the best points of a sweep."""
    found = leading(study)
    if study.best_points:
        found += [f"{line[0].upper()}{line[1:]}." for line in (*best_point_lines(study), *edges(study))]
        found.append(how_chosen(study))
    return found


def foot(study: Study) -> str:
    """Return the small print below the results."""
    last = last_scores(study)
    sentences = [
        f"Best {chosen(study)}."
        if study.chosen_on == "validation"
        else f"The best round is chosen on the test data, which makes its {study.goes_by.spoken} optimistic.",
        f"Last {last}: the mean over the last {last} evaluated rounds.",
        "Time is wall-clock time over whole rounds, including evaluation and the warm-up and compilation in a run's "
        "first round: compare methods by rounds and traffic instead.",
    ]
    sentences += [VIRTUAL] * has_clock(study)
    if any(e.epsilon is not None for e in study.entries):
        sentences.append(
            "ε covers the models alone: training losses, drift and scores of clients are computed without noise."
        )
    if has_ratios(study):
        means = ", and means of each seed's ratio" * (len(study.seeds) > 1)
        sentences.append(f"κ is final accuracy per second and ρ final accuracy per megabyte, both times 10 000{means}.")
    return " ".join(sentences)


def traffic_tile(entries: list[StudyEntry]) -> Tile:
    least = min(e.bytes.mean for e in entries if e.bytes.mean is not None)
    labels = [e.label for e in entries if e.bytes.mean == least]
    who = "the same for all" if len(labels) == len(entries) > 1 else listed(labels)
    return ("Least traffic", formatting.traffic(least), who)


def tiles_of_one(study: Study, e: StudyEntry) -> list[Tile]:
    """Return the numbers of a single method."""
    text, spoken, last = score_text(study), study.goes_by.spoken, last_scores(study)
    final, best, mean = (text.value(s.mean) for s in (e.scores.final, e.scores.best, e.scores.last5))
    floor = [f"{study.floor.name}: {text.value(study.floor.value)}"] if study.floor else []
    remarks = [f"mean of the last {last}: {mean}"] * (last != "1") + floor
    return [
        (f"Final {spoken}", final, "; ".join(remarks)),
        (f"Best {spoken}", best, chosen(study)),
        ("Time", formatting.seconds(e.seconds.mean), "including evaluation"),
        ("Traffic", formatting.traffic(e.bytes.mean), "up and down"),
    ]
