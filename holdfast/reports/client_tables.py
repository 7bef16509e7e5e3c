"""The tables of scores on clients' own test samples: the spread over clients, and every client by name."""

from __future__ import annotations

from holdfast.comparison.client_spread import deviations, spread_rows
from holdfast.comparison.study_schema import ClientFigures, Study, StudyEntry
from holdfast.reports.charts import coloured
from holdfast.reports.formatting import score_text
from holdfast.reports.page_tables import PageRow, PageTable, plain

OPEN = 20  # clients up to which the table by name is open


def spread_over_clients(study: Study) -> PageTable | None:
    """Return mean, worst tenth, variance and standard deviation over clients, a row per method and one for fine-tuned
    copies; None without such scores."""
    text, rows = score_text(study), []
    for hue, e in coloured(study):
        for whose, over in spread_rows(e):
            cells = [text.spread(over.mean), text.spread(over.worst_tenth), *deviations(over, study.percent)]
            rows.append(PageRow(f"{e.label}, {whose}" if whose else e.label, hue, [], [plain(cell) for cell in cells]))
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
