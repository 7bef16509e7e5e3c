"""Holdfast keeps federated learning from drifting: methods for non-IID data, as parts that add up."""

from holdfast.config import Config
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.errors import HoldfastError
from holdfast.method import Method, method
from holdfast.models.net import Net, Out, to_groupnorm
from holdfast.named import param
from holdfast.part import Batch, Client, Part, Round, Tensors, Trip
from holdfast.run import Result, run

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Client",
    "Config",
    "DataSet",
    "Federation",
    "HoldfastError",
    "Method",
    "Net",
    "Out",
    "Part",
    "Result",
    "Round",
    "Tensors",
    "Trip",
    "federate",
    "method",
    "param",
    "run",
    "to_groupnorm",
]
