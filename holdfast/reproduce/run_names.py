"""The name of a cell's run folder: equal settings, equal name, wherever and whenever they are run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from holdfast.comparison.labels import slug
from holdfast.method.config import Config, lasting_settings, with_role


def run_name(config: Config) -> str:
    """Return the name of the folder for all seeds of a run.

    It depends on the settings that differ from their defaults, so a setting that is added later changes no name.

    >>> run_name(Config(rounds=3)) == run_name(Config(rounds=3, seed=1, device="cpu")) != run_name(Config())
    True
    """
    digest = hashlib.sha256(json.dumps(settings_of_run(config), sort_keys=True).encode()).hexdigest()[:10]
    return f"{slug(f'{config.method} {config.data}')[:50]}-{digest}"


def settings_of_run(config: Config) -> dict[str, Any]:
    """Return what is run, as far as it differs from the defaults; the seed and the place do not count."""
    return lasting_settings(config, without=("seed", *with_role("place")))
