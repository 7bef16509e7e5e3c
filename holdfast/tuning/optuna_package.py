"""Optuna, which is imported when it is used."""

from __future__ import annotations

from functools import cache
from typing import Any

from holdfast.core.errors import HoldfastError


@cache
def optuna_package() -> Any:
    """Return the package, silent unless something is wrong."""
    try:
        import optuna
    except ImportError as error:
        raise HoldfastError("tune needs the package optuna: pip install 'holdfast[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
