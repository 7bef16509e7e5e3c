"""``holdfast deploy``: what it writes, and what it refuses before anything is started."""

from __future__ import annotations

import re
import shlex
import stat
import tomllib

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from helpers.places import ROOT
from holdfast import HoldfastError
from holdfast.cli.deploy import DEALT, SIMULATED, command, split
from holdfast.cli.deployment_progress import DeploymentProgress
from holdfast.flower.app import known
from holdfast.flower.settings import DEPLOYMENT_FIELDS, DeploymentSettings
from holdfast.method.config import FIELDS, Config
from holdfast.method.config_text import setting_from_text


def deploy(*words):
    return CliRunner().invoke(command, [str(w) for w in words])


def refused(*words):
    result = deploy(*words)
    assert isinstance(result.exception, HoldfastError), result.output
    return str(result.exception)


def settings(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def test_init_writes_an_app_for_a_known_data_set(tmp_path):
    app = tmp_path / "app"
    result = deploy("init", app, "--method", "fedbug(0.4)+prox", "--data", "digits", "--nodes", 5, "--rounds", 7)
    assert result.exit_code == 0, result.output
    found = settings(app)
    assert (found["method"], found["data"], found["clients"], found["rounds"]) == ("fedbug(0.4)+prox", "digits", 5, 7)
    assert found.keys() <= {*FIELDS, *DEPLOYMENT_FIELDS, "out", "resume", "overwrite"}
    for name in ("client", "server"):
        lines = (app / "federation" / f"{name}_app.py").read_text().splitlines()
        assert f"app = {name}_app()" in lines
        assert len(lines) < 10
    text = (app / "README.md").read_text()
    assert "--enable-supernode-auth" in text
    assert "num-partitions=5" in text
    assert "FLWR_TELEMETRY_ENABLED=0" in text


@pytest.mark.parametrize(
    "flags",
    [
        (),
        (
            "--rounds",
            7,
            "--cohort",
            2,
            "--clients",
            4,
            "--public",
            "test",
            "--drift",
            "--states",
            "disk",
            "--lr",
            1e-05,
        ),
        ("--nodes", 4, "--min-clients", 2, "--on-failure", "retry", "--participation", 0.5, "--no-graphs"),
        ("--data", "own", "--classes", 3, "--augment"),
    ],
)
def test_init_writes_every_setting_and_reads_back_the_same_run(flags, tmp_path):
    app = tmp_path / "app"
    words = [str(app), "--method", "prox(0.01)+fedbug(0.4)", *map(str, flags)]
    assert deploy("init", *words).exit_code == 0
    asked = command.commands["init"].make_context("init", words)
    terms, values = split({k: v for k, v in asked.params.items() if k in {*FIELDS, *DEPLOYMENT_FIELDS}})
    found = settings(app)
    assert Config(**known(found)) == Config(**{"clients": terms.nodes or 3} | values)
    assert DeploymentSettings.known(found) == terms
    text = (app / "pyproject.toml").read_text()
    for name, field in (FIELDS | DEPLOYMENT_FIELDS).items():
        lines = re.findall(rf"^(?:# )?{name} =.*$", text, re.MULTILINE)
        left_out = name in SIMULATED or ("own" in flags and name in DEALT)
        assert len(lines) == (not left_out), name
        assert all(field.metadata["doc"] in line for line in lines)
        assert all(line.startswith("# ") == (name not in found) for line in lines)
    assert (found["out"], found["resume"], found["overwrite"]) == ("runs/federation", False, False)
    assert "; one of continue, retry\n" in text


def test_init_with_own_data_has_a_function_to_fill_in(tmp_path):
    app = tmp_path / "app"
    assert deploy("init", app, "--method", "fedavg", "--data", "own", "--classes", 4).exit_code == 0
    client = (app / "federation" / "client_app.py").read_text()
    assert "def data(client, node):" in client
    assert "CLASSES = 4" in client
    assert "allow_pickle=False" in client
    assert 'samples="/path' in (app / "README.md").read_text()


def test_init_refuses_what_would_not_run(tmp_path):
    app = tmp_path / "app"
    assert "did you mean fedavg" in refused("init", app, "--method", "fedavgg")
    assert "--classes is for --data own; digits has its own" in refused(
        "init", app, "--method", "fedavg", "--classes", 4
    )
    assert "needs --classes N" in refused("init", app, "--method", "fedavg", "--data", "own")
    assert "each node has its own" in refused(
        "init", app, "--method", "fedavg", "--data", "own", "--classes", 4, "--split", "iid"
    )
    assert "--data-dir is for a data set by name" in refused(
        "init", app, "--method", "fedavg", "--data", "own", "--classes", 4, "--data-dir", "x"
    )
    assert not app.exists()
    app.mkdir()
    (app / "x").write_text("")
    assert "not empty" in refused("init", app, "--method", "fedavg")


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (["init"], "init needs FOLDER and --method"),
        (["init", "--data", "own"], "init needs FOLDER, --method and --classes N"),
        (["init", "app", "--data", "own"], "init needs --method and --classes N"),
        (["init", "app"], "init needs --method"),
        (["keys"], "keys needs FOLDER and --host"),
        (["keys", "--host", "x"], "keys needs FOLDER"),
    ],
)
def test_all_that_is_missing_is_said_at_once(words, needs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(*words) == f"deploy {needs}; see: holdfast deploy {words[0]} --help"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "option"), [("init", "--method"), ("keys", "--host")])
def test_help_names_what_is_required(name, option):
    said = deploy(name, "--help").output
    assert f"{name} [OPTIONS] FOLDER\n" in said
    assert "[required]" in " ".join(said.partition(option)[2].split())[:120]


def test_the_end_of_a_local_run_says_how_to_see_it(tmp_path, capsys):
    out = tmp_path / "my runs"
    summary = {"rounds": 2, "final_accuracy": None}
    with DeploymentProgress(Config(), out, nodes=3, quiet=False, resume=False) as follow:
        pass
    follow.end(summary)
    assert capsys.readouterr().err.endswith(f"the run is in {out}; see it: holdfast report '{out}'\n")


def test_keys_are_made_for_the_host_and_kept_secret(tmp_path):
    folder = tmp_path / "keys"
    assert deploy("keys", folder, "--host", "fl.example.org", "--host", "10.0.0.7", "--nodes", 2).exit_code == 0
    server = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "127.0.0.1"]
    server.verify_directly_issued_by(x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()))
    for name in ("server.key", "node-0", "node-1"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    key = load_ssh_private_key((folder / "node-1").read_bytes(), None)
    assert key.public_key() == load_ssh_public_key((folder / "node-1.pub").read_bytes())
    assert "never written over" in refused("keys", folder, "--host", "x")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["fedavgg"], "did you mean fedavg"),
        (["fedavg", "--auth"], "--auth needs --tls"),
        (["fedavg", "--min-clients", "9"], "more than the cohort"),
        (["fedavg", "--nodes", "3", "--clients", "2"], "3 nodes for 2 clients"),
        (["fedavg", "--on-failure", "shrug"], "one of continue, retry"),
        (["fedavg", "--personal", "2"], "is for simulation"),
        (["fnr"], "needs public data"),
        (["--resume"], "--resume needs --out"),
        (["fedavg", "--data", "digitz"], "did you mean digits"),
    ],
)
def test_local_refuses_bad_settings_before_it_starts_anything(words, why, monkeypatch):
    monkeypatch.setattr("holdfast.flower.processes.Processes.start", lambda *_: pytest.fail("it started something"))
    assert why in refused("local", *words)


def test_local_keeps_a_run_that_is_there(tmp_path):
    (tmp_path / "notes").write_text("")
    assert "is not empty and holds no run" in refused("local", "fedavg", "--out", tmp_path)
    (tmp_path / "config.toml").write_text("")
    assert "already holds a run" in refused("local", "fedavg", "--out", tmp_path)
    assert "is a file" in refused("local", "fedavg", "--out", tmp_path / "notes")


def documented():
    """The commands of docs/deploy.md, word by word."""
    text = (ROOT / "docs" / "deploy.md").read_text().replace("\\\n", " ")
    return [shlex.split(line)[2:] for line in text.splitlines() if line.startswith("    holdfast deploy")]


@pytest.mark.parametrize("words", documented(), ids=" ".join)
def test_the_documented_commands_are_understood(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if words[0] == "local":
        with command.commands["local"].make_context("local", words[1:]) as context:
            flags = {k: v for k, v in context.params.items() if k in {*FIELDS, *DEPLOYMENT_FIELDS}}
            split(flags)
    else:
        result = deploy(*words)
        assert result.exit_code == 0, result.output
        assert (tmp_path / words[1]).is_dir()


def test_the_terms_of_the_documentation_are_those_of_the_command():
    text = (ROOT / "docs" / "deploy.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", text, re.MULTILINE))
    assert {name: setting_from_text(name, value, DEPLOYMENT_FIELDS) for name, value in rows.items()} == {
        name: f.default for name, f in DEPLOYMENT_FIELDS.items() if name != "nodes"
    }
