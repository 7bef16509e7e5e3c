"""Augmentation: each against a reference in NumPy, keyed, alike in every engine, and a centre crop at test."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.commands import config, good, refused
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import SMALL, on_grid
from holdfast import DataSet, Federation, federate
from holdfast.core import rng
from holdfast.data.augmentation import Augmentation
from holdfast.data.augmentation_sum import NAMED_SUMS, AugmentationSum, augmentations, read_augmentation
from holdfast.method.config import Config
from holdfast.method.config_text import config_to_toml, read_config
from holdfast.runs.setup import prepare_simulation

PADDING = 4


def image_data(samples: int = 40, height: int = 6, width: int = 7) -> DataSet:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (samples, 3, height, width), generator=generator, dtype=torch.uint8)
    y = torch.arange(samples) % 4
    return DataSet("images", x, y, x[:10], y[:10], tuple("abcd"), (0.5, 0.25, 0.1), (0.5, 0.25, 2.0))


def uniforms(key: Tensor, samples: int, draws: int) -> np.ndarray:
    return rng.uniform(key, (samples, draws)).numpy().reshape(-1, draws)


# -- references --------------------
def cropped(image: np.ndarray, u: np.ndarray, pixels: int, padding: str | None, p: float = 1.0) -> np.ndarray:
    """Pad and cut out one image as the words of the documentation say."""
    _, height, width = image.shape
    h, w = (height, width) if padding else (pixels, pixels)
    if padding:
        mode = {"zeros": "constant", "reflect": "reflect", "edge": "edge"}[padding]
        image = np.pad(image, [(0, 0), (pixels, pixels), (pixels, pixels)], mode=mode)
    tops, lefts = image.shape[1] - h + 1, image.shape[2] - w + 1
    top, left = int(u[0] * np.float32(tops)), int(u[1] * np.float32(lefts))
    if p < 1 and not u[2] < p:
        top, left = (tops - 1) // 2, (lefts - 1) // 2
    return image[:, top : top + h, left : left + w]


CROPS = [
    ("crop(4, padding=zeros)", (4, "zeros")), ("crop(5, padding=reflect)", (5, "reflect")),
    ("crop(9, padding=edge)", (9, "edge")), ("crop(9, padding=zeros, p=0.25)", (9, "zeros", 0.25)),
    ("crop(2, padding=reflect, p=0.5)", (2, "reflect", 0.5)), ("crop(5)", (5, None)), ("crop(6)", (6, None)),
    ("crop(3, p=0.4)", (3, None, 0.4)), ("crop(4, p=0)", (4, None, 0.0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "how"), CROPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_crops_are_those_of_numpy(text: str, how: tuple, dtype: torch.dtype):
    x = torch.rand(60, 3, 6, 7, generator=torch.Generator().manual_seed(1)).to(dtype) + 1
    draws = 2 if len(how) == 2 else 3
    found = read_augmentation(text).randomly(x, rng.key(3, 4))
    assert found.dtype == dtype
    assert found.is_contiguous()
    exact = x.double().numpy()
    for image, u, got in zip(exact, uniforms(rng.key(3, 4), 60, draws), found.double().numpy(), strict=True):
        assert np.array_equal(got, cropped(image, u, *how))


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_flips_are_those_of_numpy(p: float):
    x = torch.rand(200, 2, 5, 4)
    found = read_augmentation(f"flip({p})").randomly(x, rng.key(8)).numpy()
    for image, (u,), got in zip(x.numpy(), uniforms(rng.key(8), 200, 1), found, strict=True):
        assert np.array_equal(got, image[:, :, ::-1] if u >= 1 - p else image)


def test_a_sum_is_applied_in_order_each_term_with_its_own_numbers():
    x = torch.rand(50, 3, 6, 7)
    found = read_augmentation("flip(0.5)+crop(2, padding=edge, p=0.5)+crop(4)").randomly(x, rng.key(1)).numpy()
    for image, u, got in zip(x.numpy(), uniforms(rng.key(1), 50, 6), found, strict=True):
        mirrored = image[:, :, ::-1] if u[0] >= 0.5 else image
        assert np.array_equal(got, cropped(cropped(mirrored, u[1:4], 2, "edge", 0.5), u[4:], 4, None))


def test_standard_is_what_it_always_was():
    """The formula before augmentation was a sum: three numbers per image, zeros outside, mirrored from 1/2."""
    x, key = torch.rand(4, 30, 3, 6, 7), rng.key(5, torch.arange(4))
    found = read_augmentation(True).randomly(x, key)
    padded = torch.nn.functional.pad(x, [PADDING] * 4)
    draw = rng.uniform(key, (30, 3))
    for c in range(4):
        for i in range(30):
            top, left = (draw[c, i, :2] * (2 * PADDING + 1)).long().tolist()
            window = padded[c, i, :, top : top + 6, left : left + 7]
            assert torch.equal(found[c, i], window if draw[c, i, 2] < 0.5 else window.flip(2))


# -- probabilities --------------------
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_p_of_the_images_is_changed(p: float):
    """Of 4000 images, within five standard deviations; a random crop is central by chance once in 81 times."""
    x = torch.rand(4000, 1, 6, 6) + 1
    spread = 5 * (4000 * p * (1 - p)) ** 0.5
    flipped = read_augmentation(f"flip({p})").randomly(x, rng.key(0))
    assert float((flipped != x).any((1, 2, 3)).sum()) == pytest.approx(4000 * p, abs=spread)
    moved = read_augmentation(f"crop(4, padding=zeros, p={p})").randomly(x, rng.key(1))
    assert float((moved != x).any((1, 2, 3)).sum()) == pytest.approx(4000 * p * 80 / 81, abs=spread)


@pytest.mark.parametrize(("text", "places"), [("crop(4, padding=zeros)", 9), ("crop(4)", 5)])
def test_every_place_is_equally_likely(text: str, places: int):
    """A single bright pixel tells where the window was: 8100 images, five standard deviations."""
    coordinates = torch.arange(8 * 8).reshape(1, 1, 8, 8).float() + 1
    x = coordinates.expand(8100, -1, -1, -1)
    found = read_augmentation(text).randomly(x, rng.key(2))
    middle = found[:, 0, found.shape[2] // 2, found.shape[3] // 2]
    rows = ((middle - 1) // 8).long()[middle > 0]
    counts = torch.bincount(rows)
    counts = counts[counts > 0]
    seen = min(places, 8)  # with padding, the middle may lie outside of the image
    assert len(counts) == seen
    expected = len(rows) / seen
    assert (counts - expected).abs().max() < 5 * (expected * (1 - 1 / seen)) ** 0.5


# -- keys --------------------
@pytest.mark.parametrize("text", ["standard", "crop(4, padding=reflect, p=0.5)+flip(0.5)", "crop(5)+flip"])
def test_augmentation_is_a_function_of_the_key(text: str):
    x, key, augment = torch.rand(2, 6, 1, 8, 8), rng.key(5, torch.arange(2)), read_augmentation(text)
    once = augment.randomly(x, key)
    torch.manual_seed(7)
    assert torch.equal(once, augment.randomly(x, key))
    assert not torch.equal(once, augment.randomly(x, rng.key(6, torch.arange(2))))
    for i in range(2):
        assert torch.equal(once[i], augment.randomly(x[i], key[i])), "a client alone is augmented as among others"
    assert torch.equal(once[:, :3], augment.randomly(x[:, :3], key)), "padding changes nothing"
    assert once.dtype == x.dtype
    assert once.is_contiguous()


# -- federations --------------------
def test_all_inputs_have_the_size_of_the_crop():
    fed = federate(image_data(), "iid", clients=4, public=0.2, augment="crop(5)+flip(0.5)")
    assert fed.shape == (3, 5, 5)
    plain = federate(image_data(), "iid", clients=4, public=0.2)
    assert plain.shape == (3, 6, 7)
    stored = fed.data.test_x
    assert torch.equal(fed.inputs(stored), plain.inputs(stored)[..., 0:5, 1:6]), "test data: the central window"
    index = torch.from_numpy(np.stack([fed.deal.client(i)[:3] for i in range(4)]))
    x, y = fed.samples(index, torch.zeros(4))
    assert torch.equal(x, plain.samples(index, torch.zeros(4))[0][..., 0:5, 1:6]), "measurements: likewise"
    moved, labels = fed.batch(index, torch.zeros(4), rng.key(1, torch.arange(4)))
    assert moved.shape == x.shape
    assert not torch.equal(moved, x)
    assert torch.equal(labels, y)
    for batch, whole in zip(fed.public_batches(3), plain.public_batches(3), strict=True):
        assert torch.equal(batch.x, whole.x[..., 0:5, 1:6])


def test_feature_noise_comes_before_the_crop():
    """A client's noise belongs to the sample, not to the window."""
    noisy = federate(image_data(), "noise(0.5)", clients=4, augment="crop(5)")
    whole = federate(image_data(), "noise(0.5)", clients=4)
    index, sigma = torch.arange(4)[:, None], torch.ones(4)
    assert torch.equal(noisy.samples(index, sigma)[0], whole.samples(index, sigma)[0][..., 0:5, 1:6])


def network(shape: tuple[int, int, int]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        lower = [nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten()]
        return nn.Sequential(*lower, nn.Linear(4 * (shape[1] - 2) * (shape[2] - 2), 4))


WAYS = [
    {"engine": "loop"},
    {"engine": "vector"},
    {"engine": "vector", "slice": 1},
    {"engine": "vector", "compile": True},
]


@pytest.mark.parametrize(
    "text", ["standard", "flip(0.3)", "crop(5)", "crop(3, padding=reflect, p=0.5)+flip(0.5)", "crop(2, padding=edge)"]
)
def test_training_is_alike_in_every_engine_and_unlike_plain_training(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    settings = {"rounds": 2, "cohort": 3, "epochs": "1-2", "batch": 4, "precision": "fp64", "device": "cpu"}
    fed = federate(image_data(), "quantity(1)+noise(0.1)", clients=4, augment=text)
    models = [holdfast.run("scaffold+moon", fed, network(fed.shape), **settings, **way).w for way in WAYS]
    for w in models[1:]:
        torch.testing.assert_close(w, models[0], rtol=1e-9, atol=1e-10)
    still = replace(fed, augment=AugmentationSum())
    if still.shape == fed.shape:
        assert not torch.allclose(holdfast.run("scaffold+moon", still, network(fed.shape), **settings).w, models[0])


def test_nodes_augment_as_a_simulation_does():
    settings = SMALL | {"augment": "crop(6)+flip(0.5)", "rounds": 2}
    expected = holdfast.run("scaffold", engine="loop", **settings)
    found = on_grid("scaffold", augment="crop(6)+flip(0.5)", rounds=2)
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)
    assert found.net.shape == (1, 6, 6)


# -- public data --------------------
def public_federation(**how: bool | str) -> Federation:
    return federate(image_data(), "iid", clients=4, public=0.3, **how)


def refined(**how: bool | str) -> Tensor:
    """FNR's second trip trains clients on the public data."""
    fed = public_federation(**how)
    settings = {
        "rounds": 1,
        "cohort": 4,
        "epochs": 1,
        "batch": 4,
        "precision": "fp64",
        "device": "cpu",
        "engine": "loop",
    }
    return holdfast.run("fnr(epochs=1)", fed, network(fed.shape), **settings).w


def test_clients_augment_public_data_like_their_own_unless_it_is_set_separately():
    same, none, plain = refined(augment="flip"), refined(augment="flip", augment_public="none"), refined()
    assert torch.equal(same, refined(augment="flip", augment_public="flip(0.5)"))
    assert not torch.allclose(same, none)
    assert not torch.allclose(plain, none)
    only_public = refined(augment="none", augment_public="standard")
    assert not torch.allclose(only_public, plain)


def test_without_augmentation_of_public_data_a_trip_sees_it_exactly_as_it_is():
    """Flipping every private image beforehand, and nothing in training, is the same run."""
    fed = public_federation(augment="flip(1)", augment_public="none")
    x = fed.data.x.clone()
    private = torch.from_numpy(fed.deal.index)
    x[private] = x[private].flip(3)
    flipped = federate(replace(fed.data, x=x), "iid", clients=4, public=0.3)
    assert torch.equal(flipped.public, fed.public)
    settings = {"rounds": 2, "cohort": 4, "epochs": 1, "batch": 4, "precision": "fp64", "device": "cpu"}
    for method in ("fnr(epochs=1)", "fnr(epochs=2, batch=3, shuffled=false)", "finetune(1)"):
        one, other = (holdfast.run(method, f, network(f.shape), engine="loop", **settings).w for f in (fed, flipped))
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(
        other,
        holdfast.run(
            "finetune(1)", public_federation(augment="flip(1)"), network(fed.shape), engine="loop", **settings
        ).w,
    )


def test_the_server_sees_public_data_augmented_only_if_that_is_set():
    plain = [batch.x for batch in public_federation().public_batches(5)]
    for how in ({"augment": "flip"}, {"augment": "flip", "augment_public": "none"}):
        batches = list(public_federation(**how).public_batches(5, rng.key(3)))
        assert all(torch.equal(b.x, x) for b, x in zip(batches, plain, strict=True))
    moved = list(public_federation(augment_public="flip(1)").public_batches(5, rng.key(3)))
    assert all(torch.equal(b.x, x.flip(3)) for b, x in zip(moved, plain, strict=True))
    measured = public_federation(augment_public="flip(1)").public_batches(5)
    assert all(torch.equal(b.x, x) for b, x in zip(measured, plain, strict=True)), "clients measure as they are"
    random = public_federation(augment_public="crop(4)", augment="crop(4)")
    one, again, other = ([b.x for b in random.public_batches(5, rng.key(k))] for k in (1, 1, 2))
    assert all(map(torch.equal, one, again))
    assert not any(map(torch.equal, one, other))
    assert not torch.equal(one[0], one[1]), "each batch draws its own numbers"


def test_distillation_at_the_server_uses_them():
    models = []
    for how in ({}, {"augment_public": "flip(1)"}):
        simulation = prepare_simulation(
            Config(cohort=2, clients=4, rounds=1, epochs=1, device="cpu"), holdfast.Method.parse("feddf(steps=3)"),
            public_federation(**how), network((3, 6, 7)),
        )  # fmt: skip
        simulation.play(1)
        models.append(simulation.server.w)
    assert not torch.allclose(*models)


# -- of one's own --------------------
def test_a_new_augmentation_is_one_class():
    @dataclass(frozen=True)
    class Dim(Augmentation):
        """Multiply every image by a random number."""

        name = "toy-dim"

        @property
        def draws(self) -> int:
            return 1

        def randomly(self, images: Tensor, draw: Tensor) -> Tensor:
            return images * draw[:, 0, None, None, None].to(images.dtype)

    x = torch.rand(5, 1, 4, 4)
    for augment in (read_augmentation("flip(0)+toy-dim"), read_augmentation("flip(0)") + Dim()):
        found = augment.randomly(x, rng.key(1))
        assert torch.equal(found, x * rng.uniform(rng.key(1), (5, 2))[:, 1, None, None, None])
    assert "toy-dim" in augmentations()


# -- settings --------------------
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (("--augment",), True), (("--no-augment",), False), (("--augment", "standard"), True), ((), False),
        (("--augment", "none"), False), (("--augment=flip(0.1)",), "flip(0.1)"), (("--set", "augment=true"), True),
        (("--augment", "flip(0.1)", "--no-augment"), False), (("--augment", "crop(6)+flip"), "crop(6)+flip"),
    ],
)  # fmt: skip
def test_the_flag_may_have_a_value(words: tuple[str, ...], stored: bool | str):
    tiny = ("--model", "linear", "--clients", "6", "--cohort", "2", "--steps", "2", "--rounds", "1", "--quiet")
    good("run", "fedavg", *tiny, *words, "--out", "after")
    good("run", *tiny, "--out", "before", *words, *(() if words[-1:] == ("--augment",) else ("--json",)), "fedavg")
    assert config("after")["augment"] == config("before")["augment"] == stored
    assert config("after")["augment_public"] == "same"


def test_old_configs_are_read_as_they_were(tmp_path):
    """A file without the new settings, and with a switch for augmentation."""
    text = config_to_toml(Config(augment=True, lr_decay=0.9))
    lines = [line for line in text.splitlines() if not line.startswith(("augment_public", "lr_schedule", "checksum"))]
    assert "augment = true" in lines
    (tmp_path / "config.toml").write_text("\n".join(lines))
    assert Config(**read_config(tmp_path / "config.toml")) == Config(augment=True, lr_decay=0.9)


def test_a_run_with_a_sum_is_resumed_and_another_one_is_refused(tmp_path):
    settings = {"clients": 4, "cohort": 2, "model": "linear", "epochs": 1, "device": "cpu"}
    whole = holdfast.run("fedavg", rounds=3, augment="standard", **settings)
    holdfast.run("fedavg", rounds=1, augment=True, out=tmp_path, **settings)
    rest = holdfast.run("fedavg", rounds=3, augment="standard", out=tmp_path, resume=True)
    assert torch.equal(rest.w, whole.w)
    with raises_exactly(
        "the run to resume has augment = true, not flip(0.5): leave that setting out, or start over with --overwrite"
    ):
        holdfast.run("fedavg", rounds=3, augment="flip(0.5)", out=tmp_path, resume=True)


# -- bad input --------------------
BAD = {
    "flpi": "unknown augmentation 'flpi'; did you mean flip?",
    "rotate(3)": "unknown augmentation 'rotate'; known: crop, flip, none, standard",
    "standard(3)": "augmentation standard takes no parameters: leave them out",
    "crop": "crop: pixels is missing (with padding: its width on every side; without: the side of the crop): write "
    "crop(pixels=...)",
    "crop(0)": "crop: pixels must be a whole number of at least 1, not 0",
    "crop(4, padding=mirror)": "crop: padding must be one of zeros, reflect, edge, not mirror",
    "crop(4, padding=zeros, p=2)": "crop: p must be a number in [0, 1], not 2",
    "flip(-0.1)": "flip: p must be a number in [0, 1], not -0.1",
    "crop(2)": "crop(pixels=2) would leave 2x2 of images of 8x8: to pad them instead, write crop(2, padding=zeros)",
    "crop(9)": "crop(pixels=9) is larger than images of 8x8: use a smaller crop, or add padding=zeros to pad them",
    "crop(8, padding=reflect)": "crop(pixels=8, padding=reflect) reflects more than there is in images of 8x8: use at "
    "most 7 pixels",
    "crop(6)+crop(7)": "crop(pixels=7) is larger than images of 6x6: use a smaller crop, or add padding=zeros to pad "
    "them",
    "crop(6": "cannot read 'crop(6': expected ',' or ')', found the end",
}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("flag", ["--augment", "--augment-public"])
def test_a_bad_augmentation_is_one_line(flag: str, text: str):
    assert refused("run", "fedavg", "--model", "linear", "--rounds", "1", flag, text) == f"holdfast: {BAD[text]}\n"


def test_both_augmentations_must_crop_to_the_same_size():
    with raises_exactly(
        "augment makes inputs of shape (3, 5, 5), augment_public of shape (3, 6, 7): crop both to the same size"
    ):
        public_federation(augment="crop(5)", augment_public="flip")


def test_only_images_can_be_augmented():
    data = holdfast.from_arrays(torch.randn(20, 4), torch.arange(20) % 2, name="rows")
    for how in ({"augment": True}, {"augment": "crop(2)"}, {"augment_public": "flip"}):
        with raises_exactly("augmentation needs images, but the samples of rows have shape (4,); turn augment off"):
            federate(data, "iid", clients=2, **how)
    assert federate(data, "iid", clients=2, augment="none", augment_public="none").shape == (4,)


def test_named_sums_are_sums():
    for name, text in NAMED_SUMS.items():
        assert read_augmentation(name) == (read_augmentation(text) if text else AugmentationSum())
