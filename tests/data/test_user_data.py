"""Your own data: arrays, clients, torch and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from helpers.exact_errors import raises_exactly
from holdfast.core.errors import HoldfastError
from holdfast.data.federation import federate
from holdfast.data.prepare import moments
from holdfast.data.user_arrays import from_arrays, from_clients
from holdfast.data.user_datasets import from_dataset, from_huggingface

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)  # NHWC
LABELS = np.arange(20) % 2


def test_arrays_tensors_and_lists_give_the_same() -> None:
    x = RNG.normal(size=(20, 3))
    kinds = [(x, LABELS), (torch.from_numpy(x), torch.from_numpy(LABELS)), (x.tolist(), LABELS.tolist())]
    for given in (*kinds, (x.astype(">f8")[::-1][::-1], LABELS.astype(np.uint16)[:, None])):
        data = from_arrays(*given, normalise="pooled")
        assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
        assert torch.equal(data.x, from_arrays(x, LABELS).x)
        assert torch.equal(data.y, from_arrays(x, LABELS).y)
    assert (len(data.y), len(data.test_y)) == (16, 4)
    assert (data.mean, data.std) == moments(data.x)


def test_a_given_test_set_is_kept_as_it_is() -> None:
    x = RNG.normal(size=(20, 3)).astype(np.float32)
    data = from_arrays(x[:15], LABELS[:15], x[15:], LABELS[15:], mean=[0, 0, 0], std=[1, 2, 3])
    assert np.array_equal(data.x, x[:15])
    assert np.array_equal(data.test_x, x[15:])
    assert data.std == (1.0, 2.0, 3.0)
    assert from_arrays(x, LABELS, normalise=False).mean == ()


def test_images_get_their_channels_first() -> None:
    first = PIXELS.transpose(0, 3, 1, 2)
    for given in (PIXELS, first):
        data = from_arrays(given, LABELS, given, LABELS)
        assert data.x.dtype == torch.uint8
        assert np.array_equal(data.x, first)
    assert from_arrays(PIXELS[..., 0], LABELS).x.shape[1:] == (1, 6, 5)
    floats = PIXELS.astype(np.float32)
    assert from_arrays(floats, LABELS).x.shape[1:] == (3, 6, 5)
    assert from_arrays(floats, LABELS, channels="first").x.shape[1:] == (6, 5, 3)
    small = np.zeros((4, 3, 3, 3), np.uint8)
    assert from_arrays(small, LABELS[:4]).x.shape[1:] == (3, 3, 3)


def test_the_source_is_not_changed_through_the_data_set() -> None:
    x = np.zeros((4, 2), np.float32)
    x.flags.writeable = False
    from_arrays(x, LABELS[:4], x, LABELS[:4]).x[0] = 7
    assert not x.any()


def test_strings_are_numbered() -> None:
    x = np.zeros((4, 2))
    data = from_arrays(x, ["dog", "cat", "dog", "emu"], x[:1], ["cat"])
    assert data.classes == ("cat", "dog", "emu")
    assert data.y.tolist() == [1, 0, 1, 2]
    assert data.test_y.tolist() == [0]
    with pytest.raises(HoldfastError, match="unknown class 'cow' in test_y; known: cat, dog, emu"):
        from_arrays(x, ["dog", "cat", "dog", "emu"], x[:1], ["cow"])
    assert from_arrays(x, ["b", "b", "a", "a"], classes=["b", "a"]).y.unique().tolist() == [0, 1]


BAD = np.zeros((5000, 2))
BAD[4321, 1] = np.nan
BAD[4999] = np.inf


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (BAD, np.zeros(5000, int), "x has 3 NaN or infinite numbers, first in sample 4321; clean it"),
        (np.zeros((3, 2)), [0, 1], "y has 2 entries and x has 3; give one label or group per sample"),
        (np.zeros((0, 2)), [], "x is empty; give at least one sample"),
        (
            np.zeros((2, 0)),
            [0, 1],
            "x has shape [2, 0], so its samples are empty; give samples with at least one number",
        ),
        (np.zeros(3), [0, 1, 0], "x must have at least two axes, such as [n, features], not [3]; reshape it"),
        (
            {"a": np.zeros((3, 2)), "b": np.zeros((2, 2))},
            [0, 1, 0],
            "the inputs in x have 3, 2 samples; give all the same number",
        ),
        ([[1.0], [1.0, 2.0]], [0, 1], "x has samples of different shapes; give all the same shape"),
        ([["a"], ["b"]], [0, 1], "x must be numbers, not <U1; convert it first"),
        (np.zeros((2, 1), complex), [0, 1], "x must be numbers, not complex128; convert it first"),
        (
            torch.zeros(2, 1, dtype=torch.complex64),
            [0, 1],
            "x must be an array of real numbers, not torch.complex64 [2, 1]; convert it first",
        ),
        (
            np.zeros((2, 1)),
            [0.0, 1.0],
            'y has real numbers that are all whole, such as 0: give task="classification" or task="regression"',
        ),
        (np.zeros((2, 1)), [0, -1], "y must be integers from 0 to 2**63 - 1, not -1 to 0; number them from 0"),
        (
            np.zeros((2, 1)),
            [[0, 1], [2, 0]],
            'y has 2 whole numbers per sample, which may be numbers or tokens: give task="regression" or '
            'task="next-token"',
        ),
        (
            np.zeros((2, 1)),
            [[0], [1, 0]],
            "y must be one value per sample, but its entries differ in shape; give a flat list",
        ),
        (
            np.zeros((2, 1)),
            [0, 2**62],
            "a label is 4611686018427387904, but there are only 2 samples; number them from 0, or give classes=",
        ),
        (
            np.zeros((2, 1)),
            np.array([0, 2**63], np.uint64),
            "y must be integers from 0 to 2**63 - 1, not 0 to 9223372036854775808; number them from 0",
        ),
        (np.zeros((2, 1)), [0, 1], "one sample per class leaves nothing to test on; give test_x and test_y"),
    ],
)
def test_what_is_wrong_is_named(x: Any, y: Any, message: str) -> None:
    with raises_exactly(message):
        from_arrays(x, y)


def test_options_that_do_not_fit() -> None:
    x = np.zeros((4, 2))
    y = [0, 0, 1, 1]
    with raises_exactly("only one of test_x and test_y is given; give both or neither"):
        from_arrays(x, y, x)
    with raises_exactly(
        "test_x has samples of torch.float32 [3] and x of torch.float32 [2]; give all the same type and shape"
    ):
        from_arrays(x, y, np.zeros((4, 3)), y)
    with raises_exactly("a label is 1, expected 0 to 0 for 1 classes; fix y or classes"):
        from_arrays(x, y, classes=["one"])
    with raises_exactly("share must be in (0, 1), not 1.0; use one such as 0.2"):
        from_arrays(x, y, share=1.0)
    with raises_exactly(
        "mean and std are [0.0] and [1.0], expected 2 numbers each, one per channel or feature, with std above 0; "
        "leave both out to compute them"
    ):
        from_arrays(x, y, mean=[0.0], std=[1.0])
    with raises_exactly("groups has 3 entries and x has 4; give one label or group per sample"):
        from_arrays(x, y, groups=[1, 2, 3])


# Data that is already federated.


def test_a_column_names_the_client() -> None:
    x = np.arange(20.0)[:, None]
    names = [f"user {i % 3}" for i in range(20)]
    data = from_arrays(x, LABELS, groups=names)
    assert data.groups is not None
    assert [names[int(v)] for v in data.x[:, 0]] == [f"user {g}" for g in data.groups.tolist()]
    assert len(data.groups) == len(data.y) == 16


def test_one_array_per_client() -> None:
    x = np.arange(12.0)[:, None]
    pieces = [(x[:5], LABELS[:5]), (x[:0], LABELS[:0]), (x[5:12], LABELS[5:12])]
    data = from_clients(pieces, (x, LABELS[:12]))
    assert data.groups is not None
    assert data.groups.tolist() == [0] * 5 + [2] * 7
    assert np.array_equal(data.x, x)
    named = from_clients({"ann": pieces[0], "bob": pieces[1], "cy": pieces[2]}, (x, LABELS[:12]))
    assert named.groups is not None
    assert named.groups.tolist() == data.groups.tolist()
    held = from_clients(pieces)
    assert held.groups is not None
    assert len(held.groups) == len(held.y) < 12
    assert [2 if v >= 5 else 0 for v in held.x[:, 0].tolist()] == held.groups.tolist()


def test_clients_that_do_not_fit() -> None:
    x = np.zeros((2, 3))
    with raises_exactly("y of client 1 has 1 entries and x of client 1 has 2; give one label or group per sample"):
        from_clients([(x, [0, 1]), (x, [0])])
    with raises_exactly(
        "x of client bob has samples of torch.float32 [4] and the first of torch.float32 [3]; "
        "give all the same type and shape"
    ):
        from_clients({"ann": (x, [0, 1]), "bob": (np.zeros((2, 4)), [0, 1])})
    with raises_exactly("x of client 1 has 6 NaN or infinite numbers, first in sample 0; clean it"):
        from_clients([(x, [0, 1]), (x * np.nan, [0, 1])])
    with raises_exactly("no client has a sample; give at least one"):
        from_clients([(x[:0], [])])


def test_images_of_clients_are_put_channels_first_once() -> None:
    data = from_clients([(PIXELS[:10], LABELS[:10]), (PIXELS[10:], LABELS[10:])], (PIXELS, LABELS))
    assert np.array_equal(data.x, PIXELS.transpose(0, 3, 1, 2))
    assert torch.equal(data.x, data.test_x)


# Torch data sets.


class Pictures(Dataset[tuple[Any, Any]]):
    """PIL images with labels, as torchvision gives them."""

    def __init__(self, modes: list[str], size: tuple[int, int] = (5, 6)) -> None:
        self.images = [Image.fromarray(p).resize(size).convert(m) for p, m in zip(PIXELS, modes, strict=False)]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.images[i], i % 2


def test_a_torch_dataset() -> None:
    x = torch.randn(20, 1, 4, 4)
    data = from_dataset(TensorDataset(x, torch.from_numpy(LABELS)), TensorDataset(x[:6], torch.from_numpy(LABELS[:6])))
    assert torch.equal(data.x, x)
    assert torch.equal(data.test_x, x[:6])
    assert data.y.tolist() == LABELS.tolist()


def test_a_torch_dataset_of_pictures() -> None:
    data = from_dataset(Pictures(["RGB"] * 20), name="pictures")
    assert data.name == "pictures"
    assert data.x.dtype == torch.uint8
    assert len(data.x) + len(data.test_x) == 20
    original = PIXELS.transpose(0, 3, 1, 2)
    assert all(any(np.array_equal(image, o) for o in original) for image in data.x)
    assert from_dataset(Pictures(["L"] * 6)).x.shape[1:] == (1, 6, 5)
    mixed = from_dataset(Pictures(["L", "RGB", "P", "RGBA", "L", "1"]), normalise=False)
    assert mixed.x.shape[1:] == (3, 6, 5)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_torch_datasets_that_do_not_fit() -> None:
    with raises_exactly("a Stream has no length or no numbered samples; collect its samples into arrays first"):
        from_dataset(Stream())
    with raises_exactly("sample 0 of the data set must be a pair (input, label), not a tuple; return two values"):
        from_dataset(TensorDataset(torch.zeros(3, 2)))
    pictures = Pictures(["RGB"] * 4)
    pictures.images[2] = pictures.images[2].resize((9, 9))
    with raises_exactly(
        "sample 2 of the data set has shape [9, 9, 3] and the first [6, 5, 3]; give all the same shape"
    ):
        from_dataset(pictures)
    with raises_exactly("the data set is empty; give at least one sample"):
        from_dataset(TensorDataset(torch.zeros(0, 2), torch.zeros(0)))
    with raises_exactly("sample 0 of the data set must be numbers, not str; give tensors, arrays or PIL images"):
        from_dataset([("word", 0)])


# Hugging Face data sets, by a stand-in with their interface: columns, features, rows.


class ClassLabel:
    names = ("even", "odd")


class Table:
    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns
        self.column_names = list(columns)
        self.features = dict.fromkeys(columns, None) | {"label": ClassLabel()}

    def __getitem__(self, key: str | int) -> Any:
        return self.columns[key] if isinstance(key, str) else {k: v[key] for k, v in self.columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self.columns["label"])))


def table(n: int, **more: list[Any]) -> Table:
    return Table({"image": [Image.fromarray(p) for p in PIXELS[:n]], "label": LABELS[:n].tolist(), **more})


def test_inputs_keep_their_type_and_shape() -> None:
    y = np.arange(20) % 2
    series = from_arrays(RNG.normal(size=(20, 12, 4)), y)
    assert series.x.shape == (16, 12, 4)
    assert len(federate(series, "iid", 2).data.mean) == 1
    tokens = from_arrays(np.arange(100).reshape(20, 5), y)
    assert tokens.x.dtype == torch.int64
    assert from_arrays(np.zeros((20, 2, 3, 4, 5)), y).x.shape == (16, 2, 3, 4, 5)
    both = from_arrays((np.zeros((20, 3)), np.ones((20, 2), int)), y)
    assert [(f.name, f.shape, f.integer) for f in both.fields] == [("", (3,), False), ("", (2,), True)]
    assert both.x.dtype == torch.float64


def test_hugging_face() -> None:
    writers = [f"writer {i % 4}" for i in range(20)]
    data = from_huggingface({"train": table(20, writer=writers), "test": table(6)}, client="writer")
    assert np.array_equal(data.x, PIXELS.transpose(0, 3, 1, 2))
    assert len(data.test_y) == 6
    assert data.classes == ("even", "odd")
    assert data.groups is not None
    assert data.groups.tolist() == [i % 4 for i in range(20)]
    alone = from_huggingface(table(20, writer=writers), client="writer")
    assert alone.groups is not None
    assert len(alone.groups) == len(alone.y) == 16
    valid = from_huggingface({"train": table(20), "validation": table(3)})
    assert len(valid.test_y) == 3
    features = Table({"row": RNG.normal(size=(20, 7)).tolist(), "label": LABELS.tolist()})
    assert from_huggingface(features, image="row").x.shape == (16, 7)


def test_hugging_face_with_several_columns_of_inputs() -> None:
    columns = {"ids": [[i, i + 1] for i in range(20)], "seen": [[1, 0]] * 20, "label": LABELS.tolist()}
    data = from_huggingface(Table(columns), image=["ids", "seen"])
    assert [(field.name, field.shape, field.integer) for field in data.fields] == [
        ("ids", (2,), True), ("seen", (2,), True),
    ]  # fmt: skip
    assert data.x.shape == (16, 4)
    message = "image must be the name of a column, or several of them, not [1]; name columns"
    with pytest.raises(HoldfastError) as caught:
        from_huggingface(table(4), image=[1])  # type: ignore[list-item]
    assert str(caught.value) == message
    with pytest.raises(HoldfastError, match="unknown column 'b' of the data set; known: ids, label, seen"):
        from_huggingface(Table(columns), image=["ids", "b"])


def test_hugging_face_columns_that_are_not_there() -> None:
    with pytest.raises(HoldfastError, match="unknown column 'img' of the data set; did you mean image"):
        from_huggingface(table(4), image="img")
    with pytest.raises(HoldfastError, match="unknown column 'user' of the data set; known: image, label"):
        from_huggingface(table(4), client="user")
    with pytest.raises(HoldfastError, match="unknown split 'train' of the data set"):
        from_huggingface({"test": table(4)})
