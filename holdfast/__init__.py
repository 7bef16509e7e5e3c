"""Holdfast keeps federated learning from drifting: methods for non-IID data, as parts that add up."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.core.version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.advice.advise import Advice, advise
    from holdfast.comparison.compare import Comparison, compare
    from holdfast.core.errors import HoldfastError
    from holdfast.core.params import param
    from holdfast.data.batch import Batch
    from holdfast.data.client_files import client_files
    from holdfast.data.dataset import DataSet
    from holdfast.data.federation import Federation, federate
    from holdfast.data.sources import load
    from holdfast.data.user_arrays import from_arrays, from_clients
    from holdfast.data.user_datasets import from_dataset, from_huggingface
    from holdfast.data.user_leaf import from_leaf
    from holdfast.data.user_tables import from_csv, from_dataframe, from_parquet
    from holdfast.data.user_text import from_text
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.method.part import Client, Part, Round, Tensors, Trip
    from holdfast.metrics.metric import Metric
    from holdfast.metrics.predictions import Predictions
    from holdfast.models.groupnorm import to_groupnorm
    from holdfast.models.net import Net, Out
    from holdfast.reports.page import report
    from holdfast.runs.load_run import load_run
    from holdfast.runs.run import run
    from holdfast.runs.run_result import Result
    from holdfast.tasks.classification import Classification
    from holdfast.tasks.multilabel import Multilabel
    from holdfast.tasks.next_token import NextToken
    from holdfast.tasks.regression import Regression
    from holdfast.tasks.task import Task
    from holdfast.tuning.tune import Tuning, tune

# Where each public name lives. They are imported when first used, so that the command line starts at once.
_HOMES = {
    "holdfast.advice.advise": ("Advice", "advise"),
    "holdfast.comparison.compare": ("Comparison", "compare"),
    "holdfast.method.config": ("Config",),
    "holdfast.data.batch": ("Batch",),
    "holdfast.data.client_files": ("client_files",),
    "holdfast.data.dataset": ("DataSet",),
    "holdfast.data.federation": ("Federation", "federate"),
    "holdfast.data.sources": ("load",),
    "holdfast.data.user_arrays": ("from_arrays", "from_clients"),
    "holdfast.data.user_datasets": ("from_dataset", "from_huggingface"),
    "holdfast.data.user_tables": ("from_csv", "from_dataframe", "from_parquet"),
    "holdfast.data.user_leaf": ("from_leaf",),
    "holdfast.data.user_text": ("from_text",),
    "holdfast.core.errors": ("HoldfastError",),
    "holdfast.method.method": ("Method",),
    "holdfast.metrics.metric": ("Metric",),
    "holdfast.metrics.predictions": ("Predictions",),
    "holdfast.models.groupnorm": ("to_groupnorm",),
    "holdfast.models.net": ("Net", "Out"),
    "holdfast.core.params": ("param",),
    "holdfast.method.part": ("Client", "Part", "Round", "Tensors", "Trip"),
    "holdfast.reports.page": ("report",),
    "holdfast.runs.load_run": ("load_run",),
    "holdfast.runs.run": ("run",),
    "holdfast.runs.run_result": ("Result",),
    "holdfast.tasks.classification": ("Classification",),
    "holdfast.tasks.multilabel": ("Multilabel",),
    "holdfast.tasks.next_token": ("NextToken",),
    "holdfast.tasks.regression": ("Regression",),
    "holdfast.tasks.task": ("Task",),
    "holdfast.tuning.tune": ("Tuning", "tune"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - as a reader meets them
    "run", "Result", "load_run", "compare", "Comparison", "tune", "Tuning", "advise", "Advice", "report", "Config",
    "federate", "Federation", "load", "DataSet", "from_arrays", "from_clients", "client_files", "from_dataset",
    "from_huggingface", "from_csv", "from_parquet", "from_dataframe", "from_leaf", "from_text", "Method", "Part",
    "param", "Client", "Batch", "Round", "Trip", "Tensors", "Net", "Out", "to_groupnorm", "Task", "Classification",
    "Multilabel", "Regression", "NextToken",
    "Metric", "Predictions", "HoldfastError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
