"""What happened in one round."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RoundRecord:
    """One round of a run. Accuracies are fractions of 1; they are None in rounds without evaluation."""

    round: int
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    seconds: float
    upload_bytes: int
    download_bytes: int
    cohort: list[int]
    skipped: list[int] = field(default_factory=list)  # clients whose update was not finite
    drift: dict[str, float] = field(default_factory=dict)  # with --drift, in evaluated rounds
    # Only on several machines:
    failed: dict[int, str] = field(default_factory=dict)  # clients that did not return an update, and why
    reset: list[int] = field(default_factory=list)  # clients whose parts had lost their state and started over
    waiting: float | None = None  # seconds of the round spent waiting for other machines
    overhead: float | None = None  # seconds of our own code besides training: the server's and the slowest node's
