"""Find named things by importing the folder they live in, so that a new one is one new file and no list to edit."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import TypeVar

from holdfast.core.params import Named

T = TypeVar("T", bound=Named)


def discover(package: str, base: type[T]) -> dict[str, type[T]]:
    """Import the modules of ``package`` and return every named subclass of ``base``, user-defined ones included.

    Modules with a leading underscore are helpers and are left alone. A class without a ``name`` of its own is abstract.
    """
    import_modules(package)
    return {cls.name: cls for cls in subclasses(base) if vars(cls).get("name")}


@cache
def import_modules(package: str) -> None:
    """Import the modules of a package, once in a process: it takes longer than many of the lookups that need it."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")


def subclasses(cls: type[T]) -> Iterator[type[T]]:
    """Yield the subclasses of a class, and theirs."""
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)
