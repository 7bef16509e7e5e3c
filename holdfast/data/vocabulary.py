"""Texts as numbers: the characters of a vocabulary, its words, or the tokens of a user's tokenizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError

UNKNOWN = "<unknown>"  # token 0 of characters and words: whatever the training text does not have
Tokenize = Callable[[str], np.ndarray]  # a text as token numbers, int64


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that texts are made of, by number.

    Attributes:
        tokens: The tokens, in order.
        characters: Whether a token is a character, so that any text can be encoded and decoded.
    """

    tokens: tuple[str, ...]
    characters: bool = False

    def encode(self, text: str) -> np.ndarray:
        """Return the number of every character, int64; 0 for one that is not in the vocabulary."""
        if not self.characters:
            raise HoldfastError(
                "the model was trained on the tokens of your own tokenizer, which a run does not store: give token "
                "numbers, not texts"
            )
        codes, numbers = self._codes
        found = _code_points(text)
        place = np.searchsorted(codes, found).clip(max=len(codes) - 1)
        return np.where(codes[place] == found, numbers[place], 0)

    def decode(self, numbers: Sequence[int] | np.ndarray) -> str:
        """Return the text of token numbers; an unknown character is shown as U+FFFD."""
        names = ("\ufffd", *self.tokens[1:]) if self.characters else self.tokens
        return "".join(names[int(number)] for number in np.asarray(numbers).reshape(-1))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tokens as they are shown: ``space`` for a space, and escapes such as ``\\n`` for what cannot be seen."""
        return tuple("space" if t == " " else t if t.isprintable() else ascii(t)[1:-1] for t in self.tokens)

    @cached_property
    def _codes(self) -> tuple[np.ndarray, np.ndarray]:
        """The code points of the characters in ascending order, and their token numbers."""
        codes = _code_points("".join(self.tokens[1:]))
        order = np.argsort(codes, kind="stable")
        return codes[order], order + 1


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)


def character_vocabulary(texts: Iterable[str], given: str | None = None) -> Vocabulary:
    """Return the vocabulary of texts: token 0 is for unknown characters, then come all others.

    Args:
        texts: The training texts; their characters are sorted.
        given: The characters to use instead, in this order.

    Returns:
        The vocabulary.

    >>> found = character_vocabulary(["abba"])
    >>> found.tokens, found.encode("cab").tolist(), found.decode([2, 1])
    (('<unknown>', 'a', 'b'), [0, 1, 2], 'ba')
    """
    characters = sorted(set().union(*texts)) if given is None else list(given)
    twice = [c for c, n in Counter(characters).items() if n > 1]
    if twice:
        raise HoldfastError(f"vocabulary has the character {twice[0]!r} twice; give every character once")
    if not characters:
        raise HoldfastError("vocabulary has no characters; give at least one, or a training text that is not empty")
    return Vocabulary((UNKNOWN, *characters), True)


def word_vocabulary(words: Iterable[str], most: int) -> Vocabulary:
    """Return the vocabulary of the most frequent words; token 0 is for all others.

    >>> word_vocabulary(["to", "be", "or", "not", "to", "be"], 2).tokens
    ('<unknown>', 'be', 'to')
    """
    counts = Counter(words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return Vocabulary((UNKNOWN, *ranked[: max(most, 0)]))


def padded(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Bring rows of tokens to one length: the last tokens of each, after zeros where it is shorter.

    >>> padded([np.array([1, 2, 3]), np.array([4])], 2).tolist()
    [[2, 3], [0, 4]]
    """
    out = np.zeros((len(rows), length), np.int64)
    for row, tokens in zip(out, rows, strict=True):
        last = tokens[-length:]
        row[length - len(last) :] = last
    return out


def tokenizer_vocabulary(tokenizer: Any, tokens: int | None) -> tuple[Tokenize, Vocabulary]:
    """Return how a user's tokenizer turns a text into numbers, and the names of its tokens.

    Args:
        tokenizer: A function from a text to token numbers, or a tokenizer of ``transformers`` or ``tokenizers``.
        tokens: The number of tokens; None: what the tokenizer says.

    Returns:
        The function, which checks what it returns, and the vocabulary.
    """
    size = _token_count(tokenizer) if tokens is None else tokens
    if size is None:
        raise HoldfastError("the tokenizer does not say how many tokens it has: give tokens=")

    def encode(text: str) -> np.ndarray:
        found = np.asarray(_token_numbers(tokenizer, text))
        found = found.astype(np.int64) if not found.size else found
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise HoldfastError(
                f"the tokenizer returned {found.dtype} {list(found.shape)} for a text, expected a flat list of whole "
                "numbers; return token numbers"
            )
        if found.size and not 0 <= found.min() <= found.max() < size:
            bad = int(found.min() if found.min() < 0 else found.max())
            raise HoldfastError(
                f"the tokenizer returned token {bad}, expected 0 to {size - 1}; set tokens= to its size"
            )
        return found.astype(np.int64)

    return encode, Vocabulary(_token_names(tokenizer, size))


def _token_numbers(tokenizer: Any, text: str) -> Any:
    if hasattr(tokenizer, "convert_ids_to_tokens"):  # transformers
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    if hasattr(tokenizer, "id_to_token"):  # tokenizers
        return tokenizer.encode(text, add_special_tokens=False).ids
    return tokenizer(text)


def _token_count(tokenizer: Any) -> int | None:
    if hasattr(tokenizer, "get_vocab_size"):
        return int(tokenizer.get_vocab_size())
    if hasattr(tokenizer, "__len__"):
        return len(tokenizer)
    size = getattr(tokenizer, "vocab_size", None)
    return size if isinstance(size, int) else None


def _token_names(tokenizer: Any, size: int) -> tuple[str, ...]:
    name_of = getattr(tokenizer, "convert_ids_to_tokens", getattr(tokenizer, "id_to_token", None))
    found = [None if name_of is None else name_of(number) for number in range(size)]
    return tuple(str(number) if name is None else str(name) for number, name in enumerate(found))
