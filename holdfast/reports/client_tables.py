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
    """Return the final score of every client and of its fine-tuned copies, the worst first; None if the clients are
    not listed."""
    known = [(e, f) for _, e, f in _scored(study) if f.clients]
    if not known:
        return None
    text, columns = score_text(study), list[tuple[str, dict[str, float | None]]]()
    for e, f in known:
        columns.append((e.label, {row.name: row.score for row in f.clients}))
        if any(row.personal is not None for row in f.clients):
            copy = "Fine-tuned copy" if len(known) == 1 else f"{e.label}, fine-tuned copy"
            columns.append((copy, {row.name: row.personal for row in f.clients}))
    rows = []
    for row in known[0][1].clients:
        cells = [plain(text.value(found.get(row.name))) for _, found in columns]
        rows.append(PageRow(row.name, None, [], [*cells, plain(str(row.samples))]))
    return PageTable([*(label for label, _ in columns), "Test samples"], rows, "Client")


def unscored(study: Study) -> str:
    """Return the sentence about clients in the table whose score is a dash; empty if there are none."""
    rows = [row for _, _, f in _scored(study) for row in f.clients]
    if all(row.score is not None for row in rows):
        return ""
    spoken = study.goes_by.spoken
    return f"A dash: {spoken} is not defined on the client's test samples. Such clients are not in the figures above."


def _scored(study: Study) -> list[tuple[int, StudyEntry, ClientFigures]]:
    return [(i, e, e.clients) for i, e in coloured(study) if e.clients is not None and e.complete]
