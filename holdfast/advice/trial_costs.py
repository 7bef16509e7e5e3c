"""What trials have cost in time, on disk: a race that is started again must decide by the same figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically

COSTS = "costs.json"  # in the folder of the race


@dataclass
class TrialCosts:
    """Seconds of each trial, by the name of its folder.

    The time of trials that were carried out together is what passed on the clock, with all that surrounds training:
    starting runs and workers, evaluation, checkpoints. It is shared out in proportion to their seconds of training.

    Attributes:
        folder: The folder of the race.
        known: What is on disk.
    """

    folder: Path
    known: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = self.folder / COSTS
        if not path.exists():
            return
        try:
            self.known = {str(name): float(cost) for name, cost in json.loads(path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise HoldfastError(f"{path} is damaged: start the race over with --overwrite") from error

    def share_out(self, passed: float, training: Mapping[str, float]) -> None:
        """Note what trials cost that were carried out together.

        Args:
            passed: The seconds that passed.
            training: The seconds of training of each of them.
        """
        total = sum(training.values())
        if total > 0:
            self.known |= {name: passed * own / total for name, own in training.items()}
            write_atomically(self.folder / COSTS, json.dumps(self.known, indent=1) + "\n")

    def of(self, name: str, training: float) -> float:
        """Return what a trial cost; its seconds of training if nobody looked at the clock to its end."""
        return self.known.get(name, training)
