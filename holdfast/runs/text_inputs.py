"""Texts as inputs of a trained model: turned into the tokens that it was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.vocabulary import padded
from holdfast.runs.model_facts import ModelFacts
from holdfast.tasks.task import TOKENS
from holdfast.tasks.task_names import read_task


def texts_in(x: Any) -> list[str]:
    """Return the texts that inputs are: a string or several of them; empty if they are anything else."""
    if isinstance(x, str):
        return [x]
    rows = x.tolist() if isinstance(x, np.ndarray) and x.ndim == 1 and x.dtype.kind in "UO" else x
    return list(rows) if isinstance(rows, (list, tuple)) and all(isinstance(row, str) for row in rows) else []


def tokens_of_texts(texts: list[str], facts: ModelFacts) -> tuple[Tensor, Tensor | None]:
    """Turn texts into tokens. Of a longer text the last ones are used.

    Args:
        texts: The texts.
        facts: What the model was trained on.

    Returns:
        The tokens [n, length], and the place of the last token in each row if the model predicts at every position,
        else None. A shorter text is filled with token 0: at its start, or at its end if the model predicts at every
        position.
    """
    known = facts.vocabulary
    if known is None:
        raise HoldfastError("x has texts, but the model was not trained on texts; give numbers like its training data")
    if "" in texts:
        raise HoldfastError(f"text {texts.index('')} is empty; give at least one character")
    (length,) = facts.inputs[0].shape
    rows = [known.encode(text)[-length:] for text in texts]
    if read_task(facts.task).targets != TOKENS:
        return torch.from_numpy(padded(rows, length)), None
    tokens = np.zeros((len(rows), length), np.int64)
    for place, row in zip(tokens, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(tokens), torch.tensor([len(row) - 1 for row in rows])


def output_texts(facts: ModelFacts) -> list[str]:
    """Return what each output of a model on texts stands for: a token of its vocabulary, or the name of a class."""
    known = facts.vocabulary
    return list(known.tokens) if known is not None and list(known.names) == facts.classes else facts.classes
