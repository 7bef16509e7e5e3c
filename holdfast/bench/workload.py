"""What is timed: rounds of ours and of plain PyTorch, on random images, whose content does not affect speed."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.models.zoo import make
from holdfast.runs.setup import prepare_simulation
from holdfast.training.simulation import Simulation


def images(
    shape: tuple[int, int, int],
    samples: int,
    clients: int,
    split: str = "iid",
    public: float = 0.0,
    tests: int = 1000,
) -> Federation:
    """Return a federation of random images.

    Args:
        shape: The shape of an image.
        samples: Images per client.
        clients: Clients.
        split: How the images are dealt.
        public: The fraction of public images.
        tests: How many of the images are test images as well.

    Returns:
        The federation, with ten classes.
    """
    g = torch.Generator().manual_seed(0)
    n = samples * clients
    x = torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    channels = shape[0]
    mean, std = (0.5,) * channels, (0.25,) * channels
    data = DataSet("random", x, y, x[:tests], y[:tests], tuple("0123456789"), mean, std)
    return federate(data, split, clients, 0, public=public)


def simulation(method: str, fed: Federation, **settings: Any) -> Simulation:
    """Return a run on this federation, ready for its rounds."""
    config = Config(method=method, clients=fed.clients, **settings)
    made = prepare_simulation(config, as_method(method), fed, None)
    assert isinstance(made, Simulation)
    return made


def plain_round(
    model: str, fed: Federation, cohort: int, batch: int, device: str, precision: str
) -> Callable[[], None]:
    """Return a round of plain eager PyTorch, with all data on the device: a module and an SGD optimizer per client.

    Args:
        model: The network.
        fed: The federation.
        cohort: Clients per round.
        batch: Samples per step.
        device: ``cpu`` or ``cuda``.
        precision: ``bf16`` or any other.

    Returns:
        A function that trains every client for an epoch and averages them.
    """
    x = ((fed.data.x.float() / 255 - 0.5) / 0.25).to(device)
    y = fed.data.y.to(device)
    indices = [torch.from_numpy(fed.deal.client(i)).to(device) for i in range(cohort)]
    start = make(model, fed.shape, fed.classes).to(device)
    modules = [copy.deepcopy(start) for _ in indices]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in modules]

    def client(i: int) -> dict[str, torch.Tensor]:
        modules[i].load_state_dict(start.state_dict())
        for index in torch.split(indices[i][torch.randperm(len(indices[i]), device=device)], batch):
            optimizers[i].zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                loss = F.cross_entropy(modules[i](x[index]).float(), y[index])
            torch.autograd.backward(loss)
            optimizers[i].step()
        return modules[i].state_dict()

    def play() -> None:
        total = {k: torch.zeros_like(v) for k, v in start.state_dict().items()}
        for i in range(cohort):
            for name, value in client(i).items():
                total[name] += value / cohort

    return play


def fastest(work: Callable[[], object], times: int, cuda: bool = False) -> float:
    """Return the seconds of the fastest of several runs: what the machine can do when nothing disturbs it.

    Args:
        work: What to run.
        times: How often.
        cuda: Whether to wait for the GPU.

    Returns:
        Seconds.
    """
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        work()
        if cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


class TimedRounds:
    """A simulation; every call runs its next round."""

    def __init__(self, method: str, fed: Federation, **settings: Any) -> None:
        self.simulation, self.t = simulation(method, fed, **settings), 0

    def __call__(self) -> None:
        self.t += 1
        self.simulation.play(self.t)
