"""``holdfast deploy``: run a federation on several machines with Flower, or try it out on one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.given_words import CommandWithWords, command_again, given_words
from holdfast.cli.help import Whole
from holdfast.cli.options import WholeNumber, given, settings
from holdfast.cli.switches import CommandWithSwitches
from holdfast.core.errors import HoldfastError
from holdfast.core.os_errors import kept_on_os_errors
from holdfast.flower.host_names import check_host
from holdfast.flower.secure_rules import check_secure
from holdfast.flower.settings import DEPLOYMENT_FIELDS, DeploymentSettings
from holdfast.method.config import FIELDS, Config, with_role
from holdfast.method.method import as_method
from holdfast.runs.code_files import for_resume, in_folder, recorded, sources
from holdfast.runs.file_imports import import_parts
from holdfast.runs.folder import RunFolder, folder_for
from holdfast.runs.meaning_changes import refuse_changed_meaning
from holdfast.runs.resume import refuse_without_objects, resumed_config
from holdfast.runs.summary_file import read_summary

if TYPE_CHECKING:
    from holdfast.data.dataset import DataSet

LOCAL_NODES = 3
OTHER_FLAGS = ("method", "clients", "engine")  # settings of a run for which these commands have flags of their own


@click.group("deploy", cls=Whole)
def command() -> None:
    """Run a federation on several machines with Flower, or try it out on one."""


FOLDER = click.argument("folder", type=click.Path(path_type=Path), required=False, metavar="FOLDER")
CLIENTS = click.option(
    "--clients", metavar="N", help="number of clients  [default: those of the data, or one per node]"
)


@command.command("local", cls=CommandWithWords)
@click.argument("method", required=False)
@CLIENTS
@settings(*(name for name in FIELDS if name not in OTHER_FLAGS))
@settings(of=DEPLOYMENT_FIELDS)
@click.option("--tls", is_flag=True, help="encrypt the links with certificates made for this run")
@click.option("--auth", is_flag=True, help="let nodes identify themselves with keys made for this run; needs --tls")
@click.option(
    "--restarts",
    metavar="N",
    type=WholeNumber(low=0),
    default=0,
    help="how many times to restart a server that dies  [default: 0]",
)
@click.option("--out", type=click.Path(path_type=Path), help="folder of the run  [default: a new one in runs/]")
@click.option("--resume", is_flag=True, help="resume the run in --out, with the settings it was started with")
@click.option("--overwrite", is_flag=True, help="replace the run in --out")
@click.option("--json", "as_json", is_flag=True, help="print the summary as one JSON object in the last line of stdout")
@click.option("--quiet", is_flag=True, help="show no progress")
def local(
    method: str | None, out: Path | None, resume: bool, overwrite: bool, as_json: bool, quiet: bool, **flags: Any
) -> int:
    """Run METHOD on this machine: a server and some nodes, each in its own process, on the loopback."""
    from holdfast.flower import require_flower

    require_flower()
    from holdfast.cli.deployment_progress import DeploymentProgress
    from holdfast.flower.local_cluster import ClusterOptions, LinkSecurity, deploy
    from holdfast.flower.processes import require_process_control

    require_process_control()
    security, restarts = LinkSecurity(flags.pop("tls"), flags.pop("auth")), flags.pop("restarts")
    deployment, values = separate({**flags, "method": method})
    nodes = deployment.nodes or LOCAL_NODES
    if resume and out is None:
        raise HoldfastError("--resume needs --out, the folder of the run")
    if resume and overwrite:
        raise HoldfastError("--resume and --overwrite cannot be used together: use one of them")
    config, guessing = check_settings(run_config(values, out if resume else None), deployment, nodes)
    with folder_for(out, config.method, config.data) as folder, kept_on_os_errors(resume_command(folder, out is None)):
        if not resume:
            RunFolder(folder).check_free(overwrite)
        app = {k: v for k, v in (asdict(config) | asdict(deployment)).items() if v is not None}
        progress = DeploymentProgress(config, folder, nodes, quiet, resume, guessing)
        with progress:
            options = ClusterOptions(folder, nodes, security, restarts, on_wait=progress.update)
            deploy(app | {"resume": resume, "overwrite": overwrite}, options)
        summary = read_summary(folder, "resume the run to write it again")
        progress.end(summary)
    if as_json:
        click.echo(json.dumps(summary))
    return 0


def resume_command(folder: Path, unnamed: bool) -> str:
    """Return the command that resumes the current one in its folder, which the command line may not name."""
    more = ["--resume", *(["--out", str(folder)] if unnamed else [])]
    return command_again("deploy local", given_words(), ["--resume", "--overwrite"], more)


def separate(flags: dict[str, Any]) -> tuple[DeploymentSettings, dict[str, Any]]:
    """Separate what the user set: the settings of the deployment, and those of the run."""
    deployment = {k: v for k, v in flags.items() if k in DEPLOYMENT_FIELDS}
    run = {k: v for k, v in flags.items() if k not in DEPLOYMENT_FIELDS}
    return DeploymentSettings(**given(deployment, of=DEPLOYMENT_FIELDS)), given(run)


def run_config(values: dict[str, Any], stored: Path | None) -> Config:
    """Return the config of the run, from the user's settings and the folder of the run to resume, if any."""
    if stored is not None:
        method = values.pop("method", None)
        before, values = for_resume(RunFolder(stored).stored(), values, stored)
        import_parts(before)
        refuse_without_objects(before, stored, None, None, method)
        config = resumed_config(before, values, method)
        refuse_changed_meaning(RunFolder(stored), config, as_method(config.method))
        return config
    return recorded(Config(**values | {"engine": "flower"}))


def check_settings(config: Config, deployment: DeploymentSettings, nodes: int) -> tuple[Config, float | None]:
    """Find every bad setting before anything is started.

    Args:
        config: The run.
        deployment: The settings of the deployment.
        nodes: The number of nodes; data that brings no clients is split among one client per node by default.

    Returns:
        The run with its split and its number of clients, and the loss of a model that guesses, if known.
    """
    from holdfast.method.method import Method
    from holdfast.runs.explosion import loss_of_guessing
    from holdfast.runs.setup import deal, prepare_simulation, read_data, with_federation

    import_parts(config)
    data = read_data(config)
    federation = deal(with_clients(config, data, nodes), data)
    config = with_federation(config, federation)
    deployment.check(config)
    check_secure(config, replace(deployment, nodes=nodes))
    simulation = prepare_simulation(config.changed(engine="loop"), Method.parse(config.method), federation, None)
    return config, loss_of_guessing(simulation.method, simulation.federation)


def with_clients(config: Config, data: DataSet, nodes: int) -> Config:
    """Decide the split and the clients of a run as its data does, with one client per node where it brings none."""
    from holdfast.data.given_clients import decide_clients

    split, clients = decide_clients(data, config.split, config.clients, nodes)
    return config.changed(split=split, clients=clients)


@command.command("init", cls=CommandWithSwitches)
@FOLDER
@click.option("--method", help="method: a sum of parts, such as fedbug(0.4)+feddyn(0.01)  [required]")
@CLIENTS
@settings(*(name for name in FIELDS if name not in (*OTHER_FLAGS, *with_role("simulation"))))
@settings(of=DEPLOYMENT_FIELDS)
@click.option("--classes", type=WholeNumber(low=2), help="with --data own: number of classes or tokens")
@click.option("--host", default="server.example.org", help="name or address of the server, for the README")
def init(folder: Path | None, method: str | None, classes: int | None, host: str, **flags: Any) -> None:
    """Write a Flower app into FOLDER: its settings, a client app, a server app and a README.

    With --data own the nodes bring their own data: the app has a function that reads them, for you to replace.
    """
    from holdfast.flower.app_template import OWN_DATA, app_readme, write_app
    from holdfast.method.method import Method

    no_classes = flags["data"] == OWN_DATA and classes is None and needs_classes(flags["task"])
    if folder is None or method is None or no_classes:
        raise missing("init", {"FOLDER": folder, "--method": method} | ({"--classes N": None} if no_classes else {}))
    check_host(host)
    deployment, values = separate(flags)
    config = recorded(Config(**values | {"method": method}))
    import_parts(config)
    Method.parse(method)
    config = with_known_clients(config, deployment.nodes or LOCAL_NODES)
    check_secure(config, deployment)
    if classes is not None and config.data != OWN_DATA:
        raise HoldfastError(f"--classes is only for --data {OWN_DATA}, and {config.data} has its own: leave it out")
    left_out = with_role("named data") if config.data == OWN_DATA else ()
    for name in left_out:
        if name in values:
            flag = name.replace("_", "-")
            raise HoldfastError(
                f"--{flag} is only for a data set by name, and with --data {OWN_DATA} each node has its own: leave it "
                "out"
            )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HoldfastError(f"{folder} exists and is not an empty folder: choose another folder")
    left_out = (*left_out, *with_role("simulation"))
    app = {k: v for k, v in asdict(in_folder(config, Path())).items() if k not in left_out} | asdict(deployment)
    app |= {"out": "runs/federation", "resume": False, "overwrite": False}
    write_app(folder, app, classes, sources(config), config.data == OWN_DATA)
    nodes = deployment.nodes or config.client_count
    (folder / "README.md").write_text(app_readme(folder.name, host, nodes, config.data == OWN_DATA))
    click.echo(f"the app is in {folder}; to start it, see {folder / 'README.md'}")


def needs_classes(task: str | None) -> bool:
    """Tell whether the data of a task does not say how many outputs the network has."""
    from holdfast.tasks.task import LABELS, NUMBERS
    from holdfast.tasks.task_names import tasks

    known = tasks().get((task or "").partition("(")[0])
    return known is None or known.targets not in (LABELS, NUMBERS)


def with_known_clients(config: Config, nodes: int) -> Config:
    """Decide split and clients by the data set if it is here; otherwise there is one client per node by default."""
    from holdfast.flower.app_template import OWN_DATA
    from holdfast.runs.setup import read_data

    try:
        data = None if config.data == OWN_DATA else read_data(config)
    except HoldfastError:
        data = None
    return config.changed(clients=config.clients or nodes) if data is None else with_clients(config, data, nodes)


def missing(name: str, needed: Mapping[str, object]) -> HoldfastError:
    """Return the error for everything that a command lacks; click would name one thing at a time."""
    lacking = [word for word, value in needed.items() if not value]
    words = ", ".join(lacking[:-1]) + " and " * (len(lacking) > 1) + lacking[-1]
    return HoldfastError(f"deploy {name} needs {words}; see: holdfast deploy {name} --help")


@command.command("keys")
@FOLDER
@click.option("--host", "hosts", multiple=True, help="name or address of the server; repeatable  [required]")
@click.option(
    "--nodes",
    metavar="N",
    type=WholeNumber(low=1),
    default=LOCAL_NODES,
    help=f"number of nodes  [default: {LOCAL_NODES}]",
)
def keys(folder: Path | None, hosts: tuple[str, ...], nodes: int) -> None:
    """Make a certificate for the server and a key for each node, in FOLDER."""
    if folder is None or not hosts:
        raise missing("keys", {"FOLDER": folder, "--host": hosts})
    from holdfast.flower import require_flower

    require_flower()
    from holdfast.flower.certificates import make_certificates, make_node_key

    for host in hosts:
        check_host(host)
    if folder.exists() and any(folder.iterdir()):
        raise HoldfastError(f"{folder} is not empty, and keys are never overwritten: choose another folder")
    make_certificates(folder, list(hosts))
    for number in range(nodes):
        make_node_key(folder / f"node-{number}")
    click.echo(f"in {folder}: ca.crt for all machines, server.crt and server.key for the server, a key for each node")
