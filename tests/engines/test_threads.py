"""Small models compute with one thread, and leave the number of threads as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import holdfast
from holdfast.engines.threads import SMALL, suitable_threads
from holdfast.models.net import Net

SETTINGS = {"clients": 4, "cohort": 2, "steps": 1, "rounds": 1, "progress": False}


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads_during(model: str | nn.Module) -> int:
    """The threads with which a run of this model computes."""
    seen: list[int] = []
    holdfast.run("fedavg", model=model, on_round=lambda _: seen.append(torch.get_num_threads()), **SETTINGS)
    return seen[0]


def test_small_models_compute_with_one_thread(two_threads: None) -> None:
    assert threads_during("mlp(16)") == 1
    assert torch.get_num_threads() == 2
    assert threads_during("mlp(600)") == 2, "more than SMALL parameters"
    assert SMALL < 64 * 600 + 600 * 600


def test_convolutions_keep_their_threads(two_threads: None) -> None:
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))
    assert threads_during(conv) == 2


def test_an_error_leaves_the_threads_as_they_were(two_threads: None) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_within(Net(nn.Linear(2, 2), (2,), 2))
    assert torch.get_num_threads() == 2


def fail_within(net: Net) -> None:
    with suitable_threads(net):
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
