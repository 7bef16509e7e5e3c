"""Runs that an earlier version started and that would continue with another meaning: they are refused.

A change that alters what a config means raises the format of ``config.toml``. It is listed here if a setting changed,
and by the part itself (``Part.changed_since``) if a part changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.config_text import FORMAT, config_format
from holdfast.method.method import Method
from holdfast.runs.folder import RunFolder
from holdfast.runs.run_files import CONFIG, SPLIT


class SettingChange(NamedTuple):
    """A setting whose meaning changed.

    Attributes:
        format: The first format of ``config.toml`` with the new meaning.
        applies: Tells whether a run uses the setting.
        before: What the setting did before, to complete the sentence "in an earlier version ...".
    """

    format: int
    applies: Callable[[Config], bool]
    before: str


CHANGES = (
    SettingChange(
        3,
        lambda config: config.participation is not None,
        "participation added one client to a round in which nobody was drawn, rather than drawing again",
    ),
)


def changed_meaning(folder: RunFolder, config: Config, method: Method) -> str | None:
    """Return what an earlier version did otherwise in the run that is here.

    Args:
        folder: The run on disk.
        config: Its config.
        method: Its method.

    Returns:
        The old behaviour, or None if the run means the same today or has no rounds yet.
    """
    version = config_format(folder.path / CONFIG)
    if version >= FORMAT or not (folder.finished or any(folder.checkpoint.glob("round-*.json"))):
        return None
    settings = [c.before for c in CHANGES if version < c.format and c.applies(config)]
    empty = _may_have_empty_clients(folder)
    parts = [before for part in method.parts if (before := part.changed_since(version, method, empty))]
    return next(iter(settings + parts), None)


def refuse_changed_meaning(folder: RunFolder, config: Config, method: Method) -> None:
    """Refuse to continue a run that would mean something else from here on.

    Args:
        folder: The run on disk.
        config: The config with which it is resumed; a finished run that gets no more rounds is not continued.
        method: Its method.
    """
    if folder.finished and config.rounds == folder.stored().rounds:
        return
    before = changed_meaning(folder, config, method)
    if before:
        raise HoldfastError(
            f"the run in {folder.path} was started by an earlier version, in which {before}: start over with "
            "--overwrite, or finish it with that version"
        )


def _may_have_empty_clients(folder: RunFolder) -> bool:
    """Tell whether some clients have no samples; True if the folder does not say."""
    try:
        counts = json.loads((folder.path / SPLIT).read_text(encoding="utf-8"))["counts"]
        return any(sum(row) == 0 for row in counts)
    except (OSError, ValueError, KeyError, TypeError):
        return True
