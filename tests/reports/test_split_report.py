"""The figures of a split by hand, and its pictures."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from holdfast.data.deal import group_by_owner
from holdfast.data.skew import effective_classes, feature_shift, figures, gini, total_variation
from holdfast.data.splits import ClientNoise, Deal, deal
from holdfast.reports.split_picture import png, record, terminal

TENS = np.tile(np.arange(10), 30)


def printed(d: Deal, labels: np.ndarray, classes: int, class_names: tuple[str, ...] = ()) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(terminal(d, labels, classes, class_names=class_names))
    return capture.get()


def test_one_class_clients():
    """Ten balanced classes, one each: TV 1/2(0.9 + 9*0.1) = 0.9, L1 twice that, one effective class."""
    f = figures(deal("classes(1)", TENS, 10, 0), TENS, 10)
    assert f["label_skew"] == pytest.approx(0.9)
    assert f["wasserstein"] == pytest.approx(1.8)
    assert f["effective_classes"] == pytest.approx(1)
    assert f["classes_per_client"] == {"min": 1, "mean": 1, "median": 1, "max": 1}
    assert f["samples_per_client"] == {"min": 30, "mean": 30, "median": 30, "max": 30}
    assert f["gini"] == f["empty_clients"] == 0


def test_figures_by_hand():
    assert gini(np.array([1, 1, 1, 1])) == 0
    assert gini(np.array([1, 3])) == pytest.approx(0.25)  # |1-3| twice, over 2 * 2 * 4
    counts = np.array([[2, 2, 0], [0, 0, 4]])
    np.testing.assert_allclose(total_variation(counts), [0.5, 0.5])
    np.testing.assert_allclose(effective_classes(counts), [2, 1])
    np.testing.assert_allclose(effective_classes(np.array([[1, 3]])), np.exp(np.log(4) - 0.75 * np.log(3)))


def test_empty_clients_are_counted_and_left_out():
    labels = np.array([0, 1, 0, 1])
    f = figures(group_by_owner(np.array([0, 0, 2, 2]), clients=5), labels, 2)
    assert f["empty_clients"] == 3
    assert f["samples_per_client"]["mean"] == f["samples_per_client"]["min"] == 2
    assert f["label_skew"] == 0
    assert f["gini"] == pytest.approx(0.6)


def test_global_mix_is_that_of_the_dealt_samples():
    """Samples held out of the deal do not count."""
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    d = Deal(np.array([0, 6, 1, 7]), np.array([0, 2, 4]))
    assert figures(d, labels, 2)["label_skew"] == 0


def test_feature_shift_by_hand():
    """Clients at -1 and +1 on one of two axes: each a distance 1 from the mean, the samples as well."""
    x = torch.tensor([[-1.0, 5.0], [-1.0, 5.0], [1.0, 5.0], [1.0, 5.0]])
    d = group_by_owner(np.array([0, 0, 1, 1]), clients=3)
    assert feature_shift(d, x) == pytest.approx(1)
    assert feature_shift(group_by_owner(np.array([0, 1, 0, 1]), clients=2), x) == pytest.approx(0)
    assert feature_shift(d, torch.ones(4, 2)) == 0
    scaled = ((x + 5) * 10).to(torch.uint8)  # any unit gives the same figure
    assert feature_shift(d, scaled) == pytest.approx(1, rel=1e-5)


def test_feature_shift_sees_the_noise():
    x = torch.randn(300, 12, generator=torch.Generator().manual_seed(0))
    d = deal("iid", TENS, 10, 0)
    noisy = Deal(d.index, d.offsets, ClientNoise(np.linspace(0, 9, 10, dtype=np.float32), 0.0, 1.0, 0))
    moved = Deal(d.index, d.offsets, ClientNoise(np.zeros(10, np.float32), 7.0, 1.0, 0))
    assert feature_shift(d, x) == pytest.approx(1 / np.sqrt(30), rel=0.2)
    assert feature_shift(moved, x) == pytest.approx(feature_shift(d, x), rel=1e-4)  # a common shift is none
    assert feature_shift(noisy, x) != pytest.approx(feature_shift(d, x), rel=0.01)


def test_feature_shift_of_some_of_very_many_clients(monkeypatch):
    x = torch.randn(300, 12, generator=torch.Generator().manual_seed(0))
    d = deal("iid", TENS, 100, 0)
    whole = feature_shift(d, x)
    monkeypatch.setattr("holdfast.data.skew.LIMIT", 12 * 50)
    assert feature_shift(d, x) == pytest.approx(whole, rel=0.2)


def test_record_is_json():
    d = deal("dirichlet(0.3)+noise(0.5, ramp)", TENS, 10, 0)
    back = json.loads(json.dumps(record(d, TENS, 10, torch.rand(300, 1, 4, 4))))
    assert back["counts"] == d.counts(TENS, 10).tolist()
    assert back["figures"]["noise_sigma"]["max"] == 0.5
    assert back["figures"]["feature_shift"] > 0
    assert len(back["noise_sigma"]) == 10


def test_terminal_shows_counts():
    d = deal("classes(2)", TENS, 15, 0)
    text = printed(d, TENS, 10)
    rows = text.splitlines()
    assert rows[0].split() == ["client", "samples", *map(str, range(10))]
    for i, row in enumerate(d.counts(TENS, 10)):
        assert rows[1 + i].split() == [str(i), str(row.sum()), *(str(c or "·") for c in row)]
    assert "label skew 0.8" in text
    assert "first" not in text


def test_classes_are_called_by_their_names():
    labels = np.tile(np.arange(2), 30)
    d = deal("iid", labels, 3, 0)
    short = printed(d, labels, 2, ("healthy", "sepsis")).splitlines()
    assert short[0].split() == ["client", "samples", "healthy", "sepsis"]
    assert short[1].split() == ["0", "20", *map(str, d.counts(labels, 2)[0])]
    long = printed(d, labels, 2, ("no sign of an infection", "infection")).splitlines()
    assert long[0].split() == ["client", "samples", "0", "1"]
    assert long[4] == "class 0: no sign of an infection; class 1: infection"
    assert record(d, labels, 2, class_names=("healthy", "sepsis"))["classes"] == ["healthy", "sepsis"]


def test_terminal_of_many_clients_and_classes():
    labels = np.tile(np.arange(100), 6)
    text = printed(deal("dirichlet(0.3)", labels, 60, 0), labels, 100)
    assert "the first 40 of 60 clients; each shade covers 2 classes" in text
    assert len(text.splitlines()) == 1 + 40 + 1 + 4


@pytest.mark.parametrize(
    ("split", "clients", "classes", "shape"),
    [
        ("dirichlet(0.3)", 20, 10, None),
        ("dirichlet(0.3)", 1200, 100, None),
        ("noise(0.5, ramp)", 5, 10, (3, 6, 6)),
        ("noise(0.5)+dirichlet(0.1)", 30, 10, (1, 6, 6)),
        ("noise(0.5)", 1, 10, (7,)),
    ],
)
def test_png(tmp_path, split, clients, classes, shape):
    labels = np.tile(np.arange(classes), 60)
    x = None if shape is None else torch.rand(len(labels), *shape)
    d = deal(split, labels, clients, 0)
    png(d, labels, classes, tmp_path / "split.png", x, split)
    with Image.open(tmp_path / "split.png") as image:
        assert image.format == "PNG"
        assert image.width > 1000
        assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 8
