"""Where the runs of a comparison are carried out: processes, Ray, SLURM; dead workers, stops, and refusals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from helpers.commands import facts, good, refused
from helpers.comparisons import TINY
from helpers.exact_errors import raises_exactly
from helpers.fake_ray import FakeRay
from holdfast.comparison import ray_pool, remote_worker, slurm_pool
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.pool import ProcessPool
from holdfast.comparison.pool_choice import check_pool, make_pool
from holdfast.comparison.ray_pool import RayPool
from holdfast.comparison.remote_worker import Luggage, RemoteWorker
from holdfast.comparison.slurm_pool import Slurm, SlurmPool
from holdfast.comparison.worker_pool import Event, RoundDone, RunEnded, RunFailed, WorkerDied, WorkerPool
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("elsewhere")
PAIR = ("compare", "fedavg", "scaffold", *TINY, "--seeds", "1", "--quiet", "--out")


@dataclass
class Log(Observer):
    """Writes down what it is told."""

    rounds: list[int] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def round(self, task: Any, record: Any) -> None:
        self.rounds.append(record.round)

    def end(self, task: Any, state: str, why: str) -> None:
        self.ends.append(state)

    def say(self, text: str) -> None:
        self.said.append(text)


def toy_tasks(many: int) -> Any:
    return [SimpleNamespace(config=Config(seed=seed), label="toy") for seed in range(many)]


class Script(WorkerPool):
    """Workers that do what a list says: for each submission of a run, the events that follow."""

    def __init__(self, **script: Sequence[Event]) -> None:
        self.script = {int(name[1:]): list(events) for name, events in script.items()}
        self.pending: list[int] = []
        self.submitted: list[int] = []
        self.closed = False

    def open(self, tasks: Sequence[PlannedRun]) -> None:
        pass

    def submit(self, numbers: Sequence[int]) -> None:
        self.pending += numbers
        self.submitted += numbers

    def events(self) -> Any:
        number = self.pending.pop(0)
        while True:
            event = self.script[number].pop(0)
            yield number, event
            if not isinstance(event, RoundDone):
                return

    def ask_to_stop(self) -> set[int]:
        dropped, self.pending = {*self.pending[1:]}, self.pending[:1]
        return dropped

    def close(self) -> None:
        self.closed = True


DEAD, END = WorkerDied("a worker died", "look"), RunEnded("finished", "")
ROUND: Any = RoundDone(SimpleNamespace(round=1))  # type: ignore[arg-type]


def never() -> bool:
    return False


# -- what all workers share --------------------
def test_a_dead_worker_is_replaced_and_its_run_handed_out_again() -> None:
    pool, watch = Script(r0=[ROUND, DEAD, DEAD, ROUND, DEAD, DEAD, END], r1=[END]), Log()
    assert pool.run(toy_tasks(2), watch, never)
    assert pool.submitted == [0, 1, 0, 0, 0, 0]
    assert watch.ends == ["finished", "finished"]
    assert watch.said == ["a worker died; toy, seed 0 is resumed"] * 4
    assert pool.closed


def test_a_run_that_kills_its_workers_ends_the_command() -> None:
    pool = Script(r0=[DEAD, DEAD, DEAD], r1=[END])
    with raises_exactly("a worker died; its finished rounds are kept: look"):
        pool.run(toy_tasks(2), Log(), never)
    assert pool.closed


def test_a_run_that_fails_ends_the_command() -> None:
    pool = Script(r0=[RunFailed(HoldfastError("no"))])
    with raises_exactly("no"):
        pool.run(toy_tasks(1), Log(), never)
    assert pool.closed


@pytest.mark.parametrize("last", [RunEnded("stopped", ""), DEAD])
def test_a_stop_drops_what_was_not_begun(last: Event) -> None:
    pool = Script(r0=[last], r1=[END])
    assert not pool.run(toy_tasks(2), Log(), lambda: True)
    assert pool.submitted == [0, 1]


def test_a_stop_after_the_last_round_is_no_stop() -> None:
    assert Script(r0=[END]).run(toy_tasks(1), Log(), lambda: True)


# -- processes --------------------
class Deadly(Executor):
    """Its process is killed in the first attempt at every run."""

    def run(self, task: Any, *_: object) -> tuple[str, str]:
        mark = Path(f"tried-{task.config.seed}")
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "finished", ""


def test_a_killed_process_is_replaced() -> None:
    watch = Log()
    assert ProcessPool(1, Deadly(), light=False).run(toy_tasks(2), watch, never)
    assert watch.ends == ["finished", "finished"]
    assert watch.said == [
        f"a process of --jobs died with exit code -9 (-9: out of memory?); toy, seed {seed} is resumed"
        for seed in (0, 1)
    ]


# -- Ray --------------------
@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay(CPU=4.0)
    monkeypatch.setitem(sys.modules, "ray", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(ray_pool, "find_spec", lambda name: fake)
    monkeypatch.setattr(ray_pool, "NEWS", 0.1)
    monkeypatch.setattr(remote_worker, "PATIENCE", 0.05)
    return fake


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process finds."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    good(*PAIR, str(folder))
    return folder


def check_same_runs(found: str, expected: Path) -> None:
    runs = sorted(path.parent.relative_to(expected) for path in expected.rglob("history.jsonl"))
    assert len(runs) == 2
    assert [facts(Path(found) / run) for run in runs] == [facts(expected / run) for run in runs]


def test_workers_of_ray_find_what_one_process_finds(ray: FakeRay, whole: Path) -> None:
    good(*PAIR, "here", "--executor", "ray", "--jobs", "2")
    check_same_runs("here", whole)
    assert ray.options[0]["_node_ip_address"] == "127.0.0.1"
    assert ray.options[0]["include_dashboard"] is False
    assert ray.shares == [{"max_concurrency": 3, "num_cpus": 1.0, "num_gpus": 0.0}]
    assert len(ray.actors) == 2
    assert not ray.up
    good(*PAIR, "here", "--executor", "ray")
    assert len(ray.actors) == 2, "everything is finished"


@pytest.mark.parametrize(("gpus", "device", "share"), [(2.0, "auto", 0.5), (8.0, "cuda", 1.0), (8.0, "cpu", 0.0)])
def test_gpus_are_shared_as_resources(ray: FakeRay, gpus: float, device: str, share: float) -> None:
    ray.resources = {"CPU": 2.0, "GPU": gpus}
    pool = RayPool(4, Executor(), False, None)
    task = PlannedRun(0, 0, "x", Config(device=device), holdfast.Method(), Path("study/x/seed-0"))
    pool.open([task])
    assert ray.shares == [{"max_concurrency": 3, "num_cpus": 0.5, "num_gpus": share}]
    pool.close()


def test_a_worker_of_ray_that_dies_is_replaced(ray: FakeRay, whole: Path) -> None:
    """Its thread goes on here, as a worker might that Ray takes for dead; the lock keeps the next one waiting."""
    watch = Log()
    killed = threading.Event()

    def kill_once(task: Any, record: Any) -> None:
        watch.rounds.append(record.round)
        if not killed.is_set():
            killed.set()
            next(actor for actor in ray.actors if not actor.dead).die()

    watch.round = kill_once  # type: ignore[method-assign]
    holdfast.compare(
        ["fedavg", "scaffold"], model="linear", clients=6, cohort=2, steps=2, rounds=3, seeds=1, out="here",
        executor="ray", watch=watch,
    )  # fmt: skip
    assert len(ray.actors) == 2
    assert watch.said == ["a worker of Ray died (The actor died.); fedavg, seed 0 is resumed"]
    check_same_runs("here", whole)


def test_a_cluster_that_does_not_answer_is_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert refused(*PAIR, "here", "--executor", f"ray://127.0.0.1:{port}") == (
        f"holdfast: no Ray cluster answers at ray://127.0.0.1:{port} (Connection refused): check the address, and that "
        "it was started with ray start --head\n"
    )


def test_a_cluster_that_refuses_us(ray: FakeRay) -> None:
    ray.refuse = RuntimeError("Version mismatch: 2.9\nand more")
    task = PlannedRun(0, 0, "x", Config(), holdfast.Method(), Path("study/x/seed-0"))
    with raises_exactly(
        "no connection to Ray at this machine: Version mismatch: 2.9; check the address, and that the cluster has the "
        "same versions of Ray and Python"
    ):
        RayPool(1, Executor(), False, None).run([task], Log(), never)


def test_a_real_ray(whole: Path) -> None:
    """A small cluster of this machine, on the loopback; in a process of its own, since Ray leaves files open."""
    pytest.importorskip("ray")
    words = [sys.executable, "-m", "holdfast", *PAIR, "here", "--executor", "ray"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (said.returncode, said.stderr) == (0, "")
    check_same_runs("here", whole)


# -- SLURM --------------------
@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are processes of this machine."""
    pytest.importorskip("submitit")
    monkeypatch.setattr("holdfast.comparison.pool_choice.CLUSTER", "local")
    monkeypatch.setattr(slurm_pool, "LOOKS", 0.05)


def test_jobs_of_slurm_find_what_one_process_finds(slurm: None, whole: Path) -> None:
    good(*PAIR, "here", "--executor", "slurm(minutes=5)", "--jobs", "2")
    check_same_runs("here", whole)
    assert not Path("here/slurm").exists(), "the logs are of no use any more"


class Job:
    """A job of a stand-in for submitit."""

    def __init__(self, queue: Queue, state: str) -> None:
        self.queue, self.state, self.job_id, self.cancelled = queue, state, "7_1", False

    def done(self) -> bool:
        return self.state != "PENDING"

    def result(self) -> Event:
        if self.state != "COMPLETED":
            raise RuntimeError("Job died\nsomewhere")
        return END

    def cancel(self) -> None:
        self.cancelled = True


class Queue:
    """The queue of a stand-in for submitit, whose jobs end in these states, one after the other."""

    def __init__(self, *states: str) -> None:
        self.states, self.jobs, self.parameters = list(states), list[Job](), dict[str, Any]()

    def update_parameters(self, **parameters: Any) -> None:
        self.parameters = parameters

    def batch(self) -> Any:
        return threading.Lock()

    def submit(self, *_: object) -> Job:
        self.jobs.append(Job(self, self.states.pop(0)))
        return self.jobs[-1]


def slurm_pool_with(monkeypatch: pytest.MonkeyPatch, queue: Queue) -> SlurmPool:
    errors = SimpleNamespace(core=SimpleNamespace(utils=SimpleNamespace(FailedJobError=ZeroDivisionError)))
    monkeypatch.setattr(slurm_pool, "find_spec", lambda name: True)
    monkeypatch.setattr(slurm_pool, "LOOKS", 0.0)
    monkeypatch.setattr(
        slurm_pool, "import_module", lambda name: SimpleNamespace(AutoExecutor=lambda **_: queue, **vars(errors))
    )
    return SlurmPool(3, Executor(), False, Slurm(minutes=9, gpus=2, partition="fast"), cluster="local")


def planned(many: int) -> list[PlannedRun]:
    return [
        PlannedRun(0, 0, "x", Config(seed=seed), holdfast.Method(), Path(f"study/x/seed-{seed}"))
        for seed in range(many)
    ]


def test_a_job_that_was_ended_is_submitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Because of its time, a machine, or a more urgent job."""
    queue, watch = Queue("TIMEOUT", "COMPLETED", "COMPLETED"), Log()
    assert slurm_pool_with(monkeypatch, queue).run(planned(2), watch, never)
    assert watch.said == ["SLURM job 7_1 ended in the state TIMEOUT (Job died somewhere); x, seed 0 is resumed"]
    assert queue.parameters == {
        "name": "holdfast", "timeout_min": 9, "cpus_per_task": 1, "gpus_per_node": 2, "slurm_partition": "fast",
        "slurm_array_parallelism": 3,
    }  # fmt: skip


def test_jobs_that_wait_are_cancelled_by_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue("COMPLETED", "PENDING")
    assert not slurm_pool_with(monkeypatch, queue).run(planned(2), Log(), lambda: True)
    assert [job.cancelled for job in queue.jobs] == [False, True]


# -- what a remote worker does --------------------
def luggage(executor: Executor, tasks: Sequence[PlannedRun], **changes: Any) -> Luggage:
    packed = Luggage.pack(executor, tasks, False, None)
    return Luggage(**vars(packed) | changes)


def test_a_worker_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that a killed command has left behind still writes the run; the next worker takes what it leaves."""
    monkeypatch.setattr(remote_worker, "PATIENCE", 0.01)
    tasks = [PlannedRun(0, 0, "x", Config(rounds=1, steps=1, model="linear"), holdfast.Method(), Path("s/x/seed-0"))]
    worker = RemoteWorker(luggage(Executor(), tasks))
    lock = RunFolder(tasks[0].folder).reserve()
    lock.__enter__()
    threading.Timer(0.1, lambda: lock.__exit__()).start()
    assert worker.carry_out(0, lambda record: None, never) == RunEnded("finished", "")
    before = (tasks[0].folder / "summary.json").stat().st_mtime_ns
    assert worker.carry_out(0, lambda record: None, never) == RunEnded("finished", "")
    assert (tasks[0].folder / "summary.json").stat().st_mtime_ns == before, "a finished run is left alone"


def test_a_worker_that_is_stopped_while_it_waits() -> None:
    worker = RemoteWorker(luggage(Executor(), planned(1)))
    assert worker.carry_out(0, lambda record: None, lambda: True) == RunEnded("stopped", "")


def test_a_machine_without_the_folder_is_named() -> None:
    event = slurm_pool.work(luggage(Executor(), planned(1), place="/not/here"), 0, "stop")
    assert isinstance(event, RunFailed)
    assert str(event.error) == (
        f"{os.uname().nodename} does not have the folder /not/here: start the command in a folder that all machines "
        "share"
    )


# -- bad input --------------------
@pytest.mark.parametrize("where", ["rays", "ray://", "ray://host", "process(2)"])
def test_workers_that_do_not_exist(where: str) -> None:
    assert refused(*PAIR, "here", "--executor", where) == (
        f"holdfast: --executor must be process, ray, ray://host:port or slurm, not {where}\n"
    )


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("slurm(minutes=0)", "slurm: minutes must be a whole number of at least 1, not 0"),
        (
            "slurm(hours=1)",
            "unknown parameter 'hours' of slurm; known: account, cpus, gpus, memory, minutes, partition, qos",
        ),
        ("slurm", "--executor slurm needs sbatch, which is not here: start the command on a machine of the cluster"),
    ],
)  # fmt: skip
def test_what_slurm_cannot_do(where: str, why: str) -> None:
    with raises_exactly(why):
        check_pool(where)


@pytest.mark.parametrize(
    ("module", "where", "why"),
    [
        (ray_pool, "ray", "--executor ray needs Ray, which is not installed: pip install 'holdfast[flower]'"),
        (slurm_pool, "slurm", "--executor slurm needs the package submitit: pip install 'holdfast[slurm]'"),
    ],
)
def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch, module: Any, where: str, why: str) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with raises_exactly(why):
        make_pool(where, 1, Executor(), False)
