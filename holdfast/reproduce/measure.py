"""What a table measures: one number per run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.comparison.stats import reach, spread
from holdfast.comparison.stored_run import StoredRun
from holdfast.comparison.study_schema import Spread
from holdfast.core.errors import HoldfastError

SCORES = ("final", "best", "curve", "personal", "by_class")  # fractions of 1, published in percent
REACHED = ("rounds_to", "seconds_to", "bytes_to")
PLAIN = (*SCORES, "kappa", "rho", "seconds", "seconds_per_round", "bytes")
LESS = (*REACHED, "seconds", "seconds_per_round", "bytes")  # measures where less is better
WORDS = {
    "final": "accuracy after the last round",
    "best": "best accuracy of any round",
    "curve": "mean accuracy over all rounds",
    "personal": "mean accuracy of the clients' personal models",
    "by_class": "accuracy of every class after the last round",
    "kappa": "accuracy · 10⁴ per second",
    "rho": "accuracy · 10⁴ per MB",
    "seconds": "seconds of all rounds",
    "seconds_per_round": "seconds per round",
    "bytes": "traffic of all rounds",
    "rounds_to": "rounds to reach an accuracy of",
    "seconds_to": "seconds to reach an accuracy of",
    "bytes_to": "traffic to reach an accuracy of",
}
PATTERN = re.compile(r"(?P<name>[a-z_]+)(?:\((?P<at>[0-9.]+)\))?|last(?P<last>[1-9]\d*)|drift\.(?P<drift>\w+)")


@dataclass(frozen=True)
class Measure:
    """A measure such as ``last5``, ``rounds_to(0.6)`` or ``drift.cosine``.

    Attributes:
        name: Its name, without the target.
        at: The accuracy to reach, for measures that have a target.
        last: The number of last rounds that it averages; 0 for other measures.
    """

    name: str
    at: float | None = None
    last: int = 0

    @classmethod
    def parse(cls, text: str, where: str) -> Measure:
        """Read a measure; ``where`` is the place that an error names."""
        match = PATTERN.fullmatch(text)
        if match and match["drift"]:
            return cls(text)
        if match and match["last"]:
            return cls(text, last=int(match["last"]))
        name = match["name"] if match else ""
        at = float(match["at"]) if match and match["at"] else None
        if not match or (name in REACHED) != (at is not None) or name not in (*PLAIN, *REACHED):
            known = ", ".join((*PLAIN, "last5", *(f"{r}(0.6)" for r in REACHED), "drift.<name>"))
            raise HoldfastError(f"{where}: unknown measure {text!r}; known: {known}")
        return cls(name, at)

    def __str__(self) -> str:
        return self.name if self.at is None else f"{self.name}({self.at:g})"

    @property
    def words(self) -> str:
        """What it measures, for people.

        >>> Measure("last5", last=5).words, Measure("rounds_to", 0.6).words, Measure("drift.cosine").words
        ('mean accuracy of the last 5 rounds', 'rounds to reach an accuracy of 60%', 'drift, cosine')
        """
        if self.last:
            return f"mean accuracy of the last {self.last} rounds"
        words = WORDS.get(self.name, self.name.replace(".", ", "))
        return words if self.at is None else f"{words} {100 * self.at:g}%"

    def words_in(self, rounds: int) -> str:
        """Return what it measures in a run with this number of rounds."""
        return self.words if self.last <= rounds else WORDS["curve"]

    @property
    def less_is_better(self) -> bool:
        """Whether lower numbers are better."""
        return self.name in LESS

    def value(self, run: StoredRun) -> float | None:
        """Return this number for a finished run; None for never. ``by_class`` gives the mean over the classes."""
        s = run.summary
        if self.at is not None:
            return reach(run.history, self.at)[REACHED.index(self.name)]
        if self.name.startswith("drift."):
            figures = [line["drift"] for line in run.history if line.get("drift")]
            value = figures[-1].get(self.name.removeprefix("drift.")) if figures else None
        elif self.last or self.name == "curve":
            value = mean_accuracy(run.history, self.last)
        elif self.name == "by_class":
            value = statistics.fmean(a for a in s["accuracy_by_class"] if a is not None)
        elif self.name == "seconds_per_round":
            value = s["seconds"] / s["rounds"]
        elif self.name == "bytes":
            value = run.traffic
        elif self.name == "personal":
            value = s.get("personal_accuracy")
        else:
            value = s.get(self.name)
        return None if value is None else float(value)

    def scaled(self, value: float | None, unit: str) -> float | None:
        """Return a value in the unit of the published number."""
        if value is None:
            return None
        if (self.name in SCORES or self.last) and unit == "%":
            return 100 * value
        return value / 1e6 if self.name in ("bytes", "bytes_to") and unit == "MB" else value


def mean_accuracy(history: Sequence[dict[str, Any]], last: int) -> float | None:
    """Return the mean accuracy of the last evaluated rounds; 0 means all of them."""
    scores = [line["test"]["accuracy"] for line in history if line["test"]]
    return statistics.fmean(scores[-last:]) if scores else None


def over_seeds(measure: Measure, runs: Sequence[StoredRun], unit: str) -> Spread:
    """Return what some runs measured.

    Args:
        measure: What to measure.
        runs: The runs, one per seed.
        unit: The unit of the published number.

    Returns:
        The values in this unit; the mean is None where a run never reaches the target.
    """
    return spread([measure.scaled(measure.value(run), unit) for run in runs])


def classes_over_seeds(measure: Measure, runs: Sequence[StoredRun], unit: str) -> list[float]:
    """Return the accuracy of every class; the arguments are those of ``over_seeds``. Empty for other measures."""
    if measure.name != "by_class":
        return []
    columns = zip(*(run.summary["accuracy_by_class"] for run in runs), strict=True)
    means = [spread(column).mean for column in columns]
    return [value for value in (measure.scaled(mean, unit) for mean in means) if value is not None]
