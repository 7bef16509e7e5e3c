"""Notebooks: whether this is one, and text in a cell's output that can be replaced."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from holdfast.core.errors import HoldfastError


def in_notebook() -> bool:
    """Tell whether this code runs in a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def shows_progress(wanted: bool | None) -> bool:
    """Tell whether to show progress: as the user wants, by default only in a notebook."""
    if wanted is None:
        return in_notebook() and find_spec("rich") is not None
    if wanted and find_spec("rich") is None:
        raise HoldfastError("progress needs the package rich: pip install rich, or leave progress out")
    return wanted


class CellOutput:
    """Something of ``rich`` in a cell's output; showing it again replaces it.

    Notebooks know no cursor that moves up, so that live displays for terminals do not work there.
    """

    def __init__(self, width: int = 100) -> None:
        self.width = width
        self.handle: Any = None

    def show(self, renderable: Any) -> None:
        """Show something instead of what was shown before."""
        from io import StringIO

        from IPython.display import display
        from rich.console import Console

        console = Console(file=StringIO(), width=self.width, force_terminal=False, force_jupyter=False)
        console.print(renderable)
        content = {"text/plain": console.file.getvalue().rstrip()}  # type: ignore[attr-defined]
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)
