"""Check that everything in a study is about the same classes."""

from __future__ import annotations

from pathlib import Path

from holdfast.comparison.study_schema import Study
from holdfast.core.errors import HoldfastError


def checked_classes(study: Study, path: Path, remedy: str) -> Study:
    """Return a study if its counts and accuracies by class fit the names of its classes.

    Args:
        study: The study.
        path: The file that names the classes, for the error.
        remedy: What to do if they do not fit.

    Returns:
        The same study.
    """
    lengths = {len(row) for row in study.split.counts or []}
    lengths |= {len(entry.by_class.mean) for entry in study.entries if entry.by_class and entry.by_class.mean}
    others = sorted(lengths - {len(study.classes)})
    if others:
        raise HoldfastError(
            f"{path} is damaged, it names {len(study.classes)} classes, but there are numbers for {others[0]}: {remedy}"
        )
    return study
