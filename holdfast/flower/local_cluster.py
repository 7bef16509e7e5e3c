"""A federation on this machine: a SuperLink, SuperNodes and a run, on the loopback, and stopped at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.flower import app_template, certificates
from holdfast.flower.app import OUTCOME
from holdfast.flower.environment import child_environment
from holdfast.flower.processes import Processes, free_port, listening
from holdfast.method.config import Config
from holdfast.method.config_text import toml_value
from holdfast.runs.code_files import sources
from holdfast.runs.run_files import CONFIG, FLOWER

CHECK_EVERY = 2.0  # seconds between checks whether the server is alive
READY_WITHIN = 60.0  # seconds for a SuperLink to accept connections, and for a command to return


@dataclass(frozen=True)
class LinkSecurity:
    """What protects the links between server and nodes.

    Attributes:
        tls: Whether they are encrypted.
        auth: Whether nodes identify themselves with a key that the server knows; needs ``tls``.
    """

    tls: bool = False
    auth: bool = False

    def __post_init__(self) -> None:
        if self.auth and not self.tls:
            raise HoldfastError("--auth needs encrypted links: add --tls")


@dataclass(frozen=True)
class ClusterOptions:
    """How a federation is run on this machine.

    Attributes:
        out: The run folder.
        nodes: The number of SuperNodes.
        security: What protects the links.
        restarts: How many times a server that dies is started again.
        on_start: Called with the cluster once it is running.
        on_wait: Called again and again while the run is in progress.
    """

    out: Path
    nodes: int
    security: LinkSecurity = field(default_factory=LinkSecurity)
    restarts: int = 0
    on_start: Callable[[LocalCluster], None] = lambda cluster: None
    on_wait: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise HoldfastError(f"--restarts must be 0 or more, not {self.restarts}: 0 means never")


class DeploymentFailed(HoldfastError):
    """The error that stopped the server, with its exit code."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class LocalCluster:
    """A SuperLink and some SuperNodes.

    Attributes:
        work: The folder of Flower's files, the app and the logs.
        out: The run folder.
        certs: The folder of the certificates.
        processes: The processes of the cluster.
    """

    def __init__(self, work: Path, out: Path, nodes: int, security: LinkSecurity) -> None:
        """Prepare a cluster; nothing is started yet.

        Args:
            work: A new folder for Flower's files, the app and the logs.
            out: The run folder.
            nodes: The number of SuperNodes.
            security: What protects the links.
        """
        self.work, self.out, self.nodes, self.security = work, out, nodes, security
        self.home, self.app, self.certs = work / "home", work / "app", work / "certificates"
        self.home.mkdir(parents=True)
        self.node_ids: dict[int, int] = {}  # Flower's ids of the nodes, with authentication
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes = Processes(child_environment(self.home, nodes), work)
        self._write_connection()

    def start(self) -> None:
        """Start the SuperLink and the SuperNodes."""
        if self.security.tls and not self.certs.exists():
            certificates.make_certificates(self.certs, ["127.0.0.1"])
        self.start_link()
        for number in range(self.nodes):
            self.start_node(number)

    def start_link(self) -> None:
        """Start the SuperLink and wait until it accepts connections."""
        command = [tool("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--isolation", "subprocess", "--disable-runtime-dependency-installation"]
        if self.security.tls:
            command += ["--ssl-ca-certfile", str(self.certs / "ca.crt")]
            command += ["--ssl-certfile", str(self.certs / "server.crt")]
            command += ["--ssl-keyfile", str(self.certs / "server.key")]
        else:
            command += ["--insecure"]
        command += ["--enable-supernode-auth"] if self.security.auth else []
        self.node_ids = {}  # a new SuperLink knows no keys
        link = self.processes.start("superlink", command)
        deadline = time.monotonic() + READY_WITHIN
        while not listening(self.port):
            if link.poll() is not None or time.monotonic() > deadline:
                reason = self.last_line("superlink")
                raise HoldfastError(f"the SuperLink did not start ({reason}): check that Flower is 1.41 or newer")
            time.sleep(0.1)

    def link_runs(self) -> bool:
        """Tell whether the SuperLink is running."""
        return self.processes.running["superlink"].poll() is None

    def start_node(self, number: int, **settings: Any) -> None:
        """Start a SuperNode with further settings; with authentication its key is made and registered first."""
        key = self.certs / f"node-{number}"
        if self.security.auth and not key.exists():
            certificates.make_node_key(key)
        if self.security.auth and number not in self.node_ids:
            self.node_ids[number] = self.register(key.with_suffix(".pub"))
        self.processes.start(f"node-{number}", self.node_command(number, key, **settings))

    def register(self, key: Path) -> int:
        """Register a node's public key; return the id of the node, which is bound to the key."""
        answer = json.loads(self.flwr("supernode", "register", str(key), "local", "--format", "json"))
        return int(answer["node-id"])

    def owners(self, clients: int) -> str | None:
        """Return the setting that binds every client to the key of its node; None without authentication."""
        pairs = [f"{client}={self.node_ids[client % self.nodes]}" for client in range(clients) if self.node_ids]
        return " ".join(pairs) or None

    def node_command(self, number: int, key: Path, **settings: Any) -> list[str]:
        """Return the command that starts a SuperNode.

        Args:
            number: The number of the node.
            key: Its private key, used with authentication.
            settings: Further settings of the node.

        Returns:
            The words of the command.
        """
        place = {"partition-id": number, "num-partitions": self.nodes, "state": str(self.states(number))}
        command = [tool("flower-supernode"), "--superlink", self.address, "--host", "127.0.0.1"]
        command += ["--port", str(free_port())]
        node_config = " ".join(f"{name}={toml_value(value)}" for name, value in (place | settings).items())
        command += ["--node-config", node_config]
        command += ["--root-certificates", str(self.certs / "ca.crt")] if self.security.tls else ["--insecure"]
        return command + (["--auth-supernode-private-key", str(key)] if self.security.auth else [])

    def states(self, number: int) -> Path:
        """Return the folder of a node's client states: in the run folder, so that a resumed run finds them."""
        return self.out.absolute() / FLOWER / f"node-{number}"

    def submit(self, settings: Mapping[str, Any]) -> int:
        """Write an app with these settings and start it; return Flower's id of the run."""
        files = sources(Config(files=settings.get("files")))
        app_template.write_app(self.app, settings, files=files)
        return self.launch(self.app)

    def launch(self, app: Path) -> int:
        """Start an app on the SuperLink; return Flower's id of the run."""
        answer = json.loads(self.flwr("run", str(app), "local", "--format", "json"))
        if not answer.get("success"):
            raise HoldfastError(f"Flower did not accept the run: {answer.get('error-message', answer)}")
        return int(answer["run-id"])

    def status(self, run: int) -> str:
        """Return Flower's status of a run, such as ``running`` or ``finished:completed``."""
        answer = json.loads(self.flwr("ls", "local", "--run-id", str(run), "--format", "json"))
        runs = answer.get("runs", [])
        return str(runs[0].get("status", "")) if runs else ""

    def flwr(self, *words: str) -> str:
        """Run a command of ``flwr`` and return its output."""
        command, env = [tool("flwr"), *words], self.processes.env
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=READY_WITHIN, check=False)
        except subprocess.TimeoutExpired as error:
            raise HoldfastError(
                f"flwr {words[0]} did not end within {READY_WITHIN:g} s: is the machine busy?"
            ) from error
        if done.returncode:
            raise HoldfastError(f"flwr {words[0]} failed: {' '.join((done.stderr or done.stdout).split())[-300:]}")
        return done.stdout

    def last_line(self, name: str) -> str:
        """Return the last line of a log that is not empty."""
        path = self.work / f"{name}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "its log is empty"

    def keep_logs(self) -> None:
        """Copy the logs into the run folder, if there is one."""
        if (self.out / CONFIG).exists():
            (self.out / FLOWER).mkdir(exist_ok=True)
            for log in self.work.glob("*.log"):
                shutil.copy(log, self.out / FLOWER / log.name)

    def _write_connection(self) -> None:
        """Write the file that tells ``flwr`` where the SuperLink is."""
        security = f'root-certificates = "{self.certs / "ca.crt"}"' if self.security.tls else "insecure = true"
        text = f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "{self.address}"\n{security}\n'
        (self.home / "config.toml").write_text(text)


def tool(name: str) -> str:
    """Return the path of one of Flower's commands, from this Python's environment if it is there."""
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise HoldfastError(f"the command {name} is not installed: pip install 'holdfast[flower]'")
    return path


def deploy(settings: dict[str, Any], options: ClusterOptions) -> None:
    """Run a federation on this machine from start to end; ``settings`` are those of the Flower app."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        cluster = LocalCluster(Path(folder), options.out, options.nodes, options.security)
        values = settings | {"nodes": options.nodes, "out": str(options.out.absolute())}
        with cluster.processes:
            try:
                cluster.start()
                options.on_start(cluster)
                _run(cluster, values, options)
            finally:
                cluster.keep_logs()


def _run(cluster: LocalCluster, values: dict[str, Any], options: ClusterOptions) -> None:
    """Submit the run and wait for its end. A server that dies is started again and resumes, if that is allowed."""
    for attempt in range(options.restarts + 1):
        outcome = cluster.work / f"outcome-{attempt}.json"  # a server that is slow to die must not end the next attempt
        owners = cluster.owners(int(values["clients"]))
        bound = {} if owners is None else {"owners": owners}
        death = _attempt(cluster, values | bound | {OUTCOME: str(outcome)}, outcome, options.on_wait)
        if death is None:
            return
        if attempt == options.restarts:
            raise HoldfastError(f"{death}: resume the run with --resume, or let it restart with --restarts")
        if not cluster.link_runs():
            cluster.processes.stop()  # nodes that a new SuperLink does not know would end as well
            cluster.start()
        values = values | {"resume": (cluster.out / CONFIG).exists(), "overwrite": False}


def _attempt(cluster: LocalCluster, values: dict[str, Any], outcome: Path, on_wait: Callable[[], None]) -> str | None:
    """Submit the run and wait for its end.

    Args:
        cluster: The cluster.
        values: The settings of the Flower app.
        outcome: The file in which the server reports how the run ended.
        on_wait: Called again and again.

    Returns:
        None if the run succeeded, else how the server died. The run's own error is raised.
    """
    try:
        run = cluster.submit(values)
        return _wait(cluster, run, outcome, on_wait)
    except HoldfastError as error:
        if isinstance(error, DeploymentFailed) or cluster.link_runs():
            raise
        return _link_death(cluster)  # a command of flwr failed because nobody was there to reply


def _wait(cluster: LocalCluster, run: int, outcome: Path, on_wait: Callable[[], None]) -> str | None:
    """Wait for the end of a run that was submitted; see ``_attempt``."""
    checked, seen = time.monotonic(), False
    while True:
        on_wait()
        if outcome.exists():
            ended = json.loads(outcome.read_text(encoding="utf-8"))
            if ended["error"] is None:
                return None
            if ended["expected"] or cluster.link_runs():
                raise DeploymentFailed(ended["error"], ended["status"])
        if not cluster.link_runs():  # the server's own error, if it had time for one, only says that it lost its nodes
            return _link_death(cluster)
        if time.monotonic() - checked > CHECK_EVERY:
            checked = time.monotonic()
            running = bool(cluster.processes.running_command("flwr-serverapp"))
            if seen and not running and not outcome.exists():
                return f"the server ended unexpectedly ({cluster.status(run)})"
            seen = seen or running
        time.sleep(0.2)


def _link_death(cluster: LocalCluster) -> str:
    return f"the SuperLink ended ({cluster.last_line('superlink')})"
