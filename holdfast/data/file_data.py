"""Data sets from a user's function: ``pictures.py:load``.

The function returns a ``DataSet``, or arrays for ``from_arrays``: ``(x, y)`` or ``(x, y, test_x, test_y)``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import FileReference, failure, function_in
from holdfast.data.dataset import DataSet
from holdfast.data.user_arrays import from_arrays


def from_file(reference: FileReference) -> DataSet:
    """Load the data set that a text such as ``pictures.py:load(size=32)`` names."""
    name = f"{Path(reference.file).name}:{reference.call}"
    function = function_in(reference, "data set")
    try:
        found = function()
    except HoldfastError:
        raise
    except Exception as error:
        raise failure(f"the data set {name}", error) from error
    if isinstance(found, DataSet):
        return replace(found, name=name)
    if not isinstance(found, (tuple, list)) or len(found) not in (2, 4):
        raise HoldfastError(
            f"the data set {name} returned {_described(found)}, expected a DataSet, (x, y) or (x, y, test_x, test_y): "
            "return one of these"
        )
    try:
        return from_arrays(*found, name=name)
    except HoldfastError as error:
        raise HoldfastError(f"the data set {name}: {error}") from error


def _described(found: object) -> str:
    if isinstance(found, (tuple, list)):
        return f"{len(found)} value{'s' * (len(found) != 1)}"
    return "None" if found is None else f"a value of type {type(found).__name__}"
