"""A Flower app on disk: ``pyproject.toml`` with the run's settings, and the two apps, a few lines each."""

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
OWN = "own"  # the name that stands for the nodes' own data
MORE = {  # settings of an app alone
    "out": "the run folder, on the server: make it an absolute path",
    "resume": "go on with the run in out",
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

# The settings of the run: the flags of holdfast run, and those of holdfast deploy local. A line that begins with # is
# a setting that is not set: what follows says what then holds.
[tool.flwr.app.config]
{settings}"""

CLIENT = '''\
"""What runs on every node: local training on data that stay there."""

from holdfast.flower import client_app

app = client_app()
'''

SERVER = '''\
"""What runs on the server: it sends out the model and averages what comes back."""

from holdfast.flower import server_app

app = server_app()
'''

OWN_CLIENT = '''\
"""What runs on every node: local training on data that stay there."""

import numpy as np

from holdfast.flower import client_app

CLASSES = {classes}


def data(client, node):
    """The samples and labels of one client: fill in how yours are read. They never leave this machine.

    ``node`` holds what follows --node-config. Samples are arrays [n, features] or [n, channels, height, width], scaled
    as the network wants them and alike on all nodes; labels are whole numbers from 0 on.
    """
    with np.load(node["samples"], allow_pickle=False) as file:
        return file["x"].astype("float32"), file["y"].astype("int64")


app = client_app(data, classes=CLASSES)
'''

OWN_SERVER = '''\
"""What runs on the server: it sends out the model and averages what comes back."""

import os

import numpy as np

from holdfast.flower import server_app

CLASSES = {classes}


def test():
    """The samples and labels on which the server scores the model: fill in how yours are read."""
    with np.load(os.environ["HOLDFAST_TEST"], allow_pickle=False) as file:
        return file["x"].astype("float32"), file["y"].astype("int64")


app = server_app(test, classes=CLASSES)
'''

README = """\
# A federation on Flower

`pyproject.toml` holds the settings of the run. Install on every machine: `pip install 'holdfast[flower]'`.
On all of them, so that nothing is sent elsewhere or installed at run time:

    export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1

## Certificates and keys

Once, on the server; then copy `ca.crt` to every node and to where you start runs, and to node 0 the file `node-0`, and
so on. Private keys (`server.key`, `node-*`) stay where they are used and are sent over a secure channel only.

    holdfast deploy keys keys --host HOST --nodes NODES

## The server

    TESTflower-superlink --host 0.0.0.0 --port 8000 --database superlink.db \\
        --disable-runtime-dependency-installation --enable-supernode-auth \\
        --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt --ssl-keyfile keys/server.key

Open port 8000 for the nodes and for the machine on which runs are started; nodes open none.

## Where runs are started

Tell `flwr` where the server is, in `~/.flwr/config.toml`:

    [superlink]
    default = "federation"

    [superlink.federation]
    address = "HOST:8000"
    root-certificates = "/path/to/ca.crt"

Register every node's public key, once:

    flwr supernode register keys/node-0.pub federation

## The nodes, numbers 0 to LAST

    flower-supernode --superlink HOST:8000 --root-certificates ca.crt --auth-supernode-private-key node-0 \\
        --node-config 'partition-id=0 num-partitions=NODESSAMPLES state="/var/lib/holdfast"'

Let a supervisor start it again when it ends. In the folder `state` it keeps what the method knows about its clients.

## The run

In the folder that holds `NAME`:

    flwr run NAME federation --stream
    flwr run NAME federation --stream -c resume=true     # after a stop

The run folder is the setting `out` of `pyproject.toml`, on the server: make it an absolute path.
"""


def write(folder: Path, settings: Mapping[str, Any], classes: int | None = None) -> None:
    """Write the app; with a number of ``classes`` it reads data of the nodes' own. A setting may be None: not set."""
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{line(name, value)}\n" for name, value in settings.items())
    versions = {"holdfast": version("holdfast"), "flwr": "1.41"}
    (folder / "pyproject.toml").write_text(PYPROJECT.format(PACKAGE=PACKAGE, settings=lines, **versions))
    client, server = (CLIENT, SERVER) if classes is None else (OWN_CLIENT, OWN_SERVER)
    (package / "__init__.py").write_text("")
    (package / "client_app.py").write_text(client.replace("{classes}", str(classes)))
    (package / "server_app.py").write_text(server.replace("{classes}", str(classes)))


def line(name: str, value: Any) -> str:
    """A setting with its meaning, as the fields of ``Config`` and ``Terms`` state it."""
    field = (FIELDS | DEPLOYMENT_FIELDS).get(name)
    said = field.metadata["doc"] if field else MORE.get(name, "")
    if field and field.metadata["choices"] and str(field.type).startswith("str"):
        said += f"; {limits(field)}"
    text = f"# {name} =" if value is None else f"{name} = {toml_value(value)}"
    return f"{text}  # {said}" if said else text


def readme(name: str, host: str, nodes: int, own: bool) -> str:
    """How to start the app on several machines."""
    words = {
        "NAME": name,
        "HOST": host,
        "NODES": str(nodes),
        "LAST": str(nodes - 1),
        "SAMPLES": ' samples="/path/to/samples.npz"' if own else "",
        "TEST": "HOLDFAST_TEST=/path/to/test.npz " if own else "",
    }
    return re.sub("|".join(words), lambda found: words[found[0]], README)
