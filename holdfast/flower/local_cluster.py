"""A federation on this machine: a SuperLink, SuperNodes and a run, all on the loopback, all stopped at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.flower import app_template, certificates
from holdfast.flower.app import OUTCOME
from holdfast.flower.environment import environment
from holdfast.flower.processes import Processes, free_port, listening
from holdfast.method.config_text import toml_value
from holdfast.runs.folder import CONFIG, FLOWER

LOOK = 2.0  # seconds between looks whether the server is alive
READY = 60.0  # seconds for a SuperLink to answer, and for a command to return


@dataclass(frozen=True)
class LinkSecurity:
    """What protects the links between server and nodes."""

    tls: bool = False
    auth: bool = False  # nodes prove who they are with a key that the server knows; needs TLS

    def __post_init__(self) -> None:
        if self.auth and not self.tls:
            raise HoldfastError("--auth needs --tls: keys are only safe on an encrypted link")


class DeploymentFailed(HoldfastError):
    """What the server said when it stopped, with its exit code."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class LocalCluster:
    """A SuperLink and some SuperNodes; Flower's files are in the folder ``work``, the run's in ``out``."""

    def __init__(self, work: Path, out: Path, nodes: int, safety: LinkSecurity) -> None:
        self.work, self.out, self.nodes, self.safety = work, out, nodes, safety
        self.home, self.app, self.certs = work / "home", work / "app", work / "certificates"
        self.home.mkdir(parents=True)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes = Processes(environment(self.home, nodes), work)
        self._connection()

    def start(self) -> None:
        """Start all, and wait until the SuperLink answers."""
        if self.safety.tls and not self.certs.exists():
            certificates.certificates(self.certs, ["127.0.0.1"])
        self.start_link()
        for number in range(self.nodes):
            self.start_node(number)

    def start_link(self) -> None:
        command = [
            tool("flower-superlink"),
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--isolation",
            "subprocess",
        ]
        command += ["--disable-runtime-dependency-installation"]
        if self.safety.tls:
            command += [
                "--ssl-ca-certfile",
                str(self.certs / "ca.crt"),
                "--ssl-certfile",
                str(self.certs / "server.crt"),
            ]
            command += ["--ssl-keyfile", str(self.certs / "server.key")]
        else:
            command += ["--insecure"]
        command += ["--enable-supernode-auth"] if self.safety.auth else []
        link = self.processes.start("superlink", command)
        deadline = time.monotonic() + READY
        while not listening(self.port):
            if link.poll() is not None or time.monotonic() > deadline:
                raise HoldfastError(f"the SuperLink did not start: {self.last_line('superlink')}")
            time.sleep(0.1)

    def start_node(self, number: int, key: Path | None = None, **own: Any) -> None:
        """Start a SuperNode; with authentication its key is made and registered first."""
        key = key or self.certs / f"node-{number}"
        if self.safety.auth and not key.exists():
            certificates.node_key(key)
            self.flwr("supernode", "register", str(key.with_suffix(".pub")), "local")
        self.processes.start(f"node-{number}", self.node_command(number, key, **own))

    def node_command(self, number: int, key: Path, **own: Any) -> list[str]:
        settings = {"partition-id": number, "num-partitions": self.nodes, "state": str(self.states(number)), **own}
        command = [tool("flower-supernode"), "--superlink", self.address, "--host", "127.0.0.1"]
        command += ["--port", str(free_port())]
        command += ["--node-config", " ".join(f"{name}={toml_value(value)}" for name, value in settings.items())]
        command += ["--root-certificates", str(self.certs / "ca.crt")] if self.safety.tls else ["--insecure"]
        return command + (["--auth-supernode-private-key", str(key)] if self.safety.auth else [])

    def states(self, number: int) -> Path:
        """Where a node keeps its clients' states: with the run, so that a resumed one finds them."""
        return self.out.absolute() / FLOWER / f"node-{number}"

    def submit(self, settings: Mapping[str, Any]) -> int:
        """Write an app with these settings and launch it."""
        app_template.write(self.app, settings)
        return self.launch(self.app)

    def launch(self, app: Path) -> int:
        """Hand an app to the SuperLink; returns Flower's number of the run."""
        found = json.loads(self.flwr("run", str(app), "local", "--format", "json"))
        if not found.get("success"):
            raise HoldfastError(f"Flower did not take the run: {found.get('error-message', found)}")
        return int(found["run-id"])

    def status(self, run: int) -> str:
        """Flower's word for how a run stands, such as ``running`` or ``finished:completed``."""
        found = json.loads(self.flwr("ls", "local", "--run-id", str(run), "--format", "json"))
        runs = found.get("runs", [])
        return str(runs[0].get("status", "")) if runs else ""

    def flwr(self, *words: str) -> str:
        done = subprocess.run(
            [tool("flwr"), *words], env=self.processes.env, capture_output=True, text=True, timeout=READY, check=False
        )
        if done.returncode:
            raise HoldfastError(f"flwr {words[0]} failed: {' '.join((done.stderr or done.stdout).split())[-300:]}")
        return done.stdout

    def last_line(self, name: str) -> str:
        """The last line of a log that says something."""
        path = self.work / f"{name}.log"
        lines = (
            [line for line in path.read_text(errors="replace").splitlines() if line.strip()] if path.exists() else []
        )
        return lines[-1].strip() if lines else "it said nothing"

    def keep_logs(self) -> None:
        """Leave the logs with the run, if it has a folder."""
        if (self.out / CONFIG).exists():
            (self.out / FLOWER).mkdir(exist_ok=True)
            for log in self.work.glob("*.log"):
                shutil.copy(log, self.out / FLOWER / log.name)

    def _connection(self) -> None:
        how = f'root-certificates = "{self.certs / "ca.crt"}"' if self.safety.tls else "insecure = true"
        text = f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "{self.address}"\n{how}\n'
        (self.home / "config.toml").write_text(text)


def tool(name: str) -> str:
    """A command of Flower's, from this Python's environment."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise HoldfastError(f"there is no command {name}: install Flower with pip install 'holdfast[flower]'")
    return found


def deploy(
    settings: dict[str, Any],
    out: Path,
    nodes: int,
    safety: LinkSecurity,
    restarts: int = 0,
    on_start: Callable[[LocalCluster], None] = lambda local: None,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Run a federation on this machine from start to end; ``on_wait`` is called while it runs."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        local = LocalCluster(Path(folder), out, nodes, safety)
        outcome = local.work / "outcome.json"
        values = settings | {"nodes": nodes, "out": str(out.absolute()), OUTCOME: str(outcome)}
        with local.processes:
            try:
                local.start()
                on_start(local)
                _run(local, values, outcome, restarts, on_wait)
            finally:
                local.keep_logs()


def _run(
    local: LocalCluster, values: dict[str, Any], outcome: Path, restarts: int, on_wait: Callable[[], None]
) -> None:
    """Submit the run and wait for its end; a server that dies is started again and resumes, if that is asked for."""
    while True:
        run = local.submit(values)
        ended = _wait(local, run, outcome, on_wait)
        if ended is None:
            return
        if restarts == 0:
            raise HoldfastError(f"{ended}; go on with --resume")
        restarts -= 1
        if local.processes.running["superlink"].poll() is not None:
            local.processes.stop()  # nodes that a new SuperLink does not know end, too
            local.start()
        values = values | {"resume": (local.out / CONFIG).exists(), "overwrite": False}


def _wait(local: LocalCluster, run: int, outcome: Path, on_wait: Callable[[], None]) -> str | None:
    """None once the run has ended well; else how the server died. An error of the run itself is raised."""
    looked, seen = time.monotonic(), False
    while True:
        on_wait()
        if outcome.exists():
            said = json.loads(outcome.read_text())
            if said["error"]:
                raise DeploymentFailed(said["error"], said["status"])
            return None
        if local.processes.running["superlink"].poll() is not None:
            return f"the SuperLink ended: {local.last_line('superlink')}"
        if time.monotonic() - looked > LOOK:
            looked = time.monotonic()
            there = bool(local.processes.called("flwr-serverapp"))
            if seen and not there and not outcome.exists():
                return f"the server ended without a word ({local.status(run)})"
            seen = seen or there
        time.sleep(0.2)
