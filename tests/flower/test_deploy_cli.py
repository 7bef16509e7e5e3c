"""``holdfast deploy``: what it writes, and what it refuses before it starts anything."""

from __future__ import annotations

import math
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
from holdfast.cli.deploy import check_settings, command, separate
from holdfast.cli.deployment_progress import DeploymentProgress
from holdfast.cli.run import command as run_command
from holdfast.flower.app import config_values
from holdfast.flower.settings import DEPLOYMENT_FIELDS, DeploymentSettings
from holdfast.method.config import FIELDS, Config, with_role
from holdfast.method.config_text import config_to_toml, setting_from_text
from holdfast.runs.history import to_line
from holdfast.training.round_record import RoundRecord


def deploy(*words):
    return CliRunner().invoke(command, [str(w) for w in words])


def refused(*words, by=command):
    """Return the error with which a command ends."""
    result = CliRunner().invoke(by, [str(w) for w in words])
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
    deployment, values = separate({k: v for k, v in asked.params.items() if k in {*FIELDS, *DEPLOYMENT_FIELDS}})
    found = settings(app)
    decided = {"clients": deployment.nodes or 3} | ({} if "own" in flags else {"split": "dirichlet(0.3)"})
    assert Config(**config_values(found)) == Config(**decided | values)
    assert DeploymentSettings.among(found) == deployment
    text = (app / "pyproject.toml").read_text()
    for name, field in (FIELDS | DEPLOYMENT_FIELDS).items():
        lines = re.findall(rf"^(?:# )?{name} =.*$", text, re.MULTILINE)
        left_out = name in with_role("simulation") or ("own" in flags and name in with_role("named data"))
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


def test_settings_that_an_app_does_not_have():
    assert set(with_role("simulation")) == {"engine", "attack", "client_speeds", "deadline", "late"}
    assert set(with_role("named data")) == {"split", "data_dir", "public", "validation_from"}
    assert set(with_role("node")) == {"data_dir", "device"}


OWN = ("--data", "own", "--classes", 4)
ONLY_NAMED = "is only for a data set by name, and with --data own each node has its own: leave it out"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "fedavgg"], "unknown method 'fedavgg'; did you mean fedavg or fedagg?"),
        (
            ["--method", "fedavg", "--classes", 4],
            "--classes is only for --data own, and digits has its own: leave it out",
        ),
        (
            ["--method", "fedavg", "--data", "own"],
            "deploy init needs --classes N; see: holdfast deploy init --help",
        ),
        (
            ["--method", "median", *OWN, "--secure", "--cohort", 3],
            "--secure: median looks at single clients at the server, and secure aggregation shows it sums alone: leave "
            "one of them out",
        ),
        (["--method", "fedavg", *OWN, "--split", "iid"], f"--split {ONLY_NAMED}"),
        (["--method", "fedavg", *OWN, "--data-dir", "x"], f"--data-dir {ONLY_NAMED}"),
        (["--method", "fedavg", *OWN, "--public", "0.1"], f"--public {ONLY_NAMED}"),
    ],
)
def test_init_refuses_what_would_not_run(words, message, tmp_path):
    app = tmp_path / "app"
    assert refused("init", app, *words) == message
    assert not app.exists()


def test_init_writes_only_into_an_empty_folder(tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    (app / "x").write_text("")
    message = "exists and is not an empty folder: choose another folder"
    assert refused("init", app, "--method", "fedavg") == f"{app} {message}"
    assert refused("init", app / "x", "--method", "fedavg") == f"{app / 'x'} {message}"


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
def test_everything_that_is_missing_is_named_at_once(words, needs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(*words) == f"deploy {needs}; see: holdfast deploy {words[0]} --help"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "option"), [("init", "--method"), ("keys", "--host")])
def test_help_names_what_is_required(name, option):
    text = deploy(name, "--help").output
    assert f"{name} [OPTIONS] FOLDER\n" in text
    assert "[required]" in " ".join(text.partition(option)[2].split())[:120]


def test_the_end_of_a_local_run_says_how_to_see_it(tmp_path, capsys):
    out = tmp_path / "my runs"
    summary = {"rounds": 2, "final": None}
    with DeploymentProgress(Config(), out, nodes=3, quiet=False, resume=False) as progress:
        pass
    progress.end(summary)
    assert capsys.readouterr().err.endswith(f"the run is in {out}; to see it: holdfast report '{out}'\n")


@pytest.mark.parametrize("text", ["see [/x] in the log", "[bold]loud", "an :x: and a [link=x]"])
def test_what_a_node_or_a_user_writes_is_printed_as_it_is(text, tmp_path, capsys):
    """A node's exception must not end a deployment because it looks like markup."""
    record = RoundRecord(1, 1.0, 0.1, 1, 1, [0, 1], failed={1: f"it raised RuntimeError: {text}"})
    with DeploymentProgress(Config(data=text), tmp_path, nodes=2, quiet=False, resume=False) as progress:
        progress.progress.round(record)
        progress.progress.bar.update(progress.progress.task, description=text, state=text)
        progress.progress.bar.refresh()
    printed = " ".join(capsys.readouterr().err.split())
    assert f"round 1: no update from client 1: it raised RuntimeError: {text}" in printed
    assert f"on {text}, " in printed
    assert printed.count(text) >= 2


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
    message = f"{folder} is not empty, and keys are never overwritten: choose another folder"
    assert refused("keys", folder, "--host", "x") == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fedavgg"], "unknown method 'fedavgg'; did you mean fedavg or fedagg?"),
        (["fedavg", "--auth"], "--auth needs encrypted links: add --tls"),
        (
            ["fedavg", "--min-clients", "9"],
            "min_clients 9 is larger than the cohort of 2: lower --min-clients, or raise --cohort",
        ),
        (
            ["fedavg", "--nodes", "3", "--clients", "2"],
            "3 nodes are more than the 2 clients, and every node needs one: lower --nodes, or raise --clients",
        ),
        (["fedavg", "--on-failure", "shrug"], "deploy: on_failure must be one of continue, retry, not shrug"),
        (
            ["fedavg", "--personal", "2"],
            "over the network fine-tuned copies are scored on clients' own test samples: add --client-eval",
        ),
        (["fnr"], "fnr needs public data: hold some out with --public 0.05 or federate(..., public=0.05)"),
        (
            ["fedavg", "--owners", "0=x"],
            "owners: '0=x' is not a pair CLIENT=NODE_ID: write, for example, '0=812 1=3771'",
        ),
        (["fedavg", "--owners", "0=1 0=2"], "owners: a client has two nodes: keep one pair for each client"),
        (
            ["fedavg", "--owners", "3=1"],
            "owners: there is no client 3 among 3: number them from 0, or raise --clients",
        ),
        (
            ["fedavg", "--secure"],
            "--secure needs clients of 3 nodes in every round, and a cohort of 2 may be on two: use --cohort 3",
        ),
        (
            ["fedavg", "--secure", "--clients", "7", "--cohort", "5"],
            "--secure needs clients of 3 nodes in every round, and a cohort of 5 may be on two: use --cohort 6",
        ),
        (["fedavg", "--secure", "--nodes", "2"], "--secure needs 3 nodes, not 2: raise --nodes"),
        (
            ["scaffold+median", "--secure", "--cohort", "3"],
            "--secure: median looks at single clients at the server, and secure aggregation shows it sums alone: leave "
            "one of them out",
        ),
        (
            ["fnr", "--secure", "--cohort", "3", "--public", "0.1"],
            "--secure: fnr looks at single clients at the server, and secure aggregation shows it sums alone: leave "
            "one of them out",
        ),
        (
            ["feddf", "--secure", "--cohort", "3", "--public", "0.1"],
            "--secure: feddf looks at single clients at the server, and secure aggregation shows it sums alone: leave "
            "one of them out",
        ),
        (
            ["fedagg(mode=fixed_point)", "--secure", "--cohort", "3"],
            "--secure: fedagg looks at single clients at the server, and secure aggregation shows it sums alone: leave "
            "one of them out",
        ),
        (
            ["topk(0.1)", "--secure", "--cohort", "3"],
            "--secure: topk writes every update in a form that cannot be summed, and secure aggregation shows it sums "
            "alone: leave one of them out",
        ),
        (
            ["fedavg", "--secure", "--cohort", "3", "--client-eval", "--client-test", "0.2"],
            "--secure: scores by client show single clients: leave out --client-eval",
        ),
        (
            ["fedavg", "--secure", "--cohort", "3", "--drift"],
            "--secure: drift is measured from single clients' updates: leave out --drift",
        ),
        (
            ["fedavg", "--secure", "--cohort", "3", "--batchnorm", "local"],
            "--secure: with --batchnorm local single clients' models are scored: use average or frozen",
        ),
        (
            ["fedavg", "--secure", "--participation", "0.9"],
            "--secure: a round may draw the clients of one node alone: use --cohort in place of --participation",
        ),
        (
            ["fedavg", "--secure", "--cohort", "3", "--on-failure", "retry"],
            "--secure: the difference of two sums over almost the same clients shows the others: use --on-failure "
            "continue",
        ),
        (
            ["fedavg", "--secure", "--cohort", "3", "--checkpoint-every", "2"],
            "--secure: a round may be played again, and the difference of two sums over almost the same clients shows "
            "the others: leave out --checkpoint-every",
        ),
        (["fedavg", "--secure-norm", "5"], "--secure-norm bounds what enters a secure sum: add --secure"),
        (["--resume"], "--resume needs --out, the folder of the run"),
        (
            ["--resume", "--out", "x", "--overwrite"],
            "--resume and --overwrite cannot be used together: use one of them",
        ),
        (["fedavg", "--data", "digitz"], "unknown data set 'digitz'; did you mean digits?"),
    ],
)
def test_local_refuses_bad_settings_before_it_starts_anything(words, message, monkeypatch):
    monkeypatch.setattr("holdfast.flower.processes.Processes.start", lambda *_: pytest.fail("it started something"))
    assert refused("local", *words) == message


class Started(Exception):
    """The command has passed all checks."""


@pytest.fixture
def never_starts(monkeypatch):
    def stop(*_):
        raise Started

    monkeypatch.setattr("holdfast.flower.local_cluster.deploy", stop)


def write_leftovers(out):
    """What a start that was killed leaves behind: the history is there, the config is not."""
    out.mkdir()
    (out / "history.jsonl").write_text("")
    (out / "config.toml.part").write_text("rounds =")


def write_foreign_folder(out):
    out.mkdir()
    (out / "notes").write_text("")


def write_run(out):
    out.mkdir()
    (out / "config.toml").write_text(config_to_toml(Config()))
    (out / "history.jsonl").write_text("")


def write_finished_run(out):
    write_run(out)
    (out / "summary.json").write_text("{}")


NO_RUN = "is not empty and holds no run: choose another --out"
HOLDS = "already holds {} run: add --resume or --overwrite"


@pytest.mark.parametrize(
    ("write", "message", "with_overwrite"),
    [
        (write_leftovers, None, None),
        (write_foreign_folder, NO_RUN, NO_RUN),
        (write_run, HOLDS.format("an unfinished"), None),
        (write_finished_run, HOLDS.format("a finished"), None),
        (lambda out: out.write_text(""), *["is a file, not a folder for a run: choose another --out"] * 2),
        (lambda out: None, None, None),
    ],
    ids=["leftovers", "foreign folder", "run", "finished run", "file", "nothing"],
)
@pytest.mark.usefixtures("never_starts")
def test_local_uses_the_same_folders_as_run(write, message, with_overwrite, tmp_path):
    """``deploy local`` and ``run`` refuse the same folders with the same words, with and without --overwrite."""
    out = tmp_path / "run"
    small = ["fedavg", "--clients", 3, "--rounds", 1, "--epochs", 1, "--model", "linear", "--out", out]
    write(out)
    for flags, expected in (([], message), (["--overwrite"], with_overwrite)):
        if expected is None:
            assert isinstance(deploy("local", *small, *flags).exception, Started)
            if flags:
                done = CliRunner().invoke(run_command, [str(w) for w in [*small, *flags]])
                assert done.exit_code == 0, done.output
        else:
            assert refused("local", *small, *flags) == f"{out} {expected}"
            assert refused(*small, *flags, by=run_command) == f"{out} {expected}"


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
            separate(flags)
    else:
        result = deploy(*words)
        assert result.exit_code == 0, result.output
        assert (tmp_path / words[1]).is_dir()


def test_the_documented_settings_and_defaults_are_those_of_the_command():
    text = (ROOT / "docs" / "deploy.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", text, re.MULTILINE))
    assert {name: setting_from_text(name, value, DEPLOYMENT_FIELDS) for name, value in rows.items()} == {
        name: f.default for name, f in DEPLOYMENT_FIELDS.items() if name != "nodes"
    }


def test_a_deployment_says_while_it_runs_that_it_exploded(tmp_path, capsys):
    """In the first round already, by the rule of all runs: the loss of guessing stands for the start."""
    config = Config(model="linear", clients=3, lr=50)
    records = [RoundRecord(t, 1e9, 0.1, 1, 1, [0, 1]) for t in (1, 2, 3)]
    _, guessing = check_settings(config, DeploymentSettings(), 3)
    assert guessing == pytest.approx(math.log(10))
    with DeploymentProgress(config, tmp_path, 3, quiet=False, resume=False, guessing=guessing) as progress:
        (tmp_path / "history.jsonl").write_text("".join(map(to_line, records)))
        progress.update()
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("exploded by round 3: for 3 rounds in a row the training loss was above 10 times that of") == 1
