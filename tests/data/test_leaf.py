"""LEAF's JSON layout: every kind of sample that its data sets have, and files that are not as they should be."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.data.user_leaf import from_leaf

RNG = np.random.default_rng(0)
AGAIN = "make it again with LEAF's preprocess.sh"
UserData = dict[str, dict[str, list[Any]]]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


def write(folder: Path, part: str, data: UserData, counts: list[Any] | None = None, name: str = "all_data") -> Path:
    """Write a file as LEAF's preprocess.sh does."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    sizes = [len(own["y"]) for own in data.values()] if counts is None else counts
    file = folder / part / f"{name}_{part}_9.json"
    file.write_text(json.dumps({"users": list(data), "num_samples": sizes, "user_data": data}))
    return file


def write_both(folder: Path, train: UserData, test: UserData) -> None:
    write(folder, "train", train)
    write(folder, "test", test)


def numbers(n: int, width: int, classes: int = 3) -> dict[str, list[Any]]:
    return {"x": RNG.random((n, width)).round(3).tolist(), "y": RNG.integers(0, classes, n).tolist()}


def test_femnist_is_images_of_its_writers(tmp_path: Path) -> None:
    train = {"f3_09": numbers(4, 784), "f0_01": numbers(2, 784)}
    write(tmp_path, "train", train)
    write(tmp_path, "train", {"f1_02": numbers(3, 784)}, name="all_data_1")
    write(tmp_path, "test", {"f3_09": numbers(2, 784), "f1_02": numbers(1, 784)})
    data = from_leaf(tmp_path)
    assert data.clients == ("f0_01", "f1_02", "f3_09")
    assert data.x.shape == (9, 1, 28, 28)
    assert data.groups is not None
    assert data.test_groups is not None
    assert data.groups.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert data.test_groups.tolist() == [1, 2, 2]
    expected = np.array(train["f3_09"]["x"], np.float32).reshape(4, 1, 28, 28)
    assert np.array_equal(data.x[5:], expected)
    assert data.y[:2].tolist() == train["f0_01"]["y"]
    same = holdfast.load(f"leaf('{tmp_path}')")
    assert torch.equal(same.x, data.x)
    assert same.clients == data.clients


def test_synthetic_is_vectors_and_options_are_those_of_arrays(tmp_path: Path) -> None:
    write_both(tmp_path, {"0": numbers(5, 60), "1": numbers(5, 60)}, {"0": numbers(2, 60)})
    data = from_leaf(tmp_path, classes=["a", "b", "c"], normalise=False)
    assert data.x.shape == (10, 60)
    assert data.classes == ("a", "b", "c")
    assert data.mean == ()


SPEECH = "good morrow cousin is the day so young but new struck nine ay me sad hours seem long"


def shakespeare(text: str, length: int) -> dict[str, list[Any]]:
    return {"x": [text[i : i + length] for i in range(len(text) - length)], "y": list(text[length:])}


def test_shakespeare_is_next_character(tmp_path: Path) -> None:
    write_both(
        tmp_path,
        {"ROMEO": shakespeare(SPEECH, 10), "BENVOLIO": shakespeare("but new struck nine", 10)},
        {"ROMEO": shakespeare("was that my father? Z", 10)},
    )
    data = from_leaf(tmp_path)
    assert data.clients == ("BENVOLIO", "ROMEO")
    known = ["<unknown>", *sorted(set(SPEECH))]
    assert data.classes == tuple("space" if c == " " else c for c in known)
    assert data.task.name == "classification"
    assert data.groups is not None
    mine = data.x[data.groups == 1]
    assert mine.tolist() == [[known.index(c) for c in SPEECH[i : i + 10]] for i in range(len(SPEECH) - 10)]
    assert data.y[data.groups == 1].tolist() == [known.index(c) for c in SPEECH[10:]]
    assert data.test_y[-1] == 0, "Z is not in the training text"
    assert data.vocabulary is not None
    assert data.vocabulary.characters


def test_the_test_windows_that_leaf_counts_but_leaves_out(tmp_path: Path) -> None:
    """LEAF's split of Shakespeare drops the 79 windows that overlap with training, after it has counted them."""
    write(tmp_path, "train", {"ROMEO": shakespeare(SPEECH, 10)})
    own = shakespeare("but new struck nine", 10)
    write(tmp_path, "test", {"ROMEO": own}, [len(own["y"]) + 9])
    assert len(from_leaf(tmp_path).test_y) == len(own["y"])
    file = write(tmp_path, "test", {"ROMEO": own}, [len(own["y"]) + 8])
    with raises_exactly(f"{file}: user ROMEO has 9 samples, but num_samples says 17; {AGAIN}"):
        from_leaf(tmp_path)


def tweet(text: str) -> list[str]:
    return ["1467810369", "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", "user", text, "-1"]


def test_sent140_is_characters_and_a_label(tmp_path: Path) -> None:
    write_both(
        tmp_path,
        {"ann": {"x": [tweet("abba"), tweet("b")], "y": [1, 0]}},
        {"ann": {"x": [tweet("cabbage")], "y": [0]}},
    )
    data = from_leaf(tmp_path)
    assert data.x.tolist() == [[1, 2, 2, 1], [0, 0, 0, 2]]
    assert data.test_x.tolist() == [[2, 1, 0, 0]]
    assert (data.y.tolist(), data.classes, data.mean) == ([1, 0], ("0", "1"), ())
    assert from_leaf(tmp_path, length=2).x.tolist() == [[2, 1], [0, 2]]


def reddit(*comments: list[list[str]]) -> dict[str, list[Any]]:
    """Sequences of words; targets are the words after them, padding does not count."""
    ys = [
        {
            "target_tokens": [[*row[1:], "<PAD>"] for row in comment],
            "count_tokens": [[int(w != "<PAD>") for w in (*row[1:], "<PAD>")] for row in comment],
        }
        for comment in comments
    ]
    return {"x": list(comments), "y": ys}


def test_reddit_is_next_word(tmp_path: Path) -> None:
    write_both(
        tmp_path,
        {
            "u1": reddit([["<BOS>", "to", "be"], ["or", "not", "<PAD>"]], [["to", "be", "to"]]),
            "u2": reddit([["be", "be", "be"]]),
        },
        {"u1": reddit([["to", "see", "be"]])},
    )
    data = from_leaf(tmp_path, words=3)
    assert data.task.name == "next-token"
    # 6 x be (each sequence and its targets), 5 x to, 5 x <PAD>, 1 to 2 of the others
    assert set(data.classes) == {"<unknown>", "be", "to", "<PAD>"}
    be, to, pad = (data.classes.index(word) for word in ("be", "to", "<PAD>"))
    assert data.x.tolist() == [[0, to, be], [0, 0, pad], [to, be, to], [be, be, be]]
    assert data.y.tolist() == [[to, be, -100], [0, -100, -100], [be, to, -100], [be, be, -100]]
    assert data.groups is not None
    assert data.groups.tolist() == [0, 0, 0, 1]
    assert data.test_x.tolist() == [[to, 0, be]]


def test_celeba_is_images_in_a_folder(tmp_path: Path) -> None:
    pictures = tmp_path / "img"
    pictures.mkdir()
    for i in range(3):
        Image.new("RGB", (10, 12), (i * 40, 0, 0)).save(pictures / f"{i}.png")
    write_both(tmp_path, {"7": {"x": ["0.png", "1.png"], "y": [0, 1]}}, {"7": {"x": ["2.png"], "y": [1]}})
    data = from_leaf(tmp_path, images=pictures, size=6)
    assert data.x.shape == (2, 3, 6, 6)
    assert data.x[:, 0, 0, 0].tolist() == [0, 40]
    assert torch.equal(holdfast.load(f"leaf('{tmp_path}', images='{pictures}', size=6)").test_x, data.test_x)
    with raises_exactly(f"{tmp_path} has names of images, such as '0.png': give their folder with images="):
        from_leaf(tmp_path)


@pytest.mark.parametrize("kind", ["femnist", "shakespeare", "sent140", "reddit"])
def test_a_second_start_reads_the_same_from_the_cache(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {
        "femnist": numbers(4, 784),
        "shakespeare": shakespeare(SPEECH, 10),
        "sent140": {"x": [tweet("abba"), tweet("b")], "y": [1, 0]},
        "reddit": reddit([["<BOS>", "to", "be"], ["or", "not", "<PAD>"]]),
    }[kind]
    write_both(tmp_path, {"ann": own, "bob": own}, {"bob": own})
    first = holdfast.load(f"leaf('{tmp_path}')")
    monkeypatch.setattr("holdfast.data.sources.leaf.from_leaf", None)  # it must not be called again
    again = holdfast.load(f"leaf('{tmp_path}')")
    for field in fields(first):
        a, b = getattr(first, field.name), getattr(again, field.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, field.name
    write(tmp_path, "train", {"ann": own, "bob": own, "cid": own})
    with pytest.raises(TypeError):  # a changed file is read again
        holdfast.load(f"leaf('{tmp_path}')")


# -------------------------------------------------------------------------------------------------------- errors


def test_missing_folders(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with raises_exactly(f"{nowhere}: no such folder; expected LEAF's train/*.json and test/*.json in it"):
        from_leaf(nowhere)
    write(tmp_path, "train", {"a": numbers(2, 3)})
    message = f"{tmp_path / 'test'}: no JSON files in it; make them with LEAF's preprocess.sh -t sample"
    with raises_exactly(message):
        from_leaf(tmp_path)
    with raises_exactly(message):
        holdfast.load(f"leaf('{tmp_path}')")


GOOD = {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.5]], "y": [0]}}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"users": [', f"is not valid JSON at line 1, column 12; {AGAIN}"),
        ("[" * 100_000, f"is not valid JSON; {AGAIN}"),
        ([1], f"has no users; expected LEAF's users, num_samples and user_data: {AGAIN}"),
        (
            {"users": ["a"], "num_samples": [1]},
            f"has no user_data; expected LEAF's users, num_samples and user_data: {AGAIN}",
        ),
        (GOOD | {"user_data": []}, f": users and num_samples must be lists and user_data an object; {AGAIN}"),
        (GOOD | {"num_samples": [1, 2]}, f"has 1 users and 2 num_samples, expected as many; {AGAIN}"),
        (GOOD | {"num_samples": [2]}, f": user a has 1 samples, but num_samples says 2; {AGAIN}"),
        (GOOD | {"users": ["b"]}, f": user b has no lists x and y in user_data; {AGAIN}"),
        (
            GOOD | {"user_data": {"a": {"x": [[0.5]], "y": [0, 1]}}},
            f": user a has 1 x and 2 y, expected as many; {AGAIN}",
        ),
        (
            GOOD | {"num_samples": [2], "user_data": {"a": {"x": [[0.5], [0.5, 1]], "y": [0, 1]}}},
            f": the x of user a are not rows of as many numbers; {AGAIN}",
        ),
    ],
)
def test_damaged_files_are_refused_in_one_line(content: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path, "test", {"a": numbers(1, 1)})
    file = write(tmp_path, "train", {"a": numbers(1, 1)})
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with raises_exactly(f"{file}{message}" if message.startswith(":") else f"{file} {message}"):
        from_leaf(tmp_path)


@pytest.mark.parametrize("name", ["size", "length", "words"])
def test_bad_options_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with raises_exactly(f"{name} must be a whole number of at least 1, not 0"):
        from_leaf(tmp_path, **{name: 0})


def test_users_that_do_not_fit_together(tmp_path: Path) -> None:
    write_both(tmp_path, {"a": numbers(2, 3)}, {"b": numbers(2, 3), "c": numbers(2, 3)})
    remedy = "divide samples, not users, with LEAF's preprocess.sh -t sample"
    with raises_exactly(f"{tmp_path}: user b and 1 more in test, but not in train; {remedy}"):
        from_leaf(tmp_path)
    again = write(tmp_path, "train", {"a": numbers(2, 3)}, name="more")
    with raises_exactly(f"{again}: user a is in another file of train as well; keep one of them"):
        from_leaf(tmp_path)


def test_samples_of_an_unknown_kind(tmp_path: Path) -> None:
    known = "expected LEAF's rows of numbers, texts, tweets, lists of words or names of images"
    for x, found in (
        ({"a": 1}, "samples of an unknown kind, such as \"{'a': 1}\""),
        ([], "samples of an unknown kind, such as '[]'"),
    ):
        write_both(tmp_path, {"a": {"x": [x], "y": [0]}}, {"a": {"x": [x], "y": [0]}})
        with raises_exactly(f"{tmp_path} has {found}; {known}"):
            from_leaf(tmp_path)
    write_both(tmp_path, {"a": {"x": [], "y": []}}, {})
    with raises_exactly(f"{tmp_path} has no training samples; {known}"):
        from_leaf(tmp_path)
    write_both(tmp_path, {"a": {"x": ["abc", "ab"], "y": ["d", "c"]}}, {"a": shakespeare("abcd", 3)})
    with raises_exactly(f"{tmp_path} has a text of 2 characters and the first has 3; expected texts of one length"):
        from_leaf(tmp_path)
    write_both(tmp_path, {"a": {"x": ["abc"], "y": ["de"]}}, {"a": shakespeare("abcd", 3)})
    with raises_exactly(f"{tmp_path} has the target 'de' of a text, expected one character; correct it"):
        from_leaf(tmp_path)
    write_both(tmp_path, {"a": {"x": [[["w"]]], "y": [{"target_tokens": [["w"]]}]}}, {"a": reddit([["w"]])})
    with raises_exactly(
        f"{tmp_path} has lists of words without target_tokens and count_tokens for each; make it again with LEAF's code"
    ):
        from_leaf(tmp_path)
