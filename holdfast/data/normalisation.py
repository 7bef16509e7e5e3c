"""Where the mean and standard deviation come from that normalise inputs, and how a choice becomes numbers."""

from __future__ import annotations

PUBLISHED, FEDERATED, POOLED, OFF = "published", "federated", "pooled", "off"
CHOICES = (PUBLISHED, FEDERATED, POOLED, OFF)
RENAMED = {"computed": POOLED}  # what earlier versions called a choice
DOC = (
    "mean and standard deviation per channel: published, federated (from sums of the clients' training samples), "
    "pooled (of all training samples, simulation only) or off"
)
