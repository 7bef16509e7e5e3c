"""What happened in one round."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class RoundRecord:
    """One round of a run. Scores are by the names of the metrics; accuracies are fractions of 1.

    Scores are empty in rounds without evaluation, and None where a metric is not defined.
    """

    round: int
    train_loss: float | None
    seconds: float
    upload_bytes: int
    download_bytes: int
    cohort: list[int]
    test: dict[str, float | None] = field(default_factory=dict)  # scores on the test data
    validation: dict[str, float | None] = field(default_factory=dict)  # on the validation data
    clients: dict[str, float | None] = field(default_factory=dict)  # over clients, with --client-eval
    skipped: list[int] = field(default_factory=list)  # clients whose update was not finite
    far: dict[int, float] = field(default_factory=dict)  # clients with long updates, in median lengths of the round
    drift: dict[str, float] = field(default_factory=dict)  # with --drift, in evaluated rounds
    epsilon: float | None = None  # with dp, in evaluated rounds: what the models reveal so far
    # Only with client speeds:
    virtual_seconds: float | None = None  # of the round on the virtual clock, with the time in which nobody was there
    away: int = 0  # how many clients with samples were not there to be drawn
    late: list[int] = field(default_factory=list)  # clients of the cohort whose work is missing since they were late
    shortened: list[int] = field(default_factory=list)  # clients that stopped early, to be in time
    # Only on several machines:
    failed: dict[int, str] = field(default_factory=dict)  # clients that did not return an update, and why
    reset: list[int] = field(default_factory=list)  # clients whose parts had lost their state and started over
    waiting: float | None = None  # seconds of the round spent waiting for other machines
    overhead: float | None = None  # seconds of our own code besides training: the server's and the slowest node's

    def flat(self) -> dict[str, Any]:
        """Return the record with every score and every measure of drift as an entry, such as ``test_accuracy``."""
        values = asdict(self)
        groups = {kind: values.pop(kind) for kind in ("test", "validation", "clients", "drift")}
        return values | {f"{kind}_{name}": v for kind, found in groups.items() for name, v in found.items()}

    @property
    def trained(self) -> bool:
        """Whether anybody's work arrived."""
        return len(self.cohort) > len(self.late)

    @property
    def test_accuracy(self) -> float | None:
        """The accuracy on the test data, where it was measured."""
        return self.test.get("accuracy")

    @property
    def test_loss(self) -> float | None:
        """The loss on the test data, where it was measured."""
        return self.test.get("loss")
