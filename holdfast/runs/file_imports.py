"""Execute the files that a run imports, so that what they define is known by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.core.discovery import subclasses
from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named
from holdfast.core.user_files import import_file
from holdfast.data import loading
from holdfast.data.source import Source
from holdfast.data.split import Split
from holdfast.data.split_sum import splits
from holdfast.method.config import Config
from holdfast.method.part import Part, parts
from holdfast.method.recipes import RECIPES
from holdfast.metrics.metric import Metric
from holdfast.metrics.metric_names import metrics
from holdfast.models.zoo import Model, models
from holdfast.runs.code_files import NAMING, listed, located, recorded

FAMILIES: dict[str, tuple[type[Named], Callable[[], Mapping[str, Any]]]] = {
    "part": (Part, parts), "split": (Split, splits), "data set": (Source, loading.sources), "model": (Model, models),
    "metric": (Metric, metrics),
}  # fmt: skip


def import_parts(config: Config) -> None:
    """Execute the files that a config imports, so that parts, splits, models and data sets are known by name."""
    for path in listed(located(config).imports):
        import_named(Path(path))


def with_imports(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Record and import the files that some settings name; return the settings with what was recorded."""
    naming = {name: value for name, value in settings.items() if name in (*NAMING, "files")}
    config = recorded(Config().changed(**naming))
    import_parts(config)
    new = {name: getattr(config, name) for name in naming}
    return {**settings, **new} | ({} if config.files is None else {"files": config.files})


def import_named(path: Path) -> None:
    """Execute a user's file; it must not define again what the library defines."""
    module = import_file(path.expanduser())
    for cls in vars(module).values():
        if isinstance(cls, type) and issubclass(cls, Named) and cls.__module__ == module.__name__ and cls.name:
            _refuse_taken_name(path, cls)


def _refuse_taken_name(path: Path, cls: type[Named]) -> None:
    """Refuse a class of a user's file that has the name of something in the library."""
    for kind, (base, names) in FAMILIES.items():
        taken = {c.name for c in subclasses(base) if c.__module__.startswith("holdfast.")} if names() else set()
        if issubclass(cls, base) and cls.name in taken | ({*RECIPES} if base is Part else set()):
            name, cls.name = cls.name, ""  # so that the library's own keeps its name in this process
            raise HoldfastError(f"{path} defines a {kind} called {name}, which is one of the library: rename it")
