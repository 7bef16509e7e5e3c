"""A run's settings: checked, kept, and read back as they were."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.method.config import FIELDS, Config
from holdfast.method.config_text import FORMAT, checksum, config_to_toml, read_config, setting_from_text

POSITIVE = st.floats(1e-300, 1e300)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "method": st.text(), "data_dir": st.none() | st.text(), "split": st.text(), "lr": POSITIVE, "clip": POSITIVE,
        "lr_decay": st.floats(1e-9, 1), "participation": st.floats(1e-9, 1), "seed": st.integers(0, 2**32 - 1),
        "augment": st.booleans(), "steps": st.none() | st.integers(1, 10**9), "public": st.floats(0, 0.999),
        "precision": st.sampled_from(["fp32", "tf32", "bf16", "fp64"]),
    },
)  # fmt: skip


def without_format(text: str) -> dict[str, object]:
    values = tomllib.loads(text)
    assert values.pop("format") == FORMAT
    assert values.pop("checksum") == checksum(text.rpartition("checksum = ")[0])
    return values


@given(SETTINGS)
def test_a_config_is_read_back_as_it_was(values: dict[str, object]):
    config = Config(**values)
    assert Config(**without_format(config_to_toml(config))) == config


@given(st.text())
def test_any_folder_name_is_read_back(tmp_path_factory: pytest.TempPathFactory, name: str):
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(config_to_toml(Config(data_dir=name)), encoding="utf-8")
    assert read_config(path)["data_dir"] == name


def test_what_is_not_set_is_left_out():
    kept = without_format(config_to_toml(Config()))
    assert "cohort" not in kept
    assert kept.items() <= {name: f.default for name, f in FIELDS.items()}.items()


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_says_what_it_is(name: str):
    assert FIELDS[name].metadata["doc"]
    assert Config().changed(**{name: FIELDS[name].default}) == Config()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": 0}, "lr.*above 0.*0"), ({"lr": True}, "lr.*true"), ({"lr": None}, "lr.*none"), ({"lr": "1"}, "lr"),
        ({"rounds": 2.5}, "rounds.*2.5"), ({"rounds": True}, "rounds"), ({"seed": -1}, "seed"), ({"model": 3}, "model"),
        ({"engine": "fast"}, "engine.*auto, loop, vector.*fast"), ({"augment": 1}, "augment"),
        ({"cohort": 3, "participation": 0.5}, "cohort and participation"), ({"cohort": 21, "clients": 20}, "21.*20"),
        ({"clients": 3, "cohort": 4}, "4.*3"), ({"participation": 1.01}, "participation.*1.01"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_with_its_range(values: dict[str, object], words: str):
    with pytest.raises(HoldfastError, match=words):
        Config(**values)


def test_whole_floats_are_integers_and_integers_are_floats():
    config = Config(rounds=3.0, lr=1)
    assert (config.rounds, config.lr) == (3, 1.0)
    assert (type(config.rounds), type(config.lr)) == (int, float)


def test_an_unknown_setting_is_met_with_the_nearest(tmp_path: Path):
    path = tmp_path / "my.toml"
    path.write_text("bach = 3")
    for attempt in (
        lambda: Config().changed(bach=3),
        lambda: read_config(path),
        lambda: setting_from_text("bach", "3"),
    ):
        with pytest.raises(HoldfastError, match=r"bach.*batch"):
            attempt()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", "0.5", 0.5), ("lr", "1e-3", 1e-3), ("rounds", "7", 7), ("rounds", "x", "x"), ("cohort", "none", None),
        ("cohort", "5", 5), ("clip", "", None), ("augment", "Yes", True), ("augment", "0", False), ("model", "5", "5"),
        ("augment", "perhaps", "perhaps"), ("head", "None", None),
    ],
)  # fmt: skip
def test_a_value_setting_from_text_has_the_type_of_its_field(name: str, text: str, value: object):
    found = setting_from_text(name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({}, 5), ({"clients": 3}, 2), ({"clients": 400}, 10), ({"cohort": 7}, 7), ({"participation": 0.1}, 2),
        ({"participation": 0.001}, 1), ({"participation": 1.0}, 20),
    ],
)  # fmt: skip
def test_size_of_the_cohort(values: dict[str, object], size: int):
    assert Config(**values).cohort_size == size
