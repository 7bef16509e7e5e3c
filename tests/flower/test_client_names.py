"""Clients on nodes are called by their names: those of the data set, or those that the nodes state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import good
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import MemoryGrid, about, on_grid
from holdfast.cli.deploy import check_settings
from holdfast.comparison.single_run import study_of_run
from holdfast.flower.app import client_app, serve
from holdfast.flower.messages import ENROL
from holdfast.flower.node_data import declared_names, server_federation
from holdfast.flower.settings import DeploymentSettings
from holdfast.method.config import Config
from holdfast.reports.page_sections import split_text
from holdfast.runs.folder import stored_names
from holdfast.runs.run import run

pytestmark = pytest.mark.usefixtures("elsewhere")
HOSPITALS = """
import numpy as np
import holdfast

def load():
    draw = np.random.default_rng(5)
    x = draw.normal(40, 3, (80, 4))
    names = np.array(["Aachen", "Bonn", "Charité", "Dresden", "Essen"])[np.arange(80) % 5]
    return holdfast.from_arrays(x, (x[:, 0] > 40).astype(int), groups=names)
"""
SHORT: dict[str, Any] = {"model": "linear", "epochs": 1, "rounds": 2, "device": "cpu"}
OWN = {**SHORT, "data": "own", "clients": 3, "cohort": 3, "method": "fedavg"}


@pytest.fixture
def data() -> str:
    Path("hospitals.py").write_text(HOSPITALS)
    return f"{Path('hospitals.py').absolute()}:load"


def own_grid(names: list[str], trouble: Any = lambda request, reply: reply) -> MemoryGrid:
    """A node per client with data of its own, which it calls by a name."""

    def read(client: int, node: Any) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.default_rng(client)
        return draw.normal(size=(12, 4)).astype("float32"), np.arange(12) % 2

    grid = MemoryGrid(OWN, len(names), trouble)
    grid.app = client_app(read, classes=2)
    for context, name in zip(list(grid.contexts.values()), names, strict=True):
        context.node_config |= {"clients": name} if name else {}
    return grid


def on_own_grid(grid: MemoryGrid, **settings: Any) -> Any:
    config = Config(**OWN)
    federation = server_federation((np.zeros((4, 4), "float32"), np.array([0, 1, 0, 1])), None, config, 2)
    values = {"nodes": 3, "patience": 0.5, "timeout": 0.3, **OWN, **settings}
    return serve(grid, config, values, federation)


def test_nodes_split_data_that_brings_clients_as_the_server_does(data: str) -> None:
    settings = {**SHORT, "data": data, "split": None, "clients": None, "cohort": 5}
    grid = MemoryGrid({k: v for k, v in settings.items() if v is not None} | {"method": "scaffold"}, 3)
    grid.app = client_app(settings=settings | {"method": "scaffold"})
    found = on_grid("scaffold", grid, nodes=3, **settings)
    assert (found.config.split, found.config.clients) == ("given", 5)
    alone = run("scaffold", engine="loop", **settings)
    np.testing.assert_allclose(found.w.cpu(), alone.w.cpu(), atol=1e-6)
    assert found.facts.mean == alone.facts.mean


def test_a_client_that_fails_is_named(data: str) -> None:
    settings = {**SHORT, "data": data, "split": "given", "clients": 5, "cohort": 5}
    grid = MemoryGrid(settings | {"method": "fedavg"}, 5, lambda q, r: None if about(q, 1, 2) else r)
    grid.app = client_app(settings=settings | {"method": "fedavg"})
    with pytest.raises(Exception, match=r"client Charité: no reply within 0\.3 s"):
        on_grid("fedavg", grid, nodes=5, **settings, min_clients=5, retries=0)


def test_nodes_name_their_clients(caplog: pytest.LogCaptureFixture) -> None:
    found = on_own_grid(own_grid(["Aachen", "", "Charité"]), out="here")
    assert [record.failed for record in found.history] == [{}, {}]
    assert json.loads(Path("here/split.json").read_text())["names"] == ["Aachen", "1", "Charité"]
    assert [stored_names(Path("here"))(i) for i in range(4)] == ["Aachen", "1", "Charité", "3"]
    assert [stored_names(Path("nowhere"))(i) for i in range(2)] == ["0", "1"]


def test_a_name_belongs_to_one_client(caplog: pytest.LogCaptureFixture) -> None:
    grid = own_grid(["Aachen", "Aachen", "2"])
    on_own_grid(grid)
    second = sorted(grid.contexts)[1]
    assert f"node {second} is refused: it calls client 1 Aachen, and another client has that name" in caplog.messages
    grid = own_grid(["2", "Bonn", ""])
    on_own_grid(grid)
    first = sorted(grid.contexts)[0]
    assert f"node {first} is refused: it calls client 0 2, and another client has that name" in caplog.messages


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a\x1b[31m"], "it calls client 2 by a name that is too long or cannot be printed"),
        (["x" * 100], "it calls client 2 by a name that is too long or cannot be printed"),
        (["Ulm", "Bonn"], "it has 2 names for 1 clients"),
    ],
)
def test_names_from_a_node_are_checked(names: list[str], why: str, caplog: pytest.LogCaptureFixture) -> None:
    def trouble(request: Any, reply: Any) -> Any:
        numbers = reply.content["numbers"]
        if request.metadata.message_type == ENROL and numbers["clients"] == [2]:
            numbers["names"] = names
        return reply

    grid = own_grid(["Aachen", "Bonn", "Ulm"], trouble)
    on_own_grid(grid)
    third = sorted(grid.contexts)[2]
    assert f"node {third} is refused: {why}" in caplog.messages


def test_names_in_the_settings_of_a_node() -> None:
    assert declared_names({"clients": "Bonn, Ulm"}, [1, 4], 6) == ("0", "Bonn", "2", "3", "Ulm", "5")
    assert declared_names({}, [1, 4], 6) == ()
    with raises_exactly(
        "the node names 1 clients, but has 2: write one name for each, separated by commas, in clients of --node-config"
    ):
        declared_names({"clients": "Bonn"}, [1, 4], 6)
    with raises_exactly("clients: two clients are called 'Bonn'; give every client its own name"):
        declared_names({"clients": "Bonn,Bonn"}, [1, 4], 6)


def test_a_deployment_has_the_clients_of_its_data(data: str) -> None:
    config, _ = check_settings(Config(data=data, model="linear"), DeploymentSettings(nodes=3), 3)
    assert (config.split, config.clients, config.normalisation) == ("given", 5, "federated")
    config, _ = check_settings(Config(model="linear"), DeploymentSettings(nodes=3), 3)
    assert (config.split, config.clients) == ("dirichlet(0.3)", 3)
    good("deploy", "init", "app", "--method", "fedavg", "--data", "hospitals.py:load")
    text = Path("app/pyproject.toml").read_text()
    assert "\nclients = 5 " in text
    assert '\nsplit = "given" ' in text
    good("deploy", "init", "plain", "--method", "fedavg", "--nodes", "4")
    assert "\nclients = 4 " in Path("plain/pyproject.toml").read_text()
    good("deploy", "init", "own", "--method", "fedavg", "--data", "own", "--classes", "2")
    assert "\nclients = 3 " in Path("own/pyproject.toml").read_text()
    assert 'clients="Hospital A"' in Path("own/README.md").read_text()
    assert "Hospital" not in Path("plain/README.md").read_text()


def test_the_page_names_clients_whose_updates_were_left_out(data: str) -> None:
    settings = {**SHORT, "data": data, "split": "given", "clients": 5, "cohort": 5}
    grid = MemoryGrid(settings | {"method": "fedavg"}, 5, lambda q, r: None if about(q, 1, 2) else r)
    grid.app = client_app(settings=settings | {"method": "fedavg"})
    on_grid("fedavg", grid, nodes=5, **settings, out="here")
    text = split_text(study_of_run(Path("here")))
    assert text.endswith(" The update of client Charité was left out once: no reply within 0.3 s.")
