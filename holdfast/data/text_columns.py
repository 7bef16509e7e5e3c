"""Texts in the column of a table: to predict a label, or how the texts go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import numbered
from holdfast.data.dataset import DataSet
from holdfast.data.user_arrays import from_arrays
from holdfast.data.user_text import check_whole, from_text, tokens_of
from holdfast.data.vocabulary import padded

Column = Sequence[Any]


def continued_texts(
    texts: Column, test: Column | None, clients: Column | None, test_clients: Column | None, options: Mapping[str, Any]
) -> DataSet:
    """Make a data set that predicts how texts go on.

    Args:
        texts: The training texts.
        test: The test texts; None: the last part of every training text.
        clients: The client of every training text; None: they have none.
        test_clients: The client of every test text; None: they have none.
        options: Those of ``from_text``.

    Returns:
        The data set.
    """
    held = None if test is None else _by_client(test, test_clients if clients is not None else None)
    if held is not None and clients is not None and test_clients is None:
        raise HoldfastError(
            "the test texts have no column of clients, but the training texts do; add it, or leave it out"
        )
    data = from_text(_by_client(texts, clients), held, **options)
    return data if clients is not None else replace(data, groups=None, test_groups=None, clients=())


def labelled_texts(
    texts: Column,
    y: Column,
    test: Column | None,
    test_y: Column | None,
    *,
    length: int = 80,
    vocabulary: str | None = None,
    tokenizer: Any = None,
    tokens: int | None = None,
    **options: Any,
) -> DataSet:
    """Make a data set that predicts the labels of texts.

    Args:
        texts: The training texts.
        y: Their labels.
        test: The test texts, if any.
        test_y: Their labels.
        length: The tokens of a sample: the last ones of a text; shorter texts begin with token 0.
        vocabulary: The characters, as in ``from_text``.
        tokenizer: Used in place of characters, as in ``from_text``.
        tokens: How many tokens the tokenizer has.
        options: Those of ``from_arrays``.

    Returns:
        The data set.
    """
    check_whole("length", length)
    _check_texts(texts)
    _check_texts(test or ())
    encode, known = tokens_of(texts, vocabulary, tokenizer, tokens)
    x, test_x = (None if rows is None else padded([encode(text) for text in rows], length) for rows in (texts, test))
    data = from_arrays(x, y, test_x, test_y, **{"normalise": False, **options})
    return replace(data, vocabulary=known)


def _by_client(texts: Column, clients: Column | None) -> dict[str, list[str]]:
    """Return the texts of every client, in the order of their names."""
    _check_texts(texts)
    if clients is None:
        return {"all": list(texts)}
    numbers, names = numbered("clients", clients)
    found: dict[str, list[str]] = {name: [] for name in names}
    for number, text in zip(numbers.tolist(), texts, strict=True):
        found[names[number]].append(text)
    return found


def _check_texts(texts: Column) -> None:
    odd = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if odd is not None:
        kind = type(texts[odd]).__name__
        raise HoldfastError(f"text {odd} of the data set is of type {kind}, expected a string; name a column of texts")
