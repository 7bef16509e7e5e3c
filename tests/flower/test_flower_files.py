"""Files of code in a deployment: the app carries them, and a node executes no others."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import pytest
from torch import nn

from helpers.commands import config, good
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import SMALL, MemoryGrid
from helpers.own_files import FILES, OWN, write_files
from holdfast import Config, federate, from_arrays
from holdfast.flower.app import carried, client_app, serve
from holdfast.flower.local_cluster import LinkSecurity, LocalCluster
from holdfast.runs.code_files import recorded
from holdfast.runs.history import read_history
from holdfast.runs.run import run
from holdfast.runs.setup import network

pytestmark = pytest.mark.usefixtures("elsewhere")
NAMED = {"model": "net.py:build", "data": "mydata.py:load", "imports": "damp.py"}


@pytest.fixture(autouse=True)
def files_here(elsewhere) -> Path:
    write_files()
    return Path.cwd()


def test_an_app_carries_its_files():
    good("deploy", "init", "app", "--method", "toy-damp", *OWN)
    assert {p.name: p.read_text() for p in Path("app/federation/files").iterdir()} == FILES
    project = Path("app/pyproject.toml").read_text()
    assert 'model = "net.py:build"' in project
    assert 'imports = "damp.py"' in project
    assert str(Path.cwd()) not in project
    for name in ("client", "server"):
        text = Path(f"app/federation/{name}_app.py").read_text()
        assert f'app = {name}_app(folder=Path(__file__).parent / "files")\n' in text
        compile(text, name, "exec")
    assert "from pathlib import Path\n" in text


def test_an_app_of_ones_own_data_carries_its_model():
    good("deploy", "init", "app", "--method", "fedavg", "--data", "own", "--classes", "3", "--model", "net.py:build")
    text = Path("app/federation/client_app.py").read_text()
    assert 'client_app(data, classes=CLASSES, folder=Path(__file__).parent / "files")\n' in text
    compile(text, "client_app.py", "exec")


def test_an_app_without_files_is_as_before():
    good("deploy", "init", "app", "--method", "fedavg")
    assert Path("app/federation/client_app.py").read_text().endswith("\n\napp = client_app()\n")
    assert not Path("app/federation/files").exists()


def test_nodes_with_their_own_copies_give_the_simulation():
    write_files(Path("node"))
    values = {**SMALL, **NAMED}
    settings = {k: v for k, v in asdict(recorded(Config(**values, method="toy-damp"))).items() if v is not None}
    grid = MemoryGrid(settings, 4)
    grid.app = client_app(folder=Path("node").absolute())
    result = serve(grid, Config(**settings), {"nodes": 4, "patience": 1.0, "timeout": 0.3, **settings})
    simulated = run("toy-damp", engine="loop", **values)
    assert [r.test_loss for r in result.history] == pytest.approx([r.test_loss for r in simulated.history], rel=1e-4)


def test_a_node_executes_no_file_that_its_app_does_not_carry():
    named = recorded(Config(**NAMED))
    with raises_exactly(
        "the run names net.py, mydata.py, damp.py, but the node's app has no files of code: write the app with "
        "holdfast deploy init, or give their folder to client_app(folder=...)"
    ):
        carried(named, None)
    Path("node").mkdir()
    Path("node/net.py").write_text("changed = True\n")
    moved = carried(recorded(Config(model="net.py:build")), Path("node").absolute())
    with raises_exactly(
        f"{Path.cwd()}/node/net.py has changed since the run was started: restore it (the run folder keeps a copy in "
        "files/net.py)"
    ):
        network(moved, None, federate(from_arrays([[0.0] * 3] * 4, [0, 1, 0, 1]), "iid", clients=2))
    assert carried(Config(), None) == Config()


def test_a_factory_of_an_app_may_take_shape_and_classes():
    def wide(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))

    grid = MemoryGrid({**SMALL, "method": "fedavg"}, 4)
    grid.app = client_app(model=wide)
    values = {k: v for k, v in SMALL.items() if k != "model"}
    result = serve(grid, Config(**values), {"nodes": 4, "patience": 1.0, "timeout": 0.3, **values}, model=wide)
    assert result.config.model == "wide"
    simulated = run("fedavg", model=wide, engine="loop", **values)
    assert result.history[-1].test_loss == pytest.approx(simulated.history[-1].test_loss, rel=1e-4)


def test_a_local_deployment_with_files_on_real_processes(tmp_path):
    """Also resumed; its config names the user's files, not those of the app."""
    words = ("--nodes", "2", "--cohort", "2", "--steps", "2", "--device", "cpu", "--quiet", "--out", "here")
    good("deploy", "local", "toy-damp", *OWN, *words, "--rounds", "1")
    good("deploy", "local", "--resume", "--out", "here", "--rounds", "2", "--quiet", "--nodes", "2")
    assert all(f" {tmp_path}/{name}" in config("here")["files"] for name in FILES)
    some = {"clients": 2, "cohort": 2, "steps": 2, "rounds": 2, "engine": "loop"}
    simulated = run("toy-damp", **NAMED, **some)
    found = [record.test_loss for record in read_history(Path("here/history.jsonl"), 2)]
    assert found == pytest.approx([r.test_loss for r in simulated.history], rel=1e-4)


def test_the_app_of_init_runs_where_its_author_s_files_are_gone(tmp_path):
    good("deploy", "init", "app", "--method", "toy-damp", *OWN, "--nodes", "1", "--clients", "2", "--rounds", "1")
    project = Path("app/pyproject.toml")
    project.write_text(project.read_text().replace("runs/federation", str(tmp_path / "run")))
    for name in FILES:
        Path(name).unlink()
    local = LocalCluster(tmp_path / "flower", tmp_path / "run", 1, LinkSecurity())
    with local.processes:
        local.start()
        local.launch(Path("app").absolute())
        deadline = time.monotonic() + 180
        while not Path("run/summary.json").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
    assert [r.failed for r in read_history(Path("run/history.jsonl"), 1)] == [{}]
    assert {p.name for p in Path("run/files").iterdir()} == {*FILES}
