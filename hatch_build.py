"""Records in every package the commit that it is built from, so that ``holdfast --version`` and runs can name it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "holdfast/core/commit.txt"


class RecordCommit(BuildHookInterface):  # type: ignore[type-arg]
    """Adds ``commit.txt``; an sdist hands its own to the wheel that is built from it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file to a temporary folder and include it."""
        if version == "editable" or not (Path(self.root) / ".git").exists():
            return
        asked = subprocess.run(
            ["git", "-C", self.root, "describe", "--always", "--dirty"], capture_output=True, text=True
        )
        file = Path(tempfile.mkdtemp()) / "commit.txt"
        file.write_text(asked.stdout.strip() + "\n", encoding="utf-8")
        build_data["force_include"][str(file)] = PLACE
