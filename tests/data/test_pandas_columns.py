"""Columns of pandas as targets and groups: texts, booleans, categories and nullable types, wherever arrays go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.exact_errors import raises_exactly
from holdfast.data.user_arrays import from_arrays, from_clients
from holdfast.data.user_datasets import from_dataset, from_huggingface

X = np.arange(12.0)[:, None]
WORDS = ["dog", "cat", "cat"] * 4
TRUTHS = [True, False, False] * 4
NUMBERS = [1, 0, 0] * 4

TEXTS = {
    "str": pd.Series(WORDS),
    "object": pd.Series(WORDS, dtype=object),
    "string": pd.Series(WORDS, dtype="string"),
    "pyarrow": pd.Series(WORDS, dtype="string[pyarrow]"),
    "category": pd.Series(WORDS, dtype="category"),
    "index": pd.Index(WORDS),
    "frame": pd.DataFrame({"y": WORDS}),
    "array of objects": np.array(WORDS, object),
    "array of strings": np.array(WORDS, np.dtypes.StringDType()),
}
BOOLEANS = {
    "list": TRUTHS,
    "bool": pd.Series(TRUTHS),
    "boolean": pd.Series(TRUTHS, dtype="boolean"),
    "object": pd.Series(TRUTHS, dtype=object),
    "category": pd.Series(TRUTHS, dtype="category"),
    "tensor": torch.tensor(TRUTHS),
}
INTEGERS = {
    "Int64": pd.Series(NUMBERS, dtype="Int64"),
    "pyarrow": pd.Series(NUMBERS, dtype="int64[pyarrow]"),
    "object": pd.Series(NUMBERS, dtype=object),
    "category": pd.Series(NUMBERS, dtype="category"),
}


@pytest.mark.parametrize("y", TEXTS.values(), ids=TEXTS)
def test_texts(y: Any) -> None:
    data = from_arrays(X, y, X, y, groups=y)
    assert data.groups is not None
    assert (data.classes, data.y.tolist()) == (("cat", "dog"), NUMBERS)
    assert (data.test_y.tolist(), data.groups.tolist()) == (NUMBERS, NUMBERS)


@pytest.mark.parametrize("y", BOOLEANS.values(), ids=BOOLEANS)
def test_booleans_are_two_classes(y: Any) -> None:
    data = from_arrays(X, y, X, y, groups=y)
    assert data.groups is not None
    assert (data.task.name, data.classes, data.y.tolist()) == ("classification", ("False", "True"), NUMBERS)
    assert (data.test_y.tolist(), data.groups.tolist()) == (NUMBERS, NUMBERS)
    assert from_arrays(X, y, classes=["well", "ill"]).classes == ("well", "ill")


def test_one_value_of_a_boolean_has_two_classes_too() -> None:
    data = from_arrays(X, [True] * 12)
    assert (data.classes, data.y.unique().tolist()) == (("False", "True"), [1])


@pytest.mark.parametrize("y", INTEGERS.values(), ids=INTEGERS)
def test_nullable_integers(y: Any) -> None:
    data = from_arrays(X, y, X, y, groups=y)
    assert (data.classes, data.y.tolist(), data.test_y.tolist()) == (("0", "1"), NUMBERS, NUMBERS)


def test_several_columns() -> None:
    y = pd.DataFrame({"a": TRUTHS, "b": TRUTHS[::-1]}).astype("boolean")
    data = from_arrays(X, y)
    assert (data.task.name, tuple(data.y.shape)) == ("multilabel", (len(data.y), 2))
    wide = from_clients([(X, y), (X, y)], (X, y))
    assert torch.equal(wide.y[:12], wide.y[12:])
    assert wide.y[:12].tolist() == y.to_numpy(float).tolist()


def test_clients_torch_and_hugging_face() -> None:
    y = TEXTS["str"]
    data = from_clients({"ann": (X, y), "bob": (X, TEXTS["category"])}, (X, y))
    assert (data.classes, data.y.tolist()) == (("cat", "dog"), NUMBERS * 2)
    data = from_clients([(X, BOOLEANS["boolean"]), (X, BOOLEANS["object"])], (X, y == "dog"))
    assert (data.classes, data.y.tolist()) == (("False", "True"), NUMBERS * 2)

    class Rows(list):  # type: ignore[type-arg]
        """As much of a Hugging Face data set as is needed."""

        column_names = ("image", "label", "who")

        def __getitem__(self, key: Any) -> Any:
            return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)

    rows = Rows({"image": [i, 0], "label": t, "who": w} for i, (t, w) in enumerate(zip(TRUTHS, WORDS, strict=True)))
    data = from_huggingface(rows, rows, client="who")
    assert data.groups is not None
    assert (data.classes, data.y.tolist(), data.groups.tolist()) == (("False", "True"), NUMBERS, NUMBERS)
    pairs = [(np.ones(2), word) for word in WORDS]
    assert from_dataset(pairs, pairs).y.tolist() == NUMBERS


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([*WORDS[:7], None, *WORDS[8:]]),
        pd.Series([*WORDS[:7], None, *WORDS[8:]], dtype="string"),
        pd.Series([*WORDS[:7], None, *WORDS[8:]], dtype="category"),
        pd.Series([*TRUTHS[:7], None, *TRUTHS[8:]], dtype="boolean"),
        pd.Series([*NUMBERS[:7], None, *NUMBERS[8:]], dtype="Int64"),
        [*map(float, NUMBERS[:7]), float("nan"), *map(float, NUMBERS[8:])],
    ],
)
def test_a_missing_value_is_named(values: Any) -> None:
    with raises_exactly("y has no value in sample 7; fill it in, or leave the sample out"):
        from_arrays(X, values)
    with raises_exactly("groups has no value in sample 7; fill it in, or leave the sample out"):
        from_arrays(X, NUMBERS, groups=values)


def test_values_of_two_types_are_named() -> None:
    with raises_exactly("y has both 'dog' and 3; give values of one type"):
        from_arrays(X, pd.Series([*WORDS[:11], 3], dtype=object))
    with raises_exactly("groups has both True and 2; give values of one type"):
        from_arrays(X, NUMBERS, groups=pd.Series([*TRUTHS[:11], 2], dtype=object))
    with raises_exactly("y must be one value per sample, not object [12]; give a flat list"):
        from_arrays(X, np.array([{}] * 12))
