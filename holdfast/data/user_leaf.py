"""Data sets in LEAF's JSON layout: images, texts, tweets, words and vectors of users, who are the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.formats.images import decode_images
from holdfast.data.formats.leaf_json import Users, UserSamples, check_same_users, read_users
from holdfast.data.user_arrays import from_arrays
from holdfast.data.user_text import check_whole
from holdfast.data.vocabulary import character_vocabulary, padded, word_vocabulary
from holdfast.tasks.next_token import NOTHING, NextToken

NUMBERS, TEXT, TWEET, WORDS, IMAGE = "numbers", "text", "tweet", "words", "image"  # what a sample is
SIDE = 28  # of FEMNIST's images, which are stored as rows of 784 numbers
TEXT_OF_TWEET = 4  # the place of the text in a tweet of Sent140
Samples = tuple[Any, list[Any]]  # the inputs and targets of all users, one user after the other


def from_leaf(
    folder: str | Path,
    *,
    images: str | Path | None = None,
    size: int = 84,
    length: int | None = None,
    words: int = 10_000,
    vocabulary: str | None = None,
    **options: Any,
) -> DataSet:
    """Make a data set from a folder in LEAF's layout, ``train/*.json`` and ``test/*.json``. Its users are the clients.

    What the samples are is seen from the files:

    - 784 numbers (FEMNIST) are images [1, 28, 28]; other rows of numbers (Synthetic) are vectors.
    - A text and a character (Shakespeare) are tokens and the next one: classification over the vocabulary.
    - A tweet and a label (Sent140) are the characters of its text and the label.
    - Lists of words (Reddit) are tokens; the target is the next word at every position, the task next-token.
    - The name of an image and a label (CelebA) are an image [3, size, size] and the label.

    Args:
        folder: The folder that holds ``train`` and ``test``.
        images: For CelebA: the folder of the images.
        size: For CelebA: the side that images are scaled to.
        length: For Sent140: the characters of a tweet that are kept, its last ones; by default as many as the longest
            training tweet has. Shorter tweets begin with token 0.
        words: For Reddit: how many words are known, the most frequent of the training data; all others are token 0.
        vocabulary: For texts and tweets: the characters; by default those of the training data, sorted.
        options: Those of ``from_arrays``, for samples that are numbers, images or tweets.

    Returns:
        The data set, with the names of the users.
    """
    for what, value in (("size", size), ("length", 1 if length is None else length), ("words", words)):
        check_whole(what, value)
    root = Path(folder).expanduser()
    train, test = read_users(root, "train"), read_users(root, "test")
    check_same_users(root, train, test)
    kind = _kind(root, train)
    if kind == WORDS:
        train, test = _by_sequence(root, train), _by_sequence(root, test)
    known, held = _flat(train), _flat(test)
    settings = {"name": "leaf", **options}
    if kind == TEXT:
        data = _next_character(root, known, held, vocabulary, **settings)
    elif kind == WORDS:
        data = _next_word(known, held, words, **settings)
    elif kind == TWEET:
        data = _tweets(known, held, vocabulary, length, settings)
    else:
        x, test_x = (_pixels(root, x, images, size) if kind == IMAGE else _rows(x) for x, _ in (known, held))
        data = from_arrays(x, known[1], test_x, held[1], **settings)
    places = {user: number for number, user in enumerate(train)}
    groups, test_groups = _groups(train, places), _groups(test, places)
    return replace(data, groups=groups, test_groups=test_groups, clients=tuple(train))


def _kind(root: Path, users: Users) -> str:
    """Return what a sample is, from the first one."""
    own, target = next(((u.x[0], u.y[0]) for u in users.values() if len(u.y)), (None, None))
    if isinstance(own, np.ndarray):
        return NUMBERS
    if isinstance(own, str):
        return TEXT if isinstance(target, str) else IMAGE
    if isinstance(own, list) and own and isinstance(own[0], list) and isinstance(target, dict):
        return WORDS
    if isinstance(own, list) and len(own) > TEXT_OF_TWEET and isinstance(own[TEXT_OF_TWEET], str):
        return TWEET
    found = "no training samples" if own is None else f"samples of an unknown kind, such as {str(own)[:40]!r}"
    raise HoldfastError(
        f"{root} has {found}; expected LEAF's rows of numbers, texts, tweets, lists of words or names of images"
    )


def _flat(users: Users) -> Samples:
    xs = [u.x for u in users.values() if len(u.y)]
    arrays = bool(xs) and isinstance(xs[0], np.ndarray)
    x: Any = np.concatenate(xs) if arrays else list(chain.from_iterable(xs))
    return x, list(chain.from_iterable(u.y for u in users.values()))


def _groups(users: Users, places: dict[str, int]) -> Tensor:
    """Return the number of every sample's user."""
    numbers, sizes = [places[user] for user in users], [len(u.y) for u in users.values()]
    return torch.from_numpy(np.repeat(np.array(numbers, np.int64), sizes))


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 1, SIDE, SIDE) if x.shape[1] == SIDE * SIDE else x


def _pixels(root: Path, names: list[str], folder: str | Path | None, size: int) -> np.ndarray:
    if folder is None:
        raise HoldfastError(f"{root} has names of images, such as {names[0]!r}: give their folder with images=")
    return decode_images([Path(folder).expanduser() / name for name in names], 3, size)


def _next_character(root: Path, known: Samples, held: Samples, vocabulary: str | None, name: str) -> DataSet:
    tokens = character_vocabulary(chain(known[0], known[1]), vocabulary)
    length = len(known[0][0])
    for x, y in (known, held):
        odd = next((t for t in x if not isinstance(t, str) or len(t) != length), None)
        if odd is not None:
            raise HoldfastError(
                f"{root} has a text of {len(odd)} characters and the first has {length}; expected texts of one length"
            )
        bad = next((c for c in y if not isinstance(c, str) or len(c) != 1), None)
        if bad is not None:
            raise HoldfastError(f"{root} has the target {bad!r} of a text, expected one character; correct it")
    tensors = [torch.from_numpy(tokens.encode("".join(t))) for t in (*known, *held)]
    x, test_x = (t.reshape(-1, length) for t in tensors[::2])
    return DataSet(name, x, tensors[1], test_x, tensors[3], tokens.names, vocabulary=tokens)


def _tweets(
    known: Samples, held: Samples, vocabulary: str | None, length: int | None, settings: dict[str, Any]
) -> DataSet:
    train, test = ([str(tweet[TEXT_OF_TWEET]) for tweet in x] for x, _ in (known, held))
    tokens = character_vocabulary(train, vocabulary)
    most = length or max(map(len, train))
    x, test_x = (padded([tokens.encode(text) for text in texts], most) for texts in (train, test))
    data = from_arrays(x, known[1], test_x, held[1], **{"normalise": False, **settings})
    return replace(data, vocabulary=tokens)


def _by_sequence(root: Path, users: Users) -> Users:
    """Return Reddit's samples by sequence: a comment is several, each with its targets and which of them count."""
    try:
        return {
            user: UserSamples(
                [words for comment in u.x for words in comment],
                [pair for y in u.y for pair in zip(y["target_tokens"], y["count_tokens"], strict=True)],
            )
            for user, u in users.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise HoldfastError(
            f"{root} has lists of words without target_tokens and count_tokens for each; make it again with LEAF's code"
        ) from error


def _next_word(known: Samples, held: Samples, words: int, name: str) -> DataSet:
    tokens = word_vocabulary(chain(chain.from_iterable(known[0]), *(targets for targets, _ in known[1])), words)
    numbers = {word: number for number, word in enumerate(tokens.tokens)}

    def table(rows: Sequence[Sequence[str]]) -> np.ndarray:
        return np.array([[numbers.get(word, 0) for word in row] for row in rows], np.int64)

    tensors = []
    for x, y in (known, held):
        counted = np.array([counts for _, counts in y], bool)
        tensors += [table(x), np.where(counted, table([targets for targets, _ in y]), NOTHING)]
    found = [torch.from_numpy(t) for t in tensors]
    return DataSet(name, found[0], found[1], found[2], found[3], tokens.names, task=NextToken(), vocabulary=tokens)
