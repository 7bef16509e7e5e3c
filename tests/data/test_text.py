"""Texts as data: vocabularies, windows, files, speakers and tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.data.text_files import speeches
from holdfast.data.user_text import from_text
from holdfast.data.vocabulary import Vocabulary, character_vocabulary

TEXTS = {
    "Hamlet": "to be or not to be that is the question",
    "Ophelia": "good my lord how does your honour",
    "Yorick": "x",
}


def by_hand(text: str, length: int, known: Sequence[str]) -> list[tuple[list[int], int]]:
    """Every window and the character after it, with a loop; 0 is unknown."""
    numbers = [known.index(c) if c in known else 0 for c in text]
    return [(numbers[i : i + length], numbers[i + length]) for i in range(len(numbers) - length)]


# ------------------------------------------------------------------------------------------------- next character


def test_next_character_windows_are_those_of_a_loop() -> None:
    data = from_text(TEXTS, length=5, share=0.25)
    assert data.task.name == "classification"
    kept = {name: text[: len(text) - int(len(text) / 4 + 0.5)] for name, text in TEXTS.items()}
    known = ["<unknown>", *sorted({c for text in kept.values() for c in text})]
    assert data.vocabulary == Vocabulary(tuple(known), True)
    assert data.classes == tuple("space" if c == " " else c for c in known)
    assert data.clients == ("Hamlet", "Ophelia", "Yorick")
    train = [(x, y, i) for i, t in enumerate(kept.values()) for x, y in by_hand(t, 5, known)]
    test = [(x, y, i) for i, n in enumerate(TEXTS) for x, y in by_hand(TEXTS[n][len(kept[n]) :], 5, known)]
    for found, expected in (
        ((data.x, data.y, data.groups), train),
        ((data.test_x, data.test_y, data.test_groups), test),
    ):
        assert [(x.tolist(), int(y), int(g)) for x, y, g in zip(*found, strict=True)] == expected


def test_no_character_is_in_training_and_in_test() -> None:
    """A window that overlapped the cut would show the test text to training."""
    text = "".join(chr(0x4E00 + i) for i in range(300))  # every character once
    data = from_text([text], length=20, share=0.3)
    parts = ((data.x, data.y), (data.test_x, data.test_y))
    train, test = ({*x.flatten().tolist(), *y.tolist()} for x, y in parts)
    assert len(train) == len(data.classes) - 1 == 210
    assert test == {0}, "none of the test characters is known"


def test_the_vocabulary_is_that_of_the_training_texts() -> None:
    one = from_text({"a": "abcabcabc"}, {"a": "abcabc"}, length=2)
    other = from_text({"a": "abcabcabc"}, {"a": "zzZabc"}, length=2)
    assert one.classes == other.classes == ("<unknown>", "a", "b", "c")
    assert torch.equal(one.x, other.x)
    assert other.test_x.tolist() == [[0, 0], [0, 0], [0, 1], [1, 2]]
    assert other.test_y.tolist() == [0, 1, 2, 3]
    chosen = from_text({"a": "abcabcabc"}, {"a": "abcabc"}, length=2, vocabulary="cb")
    assert chosen.classes == ("<unknown>", "c", "b")
    assert chosen.x[:2].tolist() == [[0, 2], [2, 1]]


def test_stride_and_several_texts_of_a_client() -> None:
    data = from_text({"a": ["abcdefgh", "hgfedcba"]}, {"a": "abcd"}, length=3, stride=2)
    names = ["".join(data.classes[i] for i in row) for row in data.x.tolist()]
    assert names == ["abc", "cde", "efg", "hgf", "fed", "dcb"]
    assert [data.classes[i] for i in data.y.tolist()] == ["d", "f", "h", "e", "c", "a"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(), min_size=1).filter(lambda texts: any(texts)), st.text())
def test_known_characters_survive_and_others_become_unknown(texts: list[str], other: str) -> None:
    vocabulary = character_vocabulary(texts)
    known = {c for text in texts for c in text}
    for text in texts:
        assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.encode(other).tolist() == [vocabulary.tokens.index(c) if c in known else 0 for c in other]


# ---------------------------------------------------------------------------------------------------- next token


def test_next_token_targets_are_the_inputs_moved_by_one() -> None:
    data = from_text({"a": "abcdefghij", "b": "jihg"}, {"a": "abc"}, predict="next-token", length=4)
    assert data.task.name == "next-token"
    names = ["?", *"abcdefghij"]

    def show(row: torch.Tensor) -> str:
        return "".join("_" if i == -100 else names[i] for i in row.tolist())

    assert [show(row) for row in data.x] == ["abcd", "efgh", "i???", "jih?"]
    assert [show(row) for row in data.y] == ["bcde", "fghi", "j___", "ihg_"]
    assert data.groups is not None
    assert data.groups.tolist() == [0, 0, 0, 1]
    assert [show(row) for row in data.test_y] == ["bc__"]


@settings(max_examples=100, deadline=None)
@given(st.text("abc", min_size=2, max_size=60), st.integers(1, 9))
def test_every_token_but_the_first_is_predicted_once(text: str, length: int) -> None:
    data = from_text([text], [text], predict="next-token", length=length)
    targets = data.y[data.y != -100].tolist()
    inputs = data.x[data.y != -100].tolist()
    numbers = [data.classes.index(c) for c in text]
    assert (inputs, targets) == (numbers[:-1], numbers[1:])


def words(text: str) -> list[int]:
    """A tokenizer of a user: the lengths of words."""
    return [len(word) for word in text.split()]


def test_a_tokenizer_is_any_function_with_a_size() -> None:
    data = from_text(["a bb ccc dddd"], ["bb a"], predict="next-token", length=3, tokenizer=words, tokens=9)
    assert data.x.tolist() == [[1, 2, 3]]
    assert data.y.tolist() == [[2, 3, 4]]
    assert data.classes == tuple("012345678")
    assert data.vocabulary == Vocabulary(data.classes, False)


def test_tokenizers_of_hugging_face() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    numbers = {"[UNK]": 0, "[CLS]": 1, "to": 2, "be": 3, "or": 4, "not": 5}
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="[UNK]")
    for tokenizer in (own, fast):
        data = from_text(["to be or not to be"], ["to see"], predict="next-token", length=5, tokenizer=tokenizer)
        assert data.classes == tuple(numbers)
        assert data.x.tolist() == [[2, 3, 4, 5, 2]], "no special tokens: windows are cut from the middle of a text"
        assert data.test_y.tolist() == [[0, -100, -100, -100, -100]]


# --------------------------------------------------------------------------------------------------------- files


def test_files_are_clients(tmp_path: Path) -> None:
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "notes.md").write_text("no")
    data = from_text(tmp_path, length=5)
    same = from_text(TEXTS, length=5)
    assert data.clients == same.clients
    assert torch.equal(data.x, same.x)
    source = holdfast.load(f"text('{tmp_path}', length=5)")
    assert torch.equal(source.test_x, same.test_x)
    assert source.vocabulary == same.vocabulary
    (tmp_path / "one.txt").write_bytes(("\ufeff" + "only \u00e9\r\n" * 9).encode())
    alone = from_text(str(tmp_path / "one.txt"), length=3)
    assert alone.clients == ("one",)
    assert set(alone.classes[1:]) == {*"only\u00e9", "space", "\\n"}, "no byte order mark, and one kind of line end"


def test_a_test_folder_is_the_test_text(tmp_path: Path) -> None:
    for part, texts in (("train", TEXTS), ("test", {"Ophelia": "my honoured lord"})):
        (tmp_path / part).mkdir()
        for name, text in texts.items():
            (tmp_path / part / f"{name}.txt").write_text(text)
    data = from_text(tmp_path, length=5)
    assert len(data.y) == sum(max(len(text) - 5, 0) for text in TEXTS.values())
    assert data.test_groups is not None
    assert data.test_groups.unique().tolist() == [1]


PLAY = """THE TRAGEDY

First Citizen:
Before we proceed any further, hear me speak: now.

All:
Speak, speak.

First Citizen:
You are all resolved.
"""


def test_speakers_are_clients(tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_text(PLAY)
    assert speeches(PLAY) == {
        "All": ["Speak, speak."],
        "First Citizen": ["Before we proceed any further, hear me speak: now.\nYou are all resolved."],
    }
    data = holdfast.load(f"text('{file}', speakers=true, length=4, predict=next-token)")
    assert data.clients == ("All", "First Citizen")
    assert data.task.name == "next-token"
    file.write_text("no names here")
    with raises_exactly(
        f"{file}: no speakers in it; expected a line such as 'HAMLET:' before every speech, or leave out speakers"
    ):
        from_text(file, speakers=True)


# -------------------------------------------------------------------------------------------------------- errors

SHORT = "is long enough for a sample, which takes {} tokens; lower length, or give longer texts"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": {"a": "abc"}, "length": 3}, f"no training text {SHORT.format(4)}"),
        ({"texts": {"a": "abcdefgh"}, "length": 3}, f"no test text {SHORT.format(4)}"),
        ({"texts": ["a"], "test": ["a"], "predict": "next-token"}, f"no training text {SHORT.format(2)}"),
        ({"texts": {}}, "texts is empty; give the text of at least one client"),
        ({"texts": 5}, "texts must be a mapping from client to text, a list of texts or a path, not a int"),
        ({"texts": {"a": 5}}, "texts of client a is not a text; give a string, or a list of strings"),
        ({"texts": {1: "a", "1": "b"}}, "texts has two clients called 1; give every client a name of its own"),
        (
            {"texts": {"a": "abc"}, "test": {"b": "abc"}},
            "the test texts have the client b, which has no training text; leave it out of the test texts",
        ),
        ({"texts": ["abc"], "length": 0}, "length must be a whole number of at least 1, not 0"),
        ({"texts": ["abc"], "stride": 1.5}, "stride must be a whole number of at least 1, not 1.5"),
        ({"texts": ["abc"], "share": 1}, "share must be in (0, 1), not 1; use one such as 0.2"),
        ({"texts": ["abc"], "vocabulary": "aba"}, "vocabulary has the character 'a' twice; give every character once"),
        (
            {"texts": ["", ""], "test": ["a"]},
            "vocabulary has no characters; give at least one, or a training text that is not empty",
        ),
        ({"texts": ["abc"], "speakers": True}, "speakers is only for files: leave it out, or give a path"),
        ({"texts": ["abc"], "tokens": 5}, "tokens is only for a tokenizer: leave it out"),
        (
            {"texts": ["abc"], "tokenizer": words},
            'next-character has no tokenizer: leave it out, or use predict="next-token"',
        ),
        (
            {"texts": ["abc"], "predict": "next-token", "tokenizer": words, "vocabulary": "abc"},
            "vocabulary and tokenizer are both given; give one of them",
        ),
        (
            {"texts": ["abc"], "predict": "next-token", "tokenizer": words},
            "the tokenizer does not say how many tokens it has: give tokens=",
        ),
        (
            {"texts": ["abc abcd"], "predict": "next-token", "tokenizer": words, "tokens": 3},
            "the tokenizer returned token 3, expected 0 to 2; set tokens= to its size",
        ),
        (
            {"texts": ["abc"], "predict": "next-token", "tokenizer": lambda t: [[1.5]], "tokens": 3},
            "the tokenizer returned float64 [1, 1] for a text, expected a flat list of whole numbers; return token "
            "numbers",
        ),
    ],
)
def test_bad_texts_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with raises_exactly(message):
        from_text(**given)


def test_an_unknown_kind_of_prediction() -> None:
    with raises_exactly("unknown kind of prediction 'next-word'; did you mean next-token?"):
        from_text(["abc"], predict="next-word")


def test_bad_files_are_refused_in_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with raises_exactly(f"{nowhere}: no such file or folder; expected a text file, or a folder of .txt files"):
        from_text(nowhere)
    with raises_exactly(f"{tmp_path}: no .txt files in it; put a text file per client there"):
        from_text(tmp_path)
    (tmp_path / "latin.txt").write_bytes("caf\u00e9".encode("latin-1"))
    with raises_exactly(f"{tmp_path / 'latin.txt'} is not a text in UTF-8; convert it"):
        from_text(tmp_path)


def test_token_numbers_are_int64_arrays() -> None:
    found = character_vocabulary(["ab"]).encode("")
    assert found.dtype == np.int64
    assert len(found) == 0
