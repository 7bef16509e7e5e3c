"""The tables of scores on clients' own test samples: the spread over clients, and every client by name."""

from __future__ import annotations

import math

from holdfast.comparison.score_text import NONE
from holdfast.comparison.study_schema import ClientFigures, Study, StudyEntry
from holdfast.reports.charts import coloured
from holdfast.reports.formatting import score_text
from holdfast.reports.page_tables import PageRow, PageTable, plain

OPEN = 20  # clients up to which the table by name is open


def spread_over_clients(study: Study) -> PageTable | None:
    """Return mean, worst tenth, variance and standard deviation over clients, a row per method; None without such
    scores."""
    text, rows = score_text(study), []
    for hue, e, f in _scored(study):
        variance = f.final_variance.mean if f.final_variance else None
        deviation = None if variance is None else math.sqrt(variance)
        unit = 100 if study.percent else 1  # points rather than percent, since it is a difference
        cells = [text.spread(f.final_mean), text.spread(f.final_worst)]
        cells += [
            NONE if value is None else f"{value:.3g}" for value in (_times(variance, unit**2), _times(deviation, unit))
        ]
        rows.append(PageRow(e.label, hue, [], [plain(cell) for cell in cells]))
    head = ["Mean over clients", "Worst tenth", "Variance", "Standard deviation"]
    return PageTable(head, rows) if rows else None


def clients_by_name(study: Study) -> PageTable | None:
    """Return the final score of every client, the worst first; None if the clients are not listed."""
    known = [(e, f) for _, e, f in _scored(study) if f.clients]
    if not known:
        return None
    text, (only, first) = score_text(study), known[0]
    copies = len(known) == 1 and any(row.personal is not None for row in first.clients)
    scores = [{row.name: row.score for row in f.clients} for _, f in known]
    rows = []
    for row in first.clients:
        values = [found.get(row.name) for found in scores] + [row.personal] * copies
        rows.append(PageRow(row.name, None, [], [plain(text.value(v)) for v in values] + [plain(str(row.samples))]))
    head = [e.label for e, _ in known] if len(known) > 1 else [f"{only.label}"]
    return PageTable([*head, *["Fine-tuned copy"] * copies, "Test samples"], rows, "Client")


def _scored(study: Study) -> list[tuple[int, StudyEntry, ClientFigures]]:
    return [(i, e, e.clients) for i, e in coloured(study) if e.clients is not None and e.complete]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
