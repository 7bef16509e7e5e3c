"""Whether several clients are computed at once, and how a module learns that it must not look at values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def batched() -> bool:
    """Tell whether several clients are computed at once, by ``vmap``."""
    return torch._C._functorch.maybe_current_level() is not None


@contextmanager
def without_shortcuts() -> Iterator[None]:
    """Let ``torch.compiler.is_compiling`` be true for the duration of a block.

    Modules ask it before they take a shortcut that depends on values, such as Hugging Face's, which leave out an
    attention mask that hides nothing. Under ``vmap`` a value differs between clients, so that such a branch fails.
    """
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before
