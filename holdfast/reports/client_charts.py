"""The charts of scores on clients' own test samples: over rounds, and client by client."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.comparison.study_schema import ClientFigures, Study, StudyEntry
from holdfast.reports import formatting
from holdfast.reports.charts import Bar, BarChart, Chart, HeatMap, LineChart, Number, coloured, line, with_points

BINS = 20  # bars of a histogram


def client_charts(study: Study) -> list[Chart]:
    """Return the charts, or nothing where clients are not scored."""
    return [*over_rounds(study), *by_client(study)]


def over_rounds(study: Study) -> list[Chart]:
    """Return the mean over clients, and the mean of the worst tenth, over rounds."""
    spoken = study.goes_by.spoken
    kinds: list[tuple[str, str, str, Callable[[ClientFigures], list[list[Number]]]]] = [
        ("clients-mean", "Mean over clients", f"{spoken} on the clients' own test samples", lambda f: f.mean),
        ("clients-worst", "Worst tenth of the clients", f"mean {spoken} of these clients", lambda f: f.worst_tenth),
    ]
    charts: list[Chart] = []
    for key, title, note, values in kinds:
        series = [line(study, e, i, f.rounds, values(f)) for i, e, f in scored(study)]
        charts += with_points(LineChart(key, title, note, series, percent=study.percent))
    return charts


def by_client(study: Study) -> list[Chart]:
    """Return the final score of every client: bars of a single method, shades of several, or a histogram."""
    known = [(i, e, f) for i, e, f in scored(study) if f.scores]
    if not known:
        return []
    hue, entry, first = known[0]
    title, note = "Final score by client", f"{study.goes_by.spoken} on the client's own test samples, worst first"
    if len(study.seeds) > 1:
        note += f"; seed {study.seeds[0]}"
    if not all(f.clients for _, _, f in known):
        return [histogram(study, hue, entry, first)] if len(known) == 1 else []
    clients = [row for row in first.clients if row.score is not None]
    names = [row.name for row in clients]
    if len(known) > 1:
        rows = [{row.name: row.score for row in f.clients} for _, _, f in known]
        values = [[row.get(name) for row in rows] for name in names]
        labels = [e.label for _, e, _ in known]
        return [HeatMap("clients", title, note, names, labels, values, "method", "client", percent=study.percent)]
    kinds = {entry.label: [row.score for row in clients]}
    if any(row.personal is not None for row in clients):
        kinds["fine-tuned copy"] = [row.personal for row in clients]
    bars = [bar(study, label, values, hue + k) for k, (label, values) in enumerate(kinds.items())]
    return [BarChart("clients", title, note, names, bars, most=1.0 if study.percent else None)]


def bar(study: Study, label: str, values: list[Number], hue: int) -> Bar:
    """Return the bars of one model."""
    text = formatting.score_text(study)
    return Bar(label, values, [text.value(v) for v in values], [False] * len(values), hue)


def histogram(study: Study, hue: int, entry: StudyEntry, figures: ClientFigures) -> BarChart:
    """Return how many of many clients have which score."""
    low, high = (0.0, 1.0) if study.percent else (min(figures.scores), max(figures.scores))
    width = (high - low) / BINS or 1.0
    counts = [0] * BINS
    for score in figures.scores:
        counts[min(BINS - 1, int((score - low) / width))] += 1
    text, total = formatting.score_text(study), len(figures.scores)
    names = [f"{text.value(low + k * width)} to {text.value(low + (k + 1) * width)}" for k in range(BINS)]
    shares: list[Number] = [count / total for count in counts]
    bars = Bar(entry.label, shares, [formatting.percent(s) for s in shares], [False] * BINS, hue)
    note = f"share of the clients, by {study.goes_by.spoken} on the client's own test samples"
    return BarChart("clients", "Final scores of the clients", note, names, [bars])


def scored(study: Study) -> list[tuple[int, StudyEntry, ClientFigures]]:
    """Return the entries whose clients are scored, with the numbers of their colours."""
    return [(i, e, e.clients) for i, e in coloured(study) if e.clients is not None]
