"""Hugging Face data sets of texts, tables and images: the real library where it is installed, and look-alikes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.data.user_datasets import from_huggingface

TWEETS = ["good day", "bad", "good", "bad day", "so good", "so bad", "good good", "bad bad"]
MOODS = [1, 0, 1, 0, 1, 0, 1, 0]
WHO = ["ann", "bob", "ann", "bob", "ann", "bob", "ann", "bob"]
LINES = {"text": ["to be or not to be", "my lord", "good my lord", "to be"], "speaker": ["H", "O", "O", "H"]}


class Rows:
    """What from_huggingface uses of a Dataset."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns, self.column_names, self.features = columns, list(columns), None

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True))


def real(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


KINDS = pytest.mark.parametrize("made", [Rows, real], ids=["look-alike", "real"])


@KINDS
def test_texts_and_their_labels(made: Any) -> None:
    train = made({"tweet": TWEETS, "mood": MOODS, "user": WHO})
    test = made({"tweet": ["zgood", "day so bad"], "mood": [1, 0], "user": ["bob", "ann"]})
    data = from_huggingface({"train": train, "test": test}, text="tweet", label="mood", client="user", length=6)
    known = ["<unknown>", *sorted(set("".join(TWEETS)))]
    assert data.vocabulary is not None
    assert data.vocabulary.tokens == tuple(known)

    def row(text: str) -> list[int]:
        tokens = [known.index(c) if c in known else 0 for c in text][-6:]
        return [0] * (6 - len(tokens)) + tokens

    assert data.x.tolist() == [row(t) for t in TWEETS]
    assert data.test_x.tolist() == [row("zgood"), row("day so bad")]
    assert (data.y.tolist(), data.classes, data.mean) == (MOODS, ("0", "1"), ())
    assert data.groups is not None
    assert data.test_groups is not None
    assert data.groups.tolist() == [0, 1] * 4
    assert data.test_groups.tolist() == [1, 0]
    federation = holdfast.federate(data, "given", clients=2)
    result = holdfast.run("fedavg", federation, model="lstm(hidden=4)", rounds=1, cohort=2)
    assert result.predict(["so good", "bad"]).shape == (2,)
    assert {*result.predict("so good")} <= {"0", "1"}


@KINDS
def test_texts_that_go_on(made: Any) -> None:
    data = from_huggingface(
        {"train": made(LINES), "test": made({"text": ["my be"], "speaker": ["O"]})},
        text="text", client="speaker", predict="next-token", length=5,
    )  # fmt: skip
    same = holdfast.from_text(
        {"H": ["to be or not to be", "to be"], "O": ["my lord", "good my lord"]}, {"O": "my be"}, predict="next-token",
        length=5,
    )  # fmt: skip
    assert torch.equal(data.x, same.x)
    assert torch.equal(data.y, same.y)
    assert data.clients == ("H", "O")
    assert data.test_groups is not None
    assert data.test_groups.unique().tolist() == [1]
    alone = from_huggingface(made(LINES), text="text", predict="next-character", length=2, share=0.4)
    assert (alone.groups, alone.test_groups, alone.clients) == (None, None, ())
    assert alone.task.name == "classification"


def test_a_tokenizer_of_words() -> None:
    numbers = {"to": 1, "be": 2, "or": 3, "not": 4}

    def tokenizer(text: str) -> list[int]:
        return [numbers.get(word, 0) for word in text.split()]

    data = from_huggingface(
        Rows(LINES),
        Rows({"text": ["to be"]}),
        text="text",
        predict="next-token",
        length=4,
        tokenizer=tokenizer,
        tokens=5,
    )
    assert data.x.tolist() == [[1, 2, 3, 4], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert data.y[0].tolist() == [2, 3, 4, 1]
    labelled = from_huggingface(
        Rows({"text": TWEETS, "label": MOODS}), text="text", length=2, tokenizer=tokenizer, tokens=5, share=0.25
    )
    assert labelled.x.tolist() == [[0, 0]] * 6
    assert labelled.vocabulary is not None
    assert not labelled.vocabulary.characters


@KINDS
def test_tables_of_numbers(made: Any) -> None:
    columns = {"age": [30, 41, 52, 63], "bmi": [20.5, 31.0, 24.5, 28.0], "smokes": [True, False, True, False],
               "ill": ["yes", "no", "yes", "no"], "city": ["Rome", "Bern", "Rome", "Bern"]}  # fmt: skip
    table = made(columns)
    data = from_huggingface(table, table, columns=["age", "bmi", "smokes"], label="ill", client="city")
    rows = [[30, 20.5, 1], [41, 31, 0], [52, 24.5, 1], [63, 28, 0]]
    np.testing.assert_array_equal(data.x, np.array(rows, np.float32))
    assert data.classes == ("no", "yes")
    assert data.groups is not None
    assert data.groups.tolist() == [1, 0, 1, 0]
    with pytest.raises(holdfast.HoldfastError) as caught:
        from_huggingface(table, table, columns=["age", "city"], label="ill")
    assert str(caught.value) == (
        "column 'city' of the data set must have one number per row, not <U4 [4]; leave it out, or use "
        "holdfast.from_dataframe(dataset, ...), which reads categories too"
    )


def test_images_of_the_real_library() -> None:
    datasets = pytest.importorskip("datasets")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    from PIL import Image

    rows = {"image": [Image.fromarray(p) for p in pixels], "label": [0, 1] * 3}
    table = datasets.Dataset.from_dict(rows, features=features)
    data = from_huggingface(datasets.DatasetDict({"train": table, "test": table}))
    assert np.array_equal(data.x, pixels.transpose(0, 3, 1, 2))
    assert data.classes == ("cat", "dog")


def test_what_is_wrong_is_named() -> None:
    with raises_exactly("unknown column 'txt' of the data set; did you mean text?"):
        from_huggingface(Rows(LINES), text="txt", predict="next-token")
    with raises_exactly("text 0 of the data set is of type int, expected a string; name a column of texts"):
        from_huggingface(Rows({"text": [1, 2]}), text="text", predict="next-token")
    with raises_exactly("the test texts have no column of clients, but the training texts do; add it, or leave it out"):
        from_huggingface(Rows(LINES), Rows({"text": ["a"]}), text="text", client="speaker", predict="next-token")
    with raises_exactly("length must be a whole number of at least 1, not 0"):
        from_huggingface(Rows({"text": TWEETS, "label": MOODS}), text="text", length=0)
    with raises_exactly("columns must be the name of a column, or several of them, not []; name columns"):
        from_huggingface(Rows(LINES), columns=[])
