"""A recurrent network on tokens: the one of LEAF's Shakespeare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.models.zoo import TokenModel


class TokenLstm(nn.Module):
    """An embedding, LSTM layers, and a head on the last state or on the state at every position."""

    def __init__(self, tokens: int, embedding: int, hidden: int, layers: int, outputs: int, every: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, outputs)
        self.every = every

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits, [n, outputs], or [n, length, outputs] at every position."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states if self.every else states[:, -1])
        return logits


@dataclass(frozen=True)
class Lstm(TokenModel):
    """LEAF's Shakespeare network: an embedding of 8, two LSTM layers of 256, and a head.

    For a class per text, such as the next character, the head reads the last state; for next-token it reads the state
    at every position. In PyTorch's initialisation. With LEAF's 80 characters it has 819,920 parameters, 2,048 of which
    are PyTorch's second biases.
    """

    name: ClassVar[str] = "lstm"
    embedding: int = param(8, "numbers per token", low=1)
    hidden: int = param(256, "units of each layer", low=1)
    layers: int = param(2, "LSTM layers", low=1)
    tokens: int = param(0, "number of tokens; 0: those of the data set's vocabulary", low=0)

    def build_for_tokens(self, shape: tuple[int, ...], classes: int, tokens: int, every: bool) -> nn.Module:
        if len(shape) != 1:
            raise HoldfastError(
                f"lstm needs tokens, one axis of whole numbers, not inputs of shape {tuple(shape)}; use a network for "
                "images, or text"
            )
        known = self.tokens or tokens
        if not known:
            raise HoldfastError("lstm does not know how many tokens this data has: write lstm(tokens=N)")
        if known < tokens:
            raise HoldfastError(f"lstm has tokens={known}, but the data has {tokens}; leave tokens out")
        return TokenLstm(known, self.embedding, self.hidden, self.layers, classes, every)
