"""Look up networks by name, and the contract of a named network.

A network returns logits, and its last layer is an ``nn.Linear`` called ``head``: the features are the head's input. A
network with residual stages declares in ``units`` which of its modules thaw together (see ``layout``).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from holdfast.core import rng
from holdfast.core.discovery import discover
from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, build, one
from holdfast.core.user_files import file_reference
from holdfast.models import factories


@dataclass(frozen=True)
class Model(Named):
    """A named architecture. Its fields are its sizes."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape`` (without the batch axis), in its published initialisation."""
        raise NotImplementedError


@dataclass(frozen=True)
class TokenModel(Model):
    """A named architecture that takes tokens: whole numbers, as they are."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return self.build_for_tokens(shape, classes, classes, every=False)

    def build_for_tokens(self, shape: tuple[int, ...], classes: int, tokens: int, every: bool) -> nn.Module:
        """Build the network.

        Args:
            shape: The shape of one input, without the batch axis.
            classes: The number of outputs.
            tokens: The number of tokens; 0 if it is not known.
            every: Whether there are outputs at every position, and not only for the whole text.

        Returns:
            The network, in its published initialisation.
        """
        raise NotImplementedError


def models() -> dict[str, type[Model]]:
    """Return every model by name: those of ``holdfast/models/networks`` and those that a user has written."""
    return discover("holdfast.models.networks", Model)


def model(text: str) -> Model:
    """Return the model that a text such as ``mlp(width=25, depth=1)`` names."""
    return build(one(text, "model"), models(), "model")


def takes_tokens(text: str) -> bool:
    """Tell whether the model that a text names takes tokens."""
    return isinstance(model(text), TokenModel)


def make(
    text: str, shape: tuple[int, ...], classes: int, seed: int = 0, tokens: int | None = None, every: bool = False
) -> nn.Module:
    """Build a network whose initial weights depend on the seed alone.

    Args:
        text: The model, such as ``cnn``, ``mlp(width=25, depth=1)`` or ``net.py:build``.
        shape: The shape of one input, without the batch axis.
        classes: The number of classes.
        seed: The seed of the initial weights.
        tokens: For a network on tokens, their number: 0 if it is not known, None: that of the classes.
        every: For a network on tokens, whether there are outputs at every position.

    Returns:
        The network, on the CPU.
    """
    reference = file_reference(text, "model")
    with rng.lent_generators(seed):
        try:
            if reference is not None:
                return factories.from_file(reference, shape, classes, seed)
            known = model(text)
            if isinstance(known, TokenModel):
                return known.build_for_tokens(shape, classes, classes if tokens is None else tokens, every)
            return known.build(shape, classes)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and "allocate" not in str(error):
                raise
            raise HoldfastError(f"the model {text} does not fit in memory: choose a smaller one") from error
