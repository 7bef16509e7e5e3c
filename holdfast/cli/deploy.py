"""``holdfast deploy``: a federation on several machines with Flower, or on one machine as if on several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from holdfast.cli.help import Whole
from holdfast.cli.options import given, settings
from holdfast.core.errors import HoldfastError
from holdfast.flower.settings import DEPLOYMENT_FIELDS, DeploymentSettings
from holdfast.method.config import FIELDS, Config
from holdfast.method.method import as_method
from holdfast.runs.folder import CONFIG, SUMMARY, RunFolder, new_folder
from holdfast.runs.meaning_changes import refuse_changed_meaning
from holdfast.runs.resume import resumed_config

LOCAL_NODES = 3


@click.group("deploy", cls=Whole)
def command() -> None:
    """Run a federation on several machines with Flower, or on one machine as if on several."""


FOLDER = click.argument("folder", type=click.Path(path_type=Path), required=False, metavar="FOLDER")
ONE_EACH = click.option("--clients", metavar="N", help="clients of the federation  [default: one per node]")
ELSEWHERE = ("method", "clients", "engine")  # settings of a run that are said otherwise here
SIMULATED = ("engine", "personal", "personal_what")  # settings of a run that an app does not have
DEALT = ("split", "data_dir", "public")  # settings of data that are not the nodes' own


@command.command("local")
@click.argument("method", required=False)
@ONE_EACH
@settings(*(name for name in FIELDS if name not in ELSEWHERE))
@settings(of=DEPLOYMENT_FIELDS)
@click.option("--tls", is_flag=True, help="encrypt the links, with certificates made for this run")
@click.option("--auth", is_flag=True, help="nodes prove who they are, with keys made for this run; needs --tls")
@click.option("--restarts", type=int, default=0, help="how often a server that dies is started again  [default: 0]")
@click.option("--out", type=click.Path(path_type=Path), help="folder of the run  [default: a new one in runs/]")
@click.option("--resume", is_flag=True, help="go on with the run in --out; flags left out are as it was started")
@click.option("--overwrite", is_flag=True, help="replace the run in --out")
@click.option("--json", "as_json", is_flag=True, help="the last line of stdout is the summary as one JSON object")
@click.option("--quiet", is_flag=True, help="no progress")
def local(
    method: str | None,
    tls: bool,
    auth: bool,
    restarts: int,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Run METHOD on this machine: a server and some nodes, each a process of its own, on the loopback."""
    from holdfast.flower import require_flower

    require_flower()
    from holdfast.cli.deployment_progress import DeploymentProgress
    from holdfast.flower.local_cluster import LinkSecurity, deploy

    terms, asked = split({**flags, "method": method})
    nodes = terms.nodes or LOCAL_NODES
    if resume and (out is None or overwrite):
        raise HoldfastError("--resume needs --out, the folder of the run, and no --overwrite")
    config = described(asked, out if resume else None, nodes)
    checked(config, terms)
    out = out or new_folder(Path("runs"), config.method, config.data)
    safety = LinkSecurity(tls, auth)
    if not resume:
        refuse_a_run(out, overwrite)
    how = {"resume": resume, "overwrite": overwrite}
    told = {k: v for k, v in (asdict(config) | asdict(terms)).items() if v is not None}
    follow = DeploymentProgress(config, out, nodes, quiet, resume)
    with follow:
        deploy(told | how, out, nodes, safety, restarts, on_wait=follow.look)
    summary = json.loads((out / SUMMARY).read_text())
    follow.end(summary)
    if as_json:
        click.echo(json.dumps(summary))
    return 0


def split(flags: dict[str, Any]) -> tuple[DeploymentSettings, dict[str, Any]]:
    """What the user set: the terms, and the run's own settings."""
    terms = {k: v for k, v in flags.items() if k in DEPLOYMENT_FIELDS}
    return DeploymentSettings(**given(terms, of=DEPLOYMENT_FIELDS)), given(
        {k: v for k, v in flags.items() if k not in DEPLOYMENT_FIELDS}
    )


def described(asked: dict[str, Any], stored: Path | None, nodes: int) -> Config:
    """The run that is asked for: anew, with a client on each node unless told otherwise, or as it was stored."""
    if stored is not None:
        method = asked.pop("method", None)
        config = resumed_config(RunFolder(stored).stored(), asked, method)
        refuse_changed_meaning(RunFolder(stored), config, as_method(config.method))
        return config
    return Config(**{"clients": nodes} | asked | {"engine": "flower"})


def checked(config: Config, terms: DeploymentSettings) -> None:
    """Find every bad setting before anything is started."""
    from holdfast.method.method import Method
    from holdfast.runs.setup import prepare_simulation

    terms.refuse(config)
    prepare_simulation(config.changed(engine="loop"), Method.parse(config.method), None, None)


def refuse_a_run(out: Path, overwrite: bool) -> None:
    """What the server would refuse, before it is started."""
    if out.exists() and not out.is_dir():
        raise HoldfastError(f"{out} is a file, not a folder for a run: choose another --out")
    if (out / CONFIG).exists() and not overwrite:
        raise HoldfastError(f"{out} already holds a run: add --resume or --overwrite")
    if out.exists() and any(out.iterdir()) and not (out / CONFIG).exists():
        raise HoldfastError(f"{out} is not empty and holds no run: choose another --out")


@command.command("init")
@FOLDER
@click.option("--method", help="the method: a sum of parts, such as fedbug(0.4)+feddyn(0.01)  [required]")
@ONE_EACH
@settings(*(name for name in FIELDS if name not in (*ELSEWHERE, *SIMULATED)))
@settings(of=DEPLOYMENT_FIELDS)
@click.option("--classes", type=click.IntRange(2), help="with --data own: the number of classes")
@click.option("--host", default="server.example.org", help="the server's name or address, for the instructions")
def init(folder: Path | None, method: str | None, classes: int | None, host: str, **flags: Any) -> None:
    """Write a Flower app into FOLDER: settings, a client and a server app, and how to start them.

    --data own: the nodes bring their own data; the app has a function that reads them, for you to fill in.
    """
    from holdfast.flower.app_template import OWN, readme, write
    from holdfast.method.method import Method

    classless = flags["data"] == OWN and classes is None
    if folder is None or method is None or classless:
        raise lacking("init", {"FOLDER": folder, "--method": method} | ({"--classes N": None} if classless else {}))
    terms, asked = split(flags)
    config = Config(**{"clients": terms.nodes or LOCAL_NODES} | asked | {"method": method})
    Method.parse(method)
    if classes is not None and config.data != OWN:
        raise HoldfastError(f"--classes is for --data {OWN}; {config.data} has its own: leave it out")
    own = DEALT if config.data == OWN else ()
    for name in own:
        if name in asked:
            flag = name.replace("_", "-")
            raise HoldfastError(
                f"--{flag} is for a data set by name; with --data {OWN} each node has its own: leave it out"
            )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HoldfastError(f"{folder} is there already and not empty: choose another folder")
    told = {k: v for k, v in asdict(config).items() if k not in (*SIMULATED, *own)} | asdict(terms)
    nodes = terms.nodes or config.clients
    write(folder, told | {"out": "runs/federation", "resume": False, "overwrite": False}, classes)
    (folder / "README.md").write_text(readme(folder.name, host, nodes, classes is not None))
    click.echo(f"the app is in {folder}; {folder / 'README.md'} says how to start it")


def lacking(name: str, needed: Mapping[str, object]) -> HoldfastError:
    """All that is missing at once; click would name one thing at a time."""
    missing = [word for word, value in needed.items() if not value]
    words = ", ".join(missing[:-1]) + " and " * (len(missing) > 1) + missing[-1]
    return HoldfastError(f"deploy {name} needs {words}; see: holdfast deploy {name} --help")


@command.command("keys")
@FOLDER
@click.option("--host", "hosts", multiple=True, help="the server's name or address; may be repeated  [required]")
@click.option(
    "--nodes", type=click.IntRange(min=1), default=LOCAL_NODES, help=f"keys to make  [default: {LOCAL_NODES}]"
)
def keys(folder: Path | None, hosts: tuple[str, ...], nodes: int) -> None:
    """Make a certificate for the server and a key for each node, in FOLDER."""
    if folder is None or not hosts:
        raise lacking("keys", {"FOLDER": folder, "--host": hosts})
    from holdfast.flower import require_flower

    require_flower()
    from holdfast.flower.certificates import certificates, node_key

    if folder.exists() and any(folder.iterdir()):
        raise HoldfastError(f"{folder} is not empty: keys are never written over; choose another folder")
    certificates(folder, list(hosts))
    for number in range(nodes):
        node_key(folder / f"node-{number}")
    click.echo(f"in {folder}: ca.crt for all, server.crt and server.key for the server, a key for each node")
