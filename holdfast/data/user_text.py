"""Your own texts, for predicting the next character or the next token. Files or speakers are the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError, unknown
from holdfast.data.dataset import DataSet
from holdfast.data.text_files import Texts, read_texts
from holdfast.data.text_windows import Windows, joined, next_of_every_token, next_of_window
from holdfast.data.vocabulary import Tokenize, Vocabulary, character_vocabulary, tokenizer_vocabulary
from holdfast.tasks.classification import Classification
from holdfast.tasks.next_token import NextToken

CHARACTER, TOKEN = "next-character", "next-token"


def from_text(
    texts: Any,
    test: Any = None,
    *,
    predict: str = CHARACTER,
    length: int = 80,
    stride: int | None = None,
    vocabulary: str | None = None,
    tokenizer: Any = None,
    tokens: int | None = None,
    share: float = 0.2,
    speakers: bool = False,
    name: str = "text",
) -> DataSet:
    """Make a data set from texts, to predict how they go on.

    - ``next-character``: a sample is ``length`` characters and the one after them, as in LEAF's Shakespeare. This is
      classification, and the classes are the vocabulary.
    - ``next-token``: a sample is ``length`` tokens, and the target is the next one at every position.

    The vocabulary is that of the training texts, so that test texts change nothing in training. Token 0 is
    ``<unknown>``: any other character. Windows never cross from one text into another.

    Args:
        texts: The texts of the clients: a mapping by name, or a list; a client's value is a text or a list of texts. A
            string or a path is a folder ``path/*.txt`` or ``path/{train,test}/*.txt`` with a file per client, or a
            file.
        test: Texts to test on, likewise; their clients must be among the training clients. Without them the last
            ``share`` of every text is the test text.
        predict: ``next-character`` or ``next-token``.
        length: The characters or tokens of a sample.
        stride: The distance between the starts of two samples; by default 1 for ``next-character``, and ``length`` for
            ``next-token``.
        vocabulary: The characters, in the order of their tokens from 1; by default those of the training texts, sorted.
        tokenizer: For ``next-token``, in place of characters: a function from a text to token numbers, or a tokenizer
            of ``transformers`` or ``tokenizers``.
        tokens: How many tokens the tokenizer has, if it does not say that.
        share: The share of every text to test on where there are no test texts.
        speakers: Whether files are plays whose speakers are the clients: a line such as ``HAMLET:`` opens a speech.
        name: The name of the data set.

    Returns:
        The data set. Clients keep their names; one whose text is too short for a sample never trains.

    >>> data = from_text({"ann": "abababab", "bob": "bbbbbbbb"}, length=3, share=0.5)
    >>> data.clients, data.classes, data.x.tolist(), data.y.tolist()
    (('ann', 'bob'), ('<unknown>', 'a', 'b'), [[1, 2, 1], [2, 2, 2]], [2, 2])
    """
    if predict not in (CHARACTER, TOKEN):
        raise unknown("kind of prediction", predict, (CHARACTER, TOKEN))
    if tokenizer is not None and predict == CHARACTER:
        raise HoldfastError('next-character has no tokenizer: leave it out, or use predict="next-token"')
    check_whole("length", length)
    check_whole("stride", 1 if stride is None else stride)
    train, held = _train_and_test(texts, test, speakers)
    if not held:
        train, held = cut_off(train, share)
    tokenize, known = tokens_of([t for own in train.values() for t in own], vocabulary, tokenizer, tokens)
    cut = partial(next_of_window, length=length, stride=stride or 1)
    if predict == TOKEN:
        cut = partial(next_of_every_token, length=length, stride=stride or length)
    (x, y, groups), (test_x, test_y, test_groups) = (_samples(t, list(train), tokenize, cut) for t in (train, held))
    _check_some(len(x), len(test_x), length + 1 if predict == CHARACTER else 2)
    task = NextToken() if predict == TOKEN else Classification()
    return DataSet(
        name, x, y, test_x, test_y, known.names, groups=groups, task=task, clients=tuple(train),
        test_groups=test_groups, vocabulary=known,
    )  # fmt: skip


def cut_off(texts: Texts, share: float) -> tuple[Texts, Texts]:
    """Cut the last part off every text, to test on: no window is then in both."""
    if not 0 < share < 1:
        raise HoldfastError(f"share must be in (0, 1), not {share}; use one such as 0.2")
    first = {client: [t[: _kept(t, share)] for t in own] for client, own in texts.items()}
    return first, {client: [t[_kept(t, share) :] for t in own] for client, own in texts.items()}


def _kept(text: str, share: float) -> int:
    return len(text) - int(share * len(text) + 0.5)


def texts_by_client(what: str, texts: Any) -> Texts:
    """Check texts that a user gives in memory, and return them by client."""
    if not isinstance(texts, (Mapping, Sequence)) or isinstance(texts, bytes):
        kind = type(texts).__name__
        raise HoldfastError(f"{what} must be a mapping from client to text, a list of texts or a path, not a {kind}")
    found: Texts = {}
    for client, own in texts.items() if isinstance(texts, Mapping) else enumerate(texts):
        several = [own] if isinstance(own, str) else own
        if not isinstance(several, (list, tuple)) or not all(isinstance(text, str) for text in several):
            raise HoldfastError(f"{what} of client {client} is not a text; give a string, or a list of strings")
        if str(client) in found:
            raise HoldfastError(f"{what} has two clients called {client}; give every client a name of its own")
        found[str(client)] = list(several)
    if not found:
        raise HoldfastError(f"{what} is empty; give the text of at least one client")
    return found


def _train_and_test(texts: Any, test: Any, speakers: bool) -> tuple[Texts, Texts]:
    """Return the training texts and the test texts by client; no test texts if none are given."""
    train, held = _read("texts", texts, speakers)
    if test is not None:
        held = _read("test", test, speakers)[0]
    others = [client for client in held if client not in train]
    if others:
        raise HoldfastError(
            f"the test texts have the client {others[0]}, which has no training text; leave it out of the test texts"
        )
    return train, held


def _read(what: str, texts: Any, speakers: bool) -> tuple[Texts, Texts]:
    if isinstance(texts, (str, Path)):
        return read_texts(Path(texts).expanduser(), speakers)
    if speakers:
        raise HoldfastError("speakers is only for files: leave it out, or give a path")
    return texts_by_client(what, texts), {}


def tokens_of(
    texts: Sequence[str], vocabulary: str | None, tokenizer: Any, tokens: int | None
) -> tuple[Tokenize, Vocabulary]:
    """Return how texts become token numbers, and the names of these tokens.

    Args:
        texts: The training texts.
        vocabulary: The characters; None: those of the training texts.
        tokenizer: The user's tokenizer; None: tokens are characters.
        tokens: How many tokens the tokenizer has, if it does not say that.

    Returns:
        The function and the vocabulary.
    """
    if tokenizer is not None:
        if vocabulary is not None:
            raise HoldfastError("vocabulary and tokenizer are both given; give one of them")
        return tokenizer_vocabulary(tokenizer, tokens)
    if tokens is not None:
        raise HoldfastError("tokens is only for a tokenizer: leave it out")
    known = character_vocabulary(texts, vocabulary)
    return known.encode, known


def _samples(
    texts: Texts, clients: Sequence[str], tokenize: Tokenize, cut: partial[Windows]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs and targets of all clients' texts, and the number of every sample's client."""
    empty = cut(np.empty(0, np.int64))
    each = [joined((cut(tokenize(text)) for text in texts.get(client, ())), empty) for client in clients]
    x, y = joined(each, empty)
    groups = np.repeat(np.arange(len(clients)), [len(own) for own, _ in each])
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(groups)


def check_whole(what: str, value: Any) -> None:
    """Raise an error unless a value is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise HoldfastError(f"{what} must be a whole number of at least 1, not {value!r}")


def _check_some(train: int, test: int, least: int) -> None:
    """Raise an error if all texts are too short for a sample."""
    for what, count in (("training", train), ("test", test)):
        if not count:
            raise HoldfastError(
                f"no {what} text is long enough for a sample, which takes {least} tokens; lower length, or give longer "
                "texts"
            )
