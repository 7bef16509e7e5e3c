"""The checksum of a data set: of its samples as they are stored, and of nothing else."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import holdfast
from helpers.data_files import write_idx
from holdfast.data.loading import data_folder, is_published, load, sample_checksum, source

PUBLISHED = {"mnist": "3528fddb", "cifar10": "a38905a0", "cifar100": "2498e50f"}


def test_it_is_the_crc_of_all_arrays_in_order() -> None:
    data = load("digits")
    arrays = (data.x, data.y, data.test_x, data.test_y)
    whole = b"".join(np.ascontiguousarray(array.numpy()).tobytes() for array in arrays)
    assert data.checksum == f"{zlib.crc32(whole):08x}"
    assert load("digits(normalise=off)").checksum == data.checksum, "normalisation comes later"
    x = data.x.clone()
    x[0, 0, 0, 0] += 1
    assert sample_checksum(replace(data, x=x)) != data.checksum
    assert sample_checksum(replace(data, x=data.x.flip(0), y=data.y.flip(0))) != data.checksum, "the order counts"
    assert holdfast.from_arrays(np.zeros((9, 2), np.float32), np.arange(9) % 3).checksum == "", "it has no name"


def test_a_copy_is_told_from_the_published_data(tmp_path: Path) -> None:
    for name, checksum in PUBLISHED.items():
        assert is_published(f"{name}(normalise=off)", checksum)
        assert not is_published(name, "00000000")
        assert not is_published(name, "")
    assert is_published("digits", "12345678"), "any, where none is known"
    assert not is_published("digits", "")
    assert is_published("pictures.py:load", "12345678")
    write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10)
    assert not is_published("mnist", load("mnist", tmp_path).checksum)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_data_has_the_published_checksum(name: str) -> None:
    if source(name).missing(data_folder()):
        pytest.skip(f"no {name} in {data_folder()}")
    assert load(name).checksum == PUBLISHED[name]


def test_a_run_records_it() -> None:
    named = holdfast.run("fedavg", data="digits", clients=4, rounds=1, model="linear")
    assert named.summary["data_checksum"] == load("digits").checksum
    own = holdfast.from_arrays(np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32), np.arange(60) % 3)
    given = holdfast.run("fedavg", holdfast.federate(own, "iid", clients=4), nn.Linear(3, 3), rounds=1)
    assert "data_checksum" not in given.summary
