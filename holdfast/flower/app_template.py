"""The Flower app that ``holdfast deploy init`` writes: the run's settings, the two apps and a README."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.core.params import limits
from holdfast.flower.settings import DEPLOYMENT_FIELDS
from holdfast.method.config import FIELDS
from holdfast.method.config_text import toml_value

PACKAGE = "federation"
FILES = "files"  # the folder of the user's files of code in that package
OWN_DATA = "own"  # what --data says if the nodes bring their own data
FLOWER_VERSION = "1.41"  # the oldest that works
APP_SETTINGS = {  # settings that only an app has
    "out": "run folder on the server; use an absolute path",
    "resume": "resume the run in out",
    "overwrite": "replace the run in out",
}

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "holdfast-{PACKAGE}"
version = "1.0.0"
description = "A federation on Flower, with the methods of Holdfast."
license = "Apache-2.0"
dependencies = ["holdfast[flower]>={holdfast}", "flwr>={flwr}"]

[tool.hatch.build.targets.wheel]
packages = ["{PACKAGE}"]

[tool.flwr.app]
publisher = "holdfast"

[tool.flwr.app.components]
serverapp = "{PACKAGE}.server_app:app"
clientapp = "{PACKAGE}.client_app:app"

# The settings of the run: the flags of holdfast run and of holdfast deploy local. Lines that start with # are settings
# without a value; the comment gives the default, if there is one.
[tool.flwr.app.config]
{settings}"""

CLIENT = '''\
"""The app of every node: local training on data that never leave it."""

from holdfast.flower import client_app

app = client_app({folder})
'''

SERVER = '''\
"""The app of the server: it sends out the model and averages the updates."""

from holdfast.flower import server_app

app = server_app({folder})
'''

OWN_CLIENT = '''\
"""The app of every node: local training on data that never leave it."""

import numpy as np

from holdfast.flower import client_app

CLASSES = {classes}


def data(client, node):
    """Return the samples and targets of one client. Replace this with code that reads your data.

    ``node`` holds the values of --node-config. Samples are arrays [n, features] or [n, channels, height, width].
    Classes are whole numbers from 0; other tasks have numbers [n, targets], 0 or 1 for each label [n, labels], or
    tokens [n, length].
    """
    with np.load(node["samples"], allow_pickle=False) as file:
        return file["x"], file["y"]


app = client_app(data, classes=CLASSES{, folder})
'''

OWN_SERVER = '''\
"""The app of the server: it sends out the model and averages the updates."""

import os

import numpy as np

from holdfast.flower import server_app

CLASSES = {classes}


def test():
    """Return the samples and targets on which the server scores the model. Replace this with code that reads yours."""
    with np.load(os.environ["HOLDFAST_TEST"], allow_pickle=False) as file:
        return file["x"], file["y"]


# Inputs are normalised by the mean and standard deviation of all clients, from sums that the nodes send once. For
# inputs that are ready for the network, add normalise="off".
app = server_app(test, classes=CLASSES{, folder})
'''

README = """\
# A federation on Flower

The settings of the run are in `pyproject.toml`. On every machine, run `pip install 'holdfast[flower]'`, and set these
variables so that Flower neither sends nor installs anything at run time:

    export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1

## Certificates and keys

Create them once, on the server:

    holdfast deploy keys keys --host HOST --nodes NODES

Copy `ca.crt` to every node and to the machine that starts runs. Copy `node-0` to node 0, and so on. The private keys
(`server.key`, `node-*`) belong only on the machine that uses them: send them over a secure channel.

## The server

    TESTflower-superlink --host 0.0.0.0 --port 8000 --database superlink.db \\
        --disable-runtime-dependency-installation --enable-supernode-auth \\
        --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt --ssl-keyfile keys/server.key

Open port 8000 to the nodes and to the machine that starts runs. Nodes need no open port.

## The machine that starts runs

Tell `flwr` where the server is, in `~/.flwr/config.toml`:

    [superlink]
    default = "federation"

    [superlink.federation]
    address = "HOST:8000"
    root-certificates = "/path/to/ca.crt"

Register every node's public key once:

    flwr supernode register keys/node-0.pub federation

## The nodes, numbered 0 to LAST

    flower-supernode --superlink HOST:8000 --root-certificates ca.crt --auth-supernode-private-key node-0 \\
        --node-config 'partition-id=0 num-partitions=NODESSAMPLES state="/var/lib/holdfast"'

Let a supervisor restart the node when it ends. The node keeps the method's client states in the folder `state`.CALLED

## The run

In the folder that contains `NAME`:

    flwr run NAME federation --stream
    flwr run NAME federation --stream -c resume=true     # to resume after a stop

The run folder is the setting `out` in `pyproject.toml`. It is on the server; use an absolute path.
"""


CALLED = """

Errors and reports call the node's client by the name in `clients`. A node with several clients writes several names,
separated by commas. Without names, clients are called by their number."""


def write_app(
    folder: Path,
    settings: Mapping[str, Any],
    classes: int | None = None,
    files: Mapping[str, bytes] | None = None,
    own_data: bool = False,
) -> None:
    """Write an app.

    Args:
        folder: The folder of the app.
        settings: Its settings; None stands for a setting without a value.
        classes: The number of classes or tokens, if the nodes bring their own data and it does not say.
        files: The user's files of code that the app carries, by name.
        own_data: Whether the nodes bring their own data.
    """
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{setting_line(name, value)}\n" for name, value in settings.items())
    versions = {"holdfast": version("holdfast"), "flwr": FLOWER_VERSION}
    (folder / "pyproject.toml").write_text(PYPROJECT.format(PACKAGE=PACKAGE, settings=lines, **versions))
    client, server = (OWN_CLIENT, OWN_SERVER) if own_data else (CLIENT, SERVER)
    (package / "__init__.py").write_text("")
    (package / "client_app.py").write_text(filled(client, classes, bool(files)))
    (package / "server_app.py").write_text(filled(server, classes, bool(files)))
    for name, source in (files or {}).items():
        (package / FILES).mkdir(exist_ok=True)
        (package / FILES / name).write_bytes(source)


def filled(template: str, classes: int | None, files: bool) -> str:
    """Return the code of an app; ``files`` says whether it carries files of code."""
    folder = f'folder=Path(__file__).parent / "{FILES}"' if files else ""
    text = template.replace("{classes}", str(classes)).replace("{folder}", folder)
    text = text.replace("{, folder}", f", {folder}" if folder else "")
    return text.replace("\n\n", "\n\nfrom pathlib import Path\n\n", 1) if files else text


def setting_line(name: str, value: Any) -> str:
    """Return the line of a setting, with its meaning as a comment."""
    field = (FIELDS | DEPLOYMENT_FIELDS).get(name)
    meaning = field.metadata["doc"] if field else APP_SETTINGS.get(name, "")
    if field and field.metadata["choices"] and str(field.type).startswith("str"):
        meaning += f"; {limits(field)}"
    text = f"# {name} =" if value is None else f"{name} = {toml_value(value)}"
    return f"{text}  # {meaning}" if meaning else text


def app_readme(name: str, host: str, nodes: int, own_data: bool) -> str:
    """Return the README of an app: how to start it on several machines.

    Args:
        name: The folder of the app.
        host: The server's name or address.
        nodes: The number of nodes.
        own_data: Whether the nodes bring their own data.

    Returns:
        The text.
    """
    values = {
        "NAME": name,
        "HOST": host,
        "NODES": str(nodes),
        "LAST": str(nodes - 1),
        "SAMPLES": ' samples="/path/to/samples.npz" clients="Hospital A"' if own_data else "",
        "CALLED": CALLED if own_data else "",
        "TEST": "HOLDFAST_TEST=/path/to/test.npz " if own_data else "",
    }
    return re.sub("|".join(values), lambda match: values[match[0]], README)
