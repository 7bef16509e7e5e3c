"""Scores by client as a table of text: mean, worst tenth and variance over clients, a row per method."""

from __future__ import annotations

import math

from holdfast.comparison.score_text import NONE, ScoreText
from holdfast.comparison.study_schema import OverClients, Study, StudyEntry
from holdfast.comparison.text_table import TextTable, label_of, percent_sign

COPIES = "fine-tuned copies"


def spread_rows(entry: StudyEntry) -> list[tuple[str, OverClients]]:
    """Return the figures of an entry's model, and of the clients' fine-tuned copies if there are any, each with a
    word for whose they are."""
    if entry.clients is None or not entry.complete:
        return []
    copies = entry.clients.copies
    return [("", entry.clients.final), *([(COPIES, copies)] if copies else [])]


def deviations(over: OverClients, percent: bool) -> list[str]:
    """Write variance and standard deviation over clients, of scores in percent where the metric is a percentage."""
    unit = 100 if percent else 1
    variance = over.variance.mean if over.variance else None
    if variance is None:
        return [NONE, NONE]
    return [short(variance * unit**2), short(math.sqrt(variance) * unit)]


def short(value: float) -> str:
    """Write a number with three digits, and below a million without a power of ten.

    >>> short(1138.2), short(33.75), short(0.02)
    ('1140', '33.8', '0.02')
    """
    return f"{float(f'{value:.3g}'):g}"


def spread_tables(study: Study) -> list[TextTable]:
    """Return the table, if the runs have such scores."""
    text, rows = ScoreText(study.percent), []
    for e in study.entries:
        for whose, over in spread_rows(e):
            name = f"{label_of(e)}, {whose}" if whose else label_of(e)
            scores = [text.spread(over.mean), text.spread(over.worst_tenth)]
            rows.append([name, *scores, *deviations(over, study.percent)])
    sign = percent_sign(study)
    head = ["method", f"mean{sign}", f"worst tenth{sign}", "variance", "std. dev."]
    title = f"Test {study.goes_by.spoken} over clients, on their own test samples"
    return [TextTable(title, head, rows, spare=("variance", "std. dev."))] if rows else []
