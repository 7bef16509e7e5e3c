"""How data is dealt to clients: ``iid``, ``dirichlet(0.3)``, ``shards(2)``, sums: ``dirichlet(0.5)+noise(0.5)``."""

from holdfast.data.splits.base import Dealer, Split
from holdfast.data.splits.classes import Classes
from holdfast.data.splits.dealt import ClientNoise, Deal
from holdfast.data.splits.dirichlet import Dirichlet
from holdfast.data.splits.given import Given
from holdfast.data.splits.iid import Iid
from holdfast.data.splits.noise import FeatureNoise
from holdfast.data.splits.quantity import Quantity
from holdfast.data.splits.shards import Shards
from holdfast.data.splits.sums import Sum, deal, read, splits, total

__all__ = [
    "Classes",
    "ClientNoise",
    "Deal",
    "Dealer",
    "Dirichlet",
    "FeatureNoise",
    "Given",
    "Iid",
    "Quantity",
    "Shards",
    "Split",
    "Sum",
    "deal",
    "read",
    "splits",
    "total",
]
