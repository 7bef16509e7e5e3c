"""Real deployments wait less between messages."""

import os

import pytest

from helpers.places import EAGER_NODES


@pytest.fixture(autouse=True)
def eager_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the nodes of every deployment ask for messages often; see ``helpers/eager_nodes``."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(EAGER_NODES), os.environ.get("PYTHONPATH")])))


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let noise and cohorts follow from the seed, as in a simulation."""
    from holdfast.flower import app
    from holdfast.flower.coordinator import Coordinator

    monkeypatch.setattr(app, "Coordinator", lambda setup, grid, settings, secret: Coordinator(setup, grid, settings))
    monkeypatch.setattr("holdfast.flower.node.from_system", None)
