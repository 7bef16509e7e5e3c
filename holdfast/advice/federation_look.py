"""A first look at a federation: who holds how much, how different the clients are, and how far they drift apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from holdfast.data import skew
from holdfast.data.federation import Federation

# From where on a figure is called small, moderate or strong. Label skew is a distance in [0, 1]; dealing classes by
# dirichlet(1) gives about 0.3, by dirichlet(0.1) about 0.6. Features are compared with what chance alone would give.
LABELS = (0.1, 0.35)
SIZES = (0.2, 0.5)
FEATURES = (1.5, 3.0)


@dataclass(frozen=True)
class FederationLook:
    """What was seen.

    Attributes:
        clients: The number of clients that have samples.
        cohort: The expected number of clients in a round.
        samples: The fewest, the median and the most samples of a client.
        label_skew: The mean distance of a client's label mix to that of all, from 0 to 1.
        classes: How many equally frequent classes, or strata of the targets, a client's mix amounts to.
        of_classes: How many there are.
        sizes: The Gini coefficient of the clients' sizes.
        features: The distance between the clients' mean features, in units of what chance alone would give; None where
            inputs have no mean.
        agreement: The mean cosine of two clients' updates in FedAvg's first rounds; None if it was not measured.
    """

    clients: int
    cohort: int
    samples: list[int]
    label_skew: float
    classes: float
    of_classes: int
    sizes: float
    features: float | None = None
    agreement: float | None = None

    def vector(self) -> list[float]:
        """Return the figures by which federations are compared, each about 0 to 1."""
        features = 0.0 if self.features is None else min(1.0, max(0.0, self.features - 1) / 4)
        size = min(1.0, math.log10(max(1, self.samples[1])) / 4)
        return [self.label_skew, self.sizes, features, self.cohort / self.clients, size]

    def sentences(self) -> list[str]:
        """Say it in words."""
        fewest, median, most = self.samples
        many = f"{self.clients} clients hold {fewest} to {most} samples, half of them at most {median}"
        labels = level(self.label_skew, LABELS, ("hardly", "moderately", "strongly"))
        mix = f"about {self.classes:.1f} of {self.of_classes}"
        said = [
            f"{many}; {self.cohort} of them take part in a round on average."
            if self.cohort < self.clients
            else f"{many}; all take part in every round.",
            f"Their labels differ {labels}: a client's mix amounts to {mix} equally frequent classes, and "
            f"{self.label_skew:.0%} of its samples would have to change their label to match the mix of all.",
        ]
        sizes = level(self.sizes, SIZES, ("similar", "different", "very different"))
        said.append(f"Their sizes are {sizes} (Gini coefficient {self.sizes:.2f}).")
        if self.features is not None:
            features = level(self.features, FEATURES, ("no further apart than chance explains", "apart", "far apart"))
            labels = "; their different labels are a part of that" if self.label_skew >= LABELS[0] else ""
            said.append(f"Their mean inputs are {features} ({self.features:.1f} times what chance would give{labels}).")
        if self.agreement is not None:
            pull = level(self.agreement, (0.1, 0.5), ("in very different directions", "partly together", "together"))
            said.append(
                f"In the first rounds of FedAvg they pull {pull} (mean cosine of two updates {self.agreement:.2f})."
            )
        return said


def level(value: float, steps: tuple[float, float], words: tuple[str, str, str]) -> str:
    """Return the word for a value below the first step, between both, or above.

    Args:
        value: The value.
        steps: The two steps.
        words: The three words.

    Returns:
        One of them.
    """
    return words[sum(value >= step for step in steps)]


def look(federation: Federation, cohort: int, agreement: float | None = None) -> FederationLook:
    """Look at a federation.

    Args:
        federation: The federation.
        cohort: The expected number of clients in a round.
        agreement: The mean cosine of two clients' updates, if it was measured.

    Returns:
        What was seen.
    """
    federation.need_all_clients("advise")
    x = federation.data.x if hasattr(federation.data.x, "is_floating_point") and not federation.integers else None
    found: dict[str, Any] = skew.figures(federation.deal, federation.strata, len(federation.strata_names), x)
    held = found["samples_per_client"]
    features = None
    if x is not None:
        sizes = federation.deal.sizes[federation.deal.sizes > 0]
        chance = float((1 / sizes**0.5).mean())
        features = found["feature_shift"] / chance
    return FederationLook(
        clients=found["clients"] - found["empty_clients"],
        cohort=cohort,
        samples=[int(held["min"]), int(held["median"]), int(held["max"])],
        label_skew=found["label_skew"],
        classes=found["effective_classes"],
        of_classes=found["classes"],
        sizes=found["gini"],
        features=features,
        agreement=agreement,
    )
