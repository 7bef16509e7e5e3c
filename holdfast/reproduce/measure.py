"""What a table measures: one number of a run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.comparison.stats import reach, spread
from holdfast.comparison.stored_run import StoredRun
from holdfast.core.errors import HoldfastError

ACCURACIES = {"final": "final_accuracy", "best": "best_accuracy"}
SCORES = (*ACCURACIES, "curve", "personal", "by_class")  # fractions of 1, published in percent
REACHED = ("rounds_to", "seconds_to", "bytes_to")
PLAIN = (*SCORES, "kappa", "rho", "seconds", "seconds_per_round", "bytes")
LESS = (*REACHED, "seconds", "seconds_per_round", "bytes")  # where less is better
SAID = {
    "final": "accuracy after the last round",
    "best": "best accuracy of any round",
    "curve": "mean accuracy over all rounds",
    "personal": "mean accuracy of the clients' own copies",
    "by_class": "accuracy in every class after the last round",
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
    """Such as ``last5``, ``rounds_to(0.6)`` or ``drift.cosine``."""

    name: str
    at: float | None = None
    last: int = 0  # of how many last rounds it is the mean

    @classmethod
    def parse(cls, text: str, where: str) -> Measure:
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
        """For people.

        >>> Measure("last5", last=5).words, Measure("rounds_to", 0.6).words, Measure("drift.cosine").words
        ('mean accuracy of the last 5 rounds', 'rounds to reach an accuracy of 60%', 'drift, cosine')
        """
        if self.last:
            return f"mean accuracy of the last {self.last} rounds"
        said = SAID.get(self.name, self.name.replace(".", ", "))
        return said if self.at is None else f"{said} {100 * self.at:g}%"

    def words_in(self, rounds: int) -> str:
        """For people, of a run of so many rounds."""
        return self.words if self.last <= rounds else SAID["curve"]

    @property
    def less_is_better(self) -> bool:
        return self.name in LESS

    def value(self, run: StoredRun) -> float | None:
        """This number of a finished run; None for never. ``by_class`` is the mean over the classes."""
        s = run.summary
        if self.at is not None:
            return reach(run.history, self.at)[REACHED.index(self.name)]
        if self.name.startswith("drift."):
            figures = [line["drift"] for line in run.history if line.get("drift")]
            found = figures[-1].get(self.name.removeprefix("drift.")) if figures else None
        elif self.last or self.name == "curve":
            found = mean_accuracy(run.history, self.last)
        elif self.name == "by_class":
            found = statistics.fmean(a for a in s["accuracy_by_class"] if a is not None)
        elif self.name == "seconds_per_round":
            found = s["seconds"] / s["rounds"]
        elif self.name == "bytes":
            found = run.traffic
        elif self.name == "personal":
            found = s.get("personal_accuracy")
        else:
            found = s.get(ACCURACIES.get(self.name, self.name))
        return None if found is None else float(found)

    def scaled(self, value: float | None, unit: str) -> float | None:
        """In the unit of the published number."""
        if value is None:
            return None
        if (self.name in SCORES or self.last) and unit == "%":
            return 100 * value
        return value / 1e6 if self.name in ("bytes", "bytes_to") and unit == "MB" else value


def mean_accuracy(history: Sequence[dict[str, Any]], last: int) -> float | None:
    """Over so many of the last rounds that were evaluated; 0 is all of them."""
    scores = [line["test_accuracy"] for line in history if line["test_accuracy"] is not None]
    return statistics.fmean(scores[-last:]) if scores else None


def over_seeds(measure: Measure, runs: Sequence[StoredRun], unit: str) -> dict[str, Any]:
    """Mean, deviation and values over runs; the mean is None where a run never reaches the target."""
    return asdict(spread([measure.scaled(measure.value(run), unit) for run in runs]))


def classes_over_seeds(measure: Measure, runs: Sequence[StoredRun], unit: str) -> list[float]:
    """The accuracy in every tested class, in the mean over runs; empty for other measures."""
    if measure.name != "by_class":
        return []
    columns = zip(*(run.summary["accuracy_by_class"] for run in runs), strict=True)
    means = [spread(column).mean for column in columns]
    return [value for value in (measure.scaled(mean, unit) for mean in means) if value is not None]
