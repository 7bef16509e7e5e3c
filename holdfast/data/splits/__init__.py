"""The splits: one way to deal samples to clients per file, such as ``iid``, ``dirichlet(0.3)`` and ``shards(2)``.

To add a split, add a file: it is found by itself. Files with a leading underscore are helpers. A split may import
``holdfast.data.split`` (the contract), ``holdfast.data.count_tables``, ``holdfast.data.deal`` and ``holdfast.core``.
"""

from holdfast.data.deal import ClientNoise, Deal
from holdfast.data.split import FeatureSplit, LabelSplit, OwnerSplit, SizeSplit, Split
from holdfast.data.split_sum import SplitSum, deal, read, splits, total

__all__ = [
    "ClientNoise",
    "Deal",
    "FeatureSplit",
    "LabelSplit",
    "OwnerSplit",
    "SizeSplit",
    "Split",
    "SplitSum",
    "deal",
    "read",
    "splits",
    "total",
]
