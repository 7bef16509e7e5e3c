"""Every method of the catalogue in eight settings, on small colour images and a network with GroupNorm."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from helpers.brief import brief, least_cohort
from holdfast import DataSet, Federation, federate, run
from holdfast.data.augmentation_sum import read_augmentation
from holdfast.method.catalogue import methods

BASE = {"rounds": 1, "epochs": 1, "batch": 5, "device": "cpu", "precision": "fp64"}
SETTINGS = {
    "loop": {"engine": "loop"},
    "loop, augmented": {"engine": "loop", "augment": True},
    "vector": {"engine": "vector"},
    "vector, augmented": {"engine": "vector", "augment": True},
    "vector, augmented, in slices": {"engine": "vector", "augment": True, "slice": 1},
    "vector, augmented, steps": {"engine": "vector", "augment": True, "epochs": None, "steps": 3},
    "vector, augmented, participation": {"engine": "vector", "augment": True, "cohort": None, "participation": 0.7},
    "vector, augmented, bf16": {"engine": "vector", "augment": True, "precision": "bf16"},
}
SAME = [  # settings that differ only in how they compute
    ("loop", "vector"),
    ("loop, augmented", "vector, augmented"),
    ("loop, augmented", "vector, augmented, in slices"),
]
NAMES = [entry.name for entry in methods() if entry.group != "yours"]


@cache
def colour_images(augment: bool) -> Federation:
    """Four clients of colour images of 8 x 8 pixels, beside public data."""
    g = torch.Generator().manual_seed(2)
    x, y = torch.randint(0, 256, (24, 3, 8, 8), generator=g, dtype=torch.uint8), torch.arange(24) % 3
    data = DataSet("images", x, y, x, y, ("a", "b", "c"), mean=(0.5,) * 3, std=(0.25,) * 3)
    return federate(data, "quantity(2)", clients=4, augment=augment, public=0.2)


def network() -> nn.Module:
    """Two convolutions, GroupNorm after each, and a head."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        lower = [nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 4, 3, stride=2), nn.GroupNorm(2, 4)]
        return nn.Sequential(*lower, nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))


def trained(name: str, changes: dict) -> Tensor:
    settings = {
        k: v for k, v in (BASE | {"cohort": least_cohort(name)} | changes).items() if v is not None and k != "augment"
    }
    return run(brief(name), colour_images(changes.get("augment", False)), network(), **settings).w


@pytest.mark.parametrize("name", NAMES)
def test_every_method_trains_in_every_setting(name):
    models = {setting: trained(name, changes) for setting, changes in SETTINGS.items()}
    for setting, w in models.items():
        assert torch.isfinite(w).all(), setting
    for one, other in SAME:
        torch.testing.assert_close(models[other], models[one], rtol=1e-9, atol=1e-10, msg=f"{one} / {other}")


@pytest.mark.parametrize("lead", [(5,), (2, 5)])
def test_augmented_images_are_contiguous(lead):
    x = torch.rand(*lead, 3, 8, 8)
    augmented = read_augmentation("standard").randomly(x, torch.arange(2) if len(lead) == 2 else torch.tensor(0))
    assert augmented.shape == x.shape
    assert augmented.is_contiguous()
