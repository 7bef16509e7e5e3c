"""The trained model: raw inputs are prepared as in training, and a run on disk gives the same model back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.commands import good
from helpers.exact_errors import raises_exactly
from helpers.places import ROOT
from holdfast.runs.model_facts import InputFacts, ModelFacts
from holdfast.runs.raw_inputs import stored_inputs
from holdfast.runs.trained_model import RawModel, logits_of

pytestmark = pytest.mark.usefixtures("elsewhere")
FAST: dict[str, Any] = {"rounds": 2, "steps": 2, "cohort": 2}
RNG = np.random.default_rng(0)
ROWS = RNG.normal(loc=30, scale=7, size=(120, 5)).astype(np.float32)
LABELS = np.where(ROWS[:, 0] > 30, "warm", "cold")
PIXELS = RNG.integers(0, 256, (60, 6, 6, 3), dtype=np.uint8)  # channels last


class Conv(nn.Module):
    """A network with dropout, a buffer that is kept, one that is not, and a shared layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(64, 64)
        self.again = self.fc
        self.head = nn.Linear(64, 3)
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("shift", torch.tensor(0.25), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv(x)).flatten(1) * self.scale + self.shift
        return self.head(self.drop(torch.relu(self.again(torch.relu(self.fc(h))))))


def rows_federation() -> holdfast.Federation:
    return holdfast.federate(holdfast.from_arrays(ROWS, LABELS), split="iid", clients=4)


def rows_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def pixel_run(**settings: Any) -> holdfast.Result:
    data = holdfast.from_arrays(PIXELS, RNG.integers(0, 3, 60), classes=("ape", "bee", "cat"))
    federation = holdfast.federate(data, split="iid", clients=3)
    torch.manual_seed(2)
    return holdfast.run("fedavg", federation, Conv(), **(FAST | settings))


def by_hand(result: holdfast.Result, x: Tensor, mean: Tensor, std: Tensor) -> np.ndarray:
    """Probabilities of a fresh module with the result's weights, on inputs that are normalised here."""
    module = Conv() if x.dim() == 4 else rows_model()
    module.load_state_dict(result.state_dict())
    with torch.no_grad():
        return torch.softmax(module.eval()((x - mean) / std), 1).numpy()


# -- predictions --------------------
def test_rows_are_normalised_as_in_training():
    federation = rows_federation()
    result = holdfast.run("fedavg", federation, rows_model(), **FAST)
    mean, std = (torch.tensor(v) for v in (federation.data.mean, federation.data.std))
    wanted = by_hand(result, torch.from_numpy(ROWS), mean, std)
    np.testing.assert_allclose(result.predict_proba(ROWS), wanted, atol=1e-6)
    for same in (torch.from_numpy(ROWS), ROWS.tolist(), ROWS.astype(np.float64), ROWS[::-1][::-1], ROWS.astype(">f4")):
        np.testing.assert_allclose(result.predict_proba(same), wanted, atol=1e-6)
    found = result.predict(ROWS)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, wanted.argmax(1))
    assert result.classes == ("cold", "warm")
    assert not np.allclose(wanted, by_hand(result, torch.from_numpy(ROWS), torch.zeros(5), torch.ones(5)), atol=0.05)


def test_without_normalisation_raw_inputs_are_the_models():
    data = holdfast.from_arrays(ROWS / 30, LABELS, normalise=False)
    result = holdfast.run("fedavg", holdfast.federate(data, split="iid", clients=4), rows_model(), **FAST)
    x = torch.from_numpy(ROWS / 30)
    np.testing.assert_allclose(result.predict_proba(x), by_hand(result, x, torch.zeros(5), torch.ones(5)), atol=1e-6)


def test_pixels_are_scaled_and_their_channels_found():
    result = pixel_run()
    first = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
    moments = [torch.tensor(v).reshape(-1, 1, 1) for v in (result.facts.mean, result.facts.std)]
    wanted = by_hand(result, first / 255, *moments)
    for same in (PIXELS, first, PIXELS.astype(np.int64), PIXELS / 255, (first / 255).numpy(), PIXELS.tolist()):
        np.testing.assert_allclose(result.predict_proba(same), wanted, atol=1e-6)


def test_grey_images_may_lack_their_channel():
    result = holdfast.run("fedavg", model="linear", **FAST)
    test = holdfast.load("digits").test_x
    np.testing.assert_array_equal(result.predict_proba(test), result.predict_proba(test[:, 0]))
    np.testing.assert_array_equal(result.predict_proba(test), result.predict_proba(test.permute(0, 2, 3, 1)))


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_predictions_are_those_that_were_scored(engine: str):
    result = holdfast.run("fedavg+latest", model="mlp", engine=engine, **FAST)
    data = holdfast.load("digits")
    assert (result.predict(data.test_x) == data.test_y.numpy()).mean() == pytest.approx(result.score.accuracy)


def test_large_inputs_go_in_batches(monkeypatch: pytest.MonkeyPatch):
    result = holdfast.run("fedavg", rows_federation(), rows_model(), **FAST)
    whole = result.predict_proba(ROWS)
    sizes: list[int] = []
    result.model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    monkeypatch.setattr("holdfast.runs.trained_model.BATCH", 50)
    np.testing.assert_allclose(result.predict_proba(ROWS), whole, atol=1e-6)
    assert sizes == [50, 50, 20]


# -- the module --------------------
def test_the_model_is_the_users_own_with_its_weights():
    mine = Conv()
    before = {name: t.clone() for name, t in mine.state_dict().items()}
    data = holdfast.from_arrays(PIXELS, RNG.integers(0, 3, 60))
    result = holdfast.run("fedavg", holdfast.federate(data, split="iid", clients=3), mine, **FAST)
    assert type(result.model) is Conv
    assert not result.model.training
    assert type(result.model.head) is nn.Linear
    assert type(result.model.drop) is nn.Dropout
    assert result.model.again is result.model.fc
    assert result.model.shift == 0.25
    assert list(result.state_dict()) == list(mine.state_dict())
    assert all(torch.equal(t, before[name]) for name, t in mine.state_dict().items()), (
        "the user's module is not touched"
    )
    assert not torch.equal(result.model.fc.weight, before["fc.weight"])
    x = result.prepare(PIXELS[:4])
    with torch.no_grad():
        np.testing.assert_allclose(torch.softmax(result.model(x), 1), result.predict_proba(PIXELS[:4]), atol=1e-6)
        torch.testing.assert_close(result.net(result.w, x).logits, result.model(x))


def test_what_becomes_of_the_users_module_later_does_not_matter():
    mine = rows_model()
    result = holdfast.run("fedavg", rows_federation(), mine, **FAST)
    mine[2] = nn.Linear(8, 7)
    assert result.model[2].out_features == 2
    assert result.predict_proba(ROWS).shape == (120, 2)


def test_double_precision_stays_double():
    result = pixel_run(precision="fp64")
    assert result.model.fc.weight.dtype == torch.float64
    assert result.predict_proba(PIXELS).dtype == np.float64


def test_training_mode_does_not_disturb_predictions():
    result = pixel_run()
    wanted = result.predict_proba(PIXELS)
    result.model.train()
    np.testing.assert_array_equal(result.predict_proba(PIXELS), wanted)


def test_torch_and_numpy_are_enough():
    code = """
import sys
for name in ("safetensors", "sklearn", "scipy", "click", "rich", "matplotlib", "PIL", "plotly", "jinja2", "pandas"):
    sys.modules[name] = None
import numpy as np
import holdfast
x = np.random.default_rng(0).normal(size=(60, 3))
federation = holdfast.federate(holdfast.from_arrays(x, (x[:, 0] > 0).astype(int)), split="iid", clients=3)
result = holdfast.run("fedavg", federation, "linear", rounds=2, steps=2)
assert result.predict(x).shape == (60,)
print(result)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("fedavg on arrays, iid over 3 clients\n2 of 2 rounds in ")


# -- several inputs --------------------
class Tokens(nn.Module):
    """Counts words that are not masked."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return nn.functional.one_hot(input_ids, 4).mul(attention_mask[..., None]).sum(1).float()


def tokens(form: str) -> ModelFacts:
    names = ("input_ids", "attention_mask") if form == "dict" else ("0", "1")
    return ModelFacts(form, [InputFacts(n, [3], "int64") for n in names], [], [], list("abcd"), {})


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_dictionaries_and_tuples_of_inputs(form: str):
    ids, mask = [[0, 1, 1], [3, 3, 2]], np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    x = {"attention_mask": mask, "input_ids": ids} if form == "dict" else (ids, mask)
    stored = stored_inputs(x, tokens(form))
    assert [t.dtype for t in stored] == [torch.int64, torch.int64]
    raw = RawModel(Tokens(), tokens(form), torch.float32)
    assert logits_of(raw, stored, torch.device("cpu")).tolist() == [[1, 1, 0, 0], [0, 0, 1, 2]]


@pytest.mark.parametrize(
    ("form", "x", "message"),
    [
        ("dict", {"input_ids": 0}, "x has the keys input_ids, expected a dictionary with the keys input_ids, "
         "attention_mask; give that"),
        ("dict", [[1]], "x has the type list, expected a dictionary with the keys input_ids, attention_mask; give "
         "that"),
        ("tuple", [[1]], "x must be a tuple of 2 inputs, as in the training data; give that"),
        ("tuple", ([[1, 1, 1]], [[1, 1, 1]] * 2), "the inputs have 1, 2 samples; give as many of each"),
        ("tuple", ([[1.5, 1, 1]], [[1, 1, 1]]), "x[0] has torch.float64 numbers, expected whole numbers; convert it "
         "first"),
        ("tuple", ([[1, 1]], [[1, 1, 1]]), "x[0] has shape [1, 2], expected [n, 3]: give samples like those of the "
         "training data"),
    ],
)  # fmt: skip
def test_bad_dictionaries_and_tuples(form: str, x: Any, message: str):
    with raises_exactly(message):
        stored_inputs(x, tokens(form))


# -- bad inputs --------------------
@pytest.fixture(scope="module")
def rows_result() -> holdfast.Result:
    return holdfast.run("fedavg", rows_federation(), rows_model(), **FAST)


@pytest.fixture(scope="module")
def pixels_result() -> holdfast.Result:
    return pixel_run()


LIKE = "give samples like those of the training data"


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (ROWS[:, :4], f"x has shape [120, 4], expected [n, 5]: {LIKE}"),
        (ROWS[0], "x has shape [5], expected [n, 5]: give one sample as x[None]"),
        (3.0, f"x has shape [], expected [n, 5]: {LIKE}"),
        (ROWS[:0], "x is empty; give at least one sample"),
        ([[1, 2, 3, 4, 5], [1]], "x has samples of different shapes; give all the same shape"),
        ([["a"] * 5], "x must be numbers, not <U1; convert it first"),
        (np.ones((1, 5), complex), "x must be numbers, not complex128; convert it first"),
        (torch.ones((1, 5), dtype=torch.complex64), "x must be real numbers, not torch.complex64; convert it first"),
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, np.nan]], "x has NaN or infinite numbers, first in sample 1; clean it"),
    ],
)
def test_bad_rows(rows_result: holdfast.Result, x: Any, message: str):
    with raises_exactly(message):
        rows_result.predict(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (PIXELS[:, :5], f"x has shape [60, 5, 6, 3], expected [n, 3, 6, 6] or [n, 6, 6, 3]: {LIKE}"),
        (PIXELS[0], "x has shape [6, 6, 3], expected [n, 3, 6, 6] or [n, 6, 6, 3]: give one sample as x[None]"),
        (PIXELS.astype(np.float32), "x has torch.float32 pixels up to 255, expected numbers in [0, 1] or uint8; "
         "convert it to uint8, or divide it by 255"),
        (PIXELS.astype(np.int16) - 9, "x has pixels from -9 to 246, expected 0 to 255; scale it"),
    ],
)  # fmt: skip
def test_bad_pixels(pixels_result: holdfast.Result, x: Any, message: str):
    with raises_exactly(message):
        pixels_result.predict(x)


def test_bytes_for_a_model_of_other_numbers():
    result = holdfast.run("fedavg", model="linear", **FAST)
    with raises_exactly("x is uint8, but the training data was float32: convert it to the same numbers"):
        result.predict(np.zeros((2, 8, 8), np.uint8))


# -- runs on disk --------------------
def test_a_finished_run_comes_back_as_it_was():
    result = holdfast.run("fedavg", out="run", drift=True, **FAST)
    again = holdfast.load_run("run")
    assert again.history == result.history
    assert again.summary == result.summary
    assert again.config == result.config
    assert again.score == result.score
    assert again.facts == result.facts
    assert torch.equal(again.w, result.w)
    x = holdfast.load("digits").test_x
    np.testing.assert_array_equal(again.predict_proba(x), result.predict_proba(x))
    assert str(again) == str(result)


def test_the_served_model_is_loaded_not_the_global_one():
    """What ``latest`` serves is the mean of the clients' last models, which it keeps at the server."""
    result = holdfast.run("scaffold+latest", out="run", clip=1.0, **FAST)
    again = holdfast.load_run("run")
    assert torch.equal(again.w, result.w)


def test_a_stopped_run_comes_back_with_its_newest_checkpoint():
    seen: list[int] = []
    result = holdfast.run(
        "fedavg", out="run", rounds=5, steps=2, on_round=lambda r: seen.append(r.round), stop=lambda: len(seen) == 2
    )
    assert len(result.history) == 3
    again = holdfast.load_run("run")
    assert torch.equal(again.w, result.w)
    assert again.history == result.history
    assert again.summary["final"] == result.summary["final"]
    assert again.score is None, "a stopped run keeps no accuracy by class"
    federation = holdfast.federate(holdfast.load("digits"))
    assert holdfast.load_run("run", federation=federation).score == result.score
    assert "3 of 5 rounds" in str(again)


def test_the_data_is_not_read(monkeypatch: pytest.MonkeyPatch):
    result = holdfast.run("fedavg", out="run", **FAST)
    x = holdfast.load("digits").test_x
    monkeypatch.setattr("holdfast.data.sources.digits.Digits.load", None)
    np.testing.assert_array_equal(holdfast.load_run("run").predict(x), result.predict(x))


def test_a_run_of_an_earlier_version_looks_its_data_up():
    result = holdfast.run("fedavg", out="run", **FAST)
    Path("run/model.json").unlink()
    again = holdfast.load_run("run")
    assert again.facts == result.facts
    holdfast.run("fedavg", out="run", resume=True, **(FAST | {"rounds": 3}))
    assert Path("run/model.json").exists(), "a resumed run describes its model"


@pytest.mark.parametrize("name", ["comparison/fedavg/seed-0", "fedcm-vector", "momentum", "scaffold"])
def test_runs_of_the_first_format_predict_what_they_were_scored(name: str):
    """These folders have no ``model.json``; two of them name a part as it was called then."""
    result = holdfast.load_run(ROOT / "tests" / "runs" / "format1" / name)
    data = holdfast.load("digits")
    accuracy = (result.predict(data.test_x) == data.test_y.numpy()).mean()
    assert accuracy == pytest.approx(result.history[-1].test_accuracy)


def test_a_run_of_ones_own_objects_wants_them():
    result = holdfast.run("fedavg", rows_federation(), rows_model(), out="run", **FAST)
    with raises_exactly(
        "the run in run was started from Python with its own model, Sequential: use "
        "holdfast.load_run(folder, model=...)"
    ):
        holdfast.load_run("run")
    again = holdfast.load_run("run", model=rows_model())
    np.testing.assert_array_equal(again.predict_proba(ROWS), result.predict_proba(ROWS))
    Path("run/model.json").unlink()
    with raises_exactly(
        "the run in run was started from Python with its own data, arrays: use holdfast.load_run(folder, model=..., "
        "federation=...)"
    ):
        holdfast.load_run("run", model=rows_model())
    again = holdfast.load_run("run", rows_model(), rows_federation())
    np.testing.assert_array_equal(again.predict_proba(ROWS), result.predict_proba(ROWS))
    assert again.score == result.score


def test_objects_that_are_not_those_of_the_run():
    holdfast.run("fedavg", rows_federation(), rows_model(), out="run", **FAST)
    with raises_exactly(
        "in the model, 0.weight is of shape [9, 5], but in the run in run it is of shape [8, 5]: use "
        "holdfast.load_run(folder, model=...) with the module that was trained"
    ):
        holdfast.load_run("run", model=nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 2)))
    with raises_exactly(
        "in the model, 0.weight is missing, but in the run in run it is of shape [8, 5]: use "
        "holdfast.load_run(folder, model=...) with the module that was trained"
    ):
        holdfast.load_run("run", model="linear")
    with raises_exactly(
        "federation has samples of float32 [1, 8, 8] in 10 classes, but the run in run has samples of float32 [5] in 2 "
        "classes: give the federation that it was started with"
    ):
        holdfast.load_run("run", rows_model(), holdfast.federate(holdfast.load("digits")))
    with raises_exactly("the second argument is a DataSet, not a federation: make one with federate(...)"):
        holdfast.load_run("run", rows_model(), holdfast.load("digits"))


def test_folders_without_a_trained_model():
    with raises_exactly("nowhere holds no run: check the folder"):
        holdfast.load_run("nowhere")
    good("compare", "fedavg", "--seeds", "1", "--rounds", "1", "--steps", "1", "--light", "--out", "study", "--quiet")
    with raises_exactly("study holds no run: choose one of those in it, such as study/fedavg/seed-0"):
        holdfast.load_run("study")
    with raises_exactly("the run in study/fedavg/seed-0 has no checkpoint, so it has no trained model: run it again"):
        holdfast.load_run("study/fedavg/seed-0")


REMEDY = "delete it to look the facts up in the data"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", f"run/model.json is damaged, it is not valid JSON: {REMEDY}"),
        ("[]", f"run/model.json is damaged, the file must be an object: {REMEDY}"),
        ({"classes": "0"}, f"run/model.json is damaged, classes must be a list: {REMEDY}"),
        ({"classes": []}, f"run/model.json is damaged, classes is empty or std is not above 0: {REMEDY}"),
        ({"std": [0.0]}, f"run/model.json is damaged, classes is empty or std is not above 0: {REMEDY}"),
        ({"std": []}, f"run/model.json is damaged, mean and std do not fit together: {REMEDY}"),
        ({"form": "list"}, f"run/model.json is damaged, form does not fit inputs: {REMEDY}"),
        ({"inputs": []}, f"run/model.json is damaged, form does not fit inputs: {REMEDY}"),
        (
            {"inputs": [{"name": "x", "shape": [1, 8, 8], "dtype": "save"}]},
            f"run/model.json is damaged, inputs has an unknown type or an empty shape: {REMEDY}",
        ),
        ({"format": 2}, "run/model.json has format 2, but this version reads up to 1: upgrade Holdfast"),
    ],
)
def test_a_damaged_description(change: Any, message: str):
    good("run", "fedavg", "--rounds", "1", "--steps", "1", "--model", "linear", "--out", "run", "--quiet")
    path = Path("run/model.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(change if isinstance(change, str) else json.dumps(facts | change), encoding="utf-8")
    with raises_exactly(message):
        holdfast.load_run("run")


# -- texts and tables --------------------
def test_a_result_is_printed_in_a_few_lines():
    result = holdfast.run("fedavg", rows_federation(), rows_model(), out="run", **FAST)
    seconds, accuracy = result.summary["seconds"], result.summary["final"]
    best, best_round = result.summary["best"], result.summary["best_round"]
    size = 2 * 2 * (5 * 8 + 8 + 8 * 2 + 2) * 4 / 1e6  # rounds, clients, parameters, bytes
    assert str(result).splitlines() == [
        "fedavg on arrays, iid over 4 clients",
        f"2 of 2 rounds in {seconds:.1f} s: accuracy {accuracy:.4f}, best {best:.4f} in round {best_round}, chosen on "
        f"test data; {size:.2f} MB up, {size:.2f} MB down",
        "Sequential with 66 parameters for 2 classes: cold, warm",
        "kept in run",
    ]
    assert repr(result) == str(result)


def test_the_history_is_a_frame_with_drift_as_columns():
    result = holdfast.run("fedavg", drift=True, eval_every=2, **(FAST | {"rounds": 3}))
    frame = result.frame()
    assert list(frame["round"]) == [1, 2, 3]
    assert frame["drift_cosine"].isna().tolist() == [True, False, False]
    assert frame["drift_cosine"][2] == result.history[2].drift["cosine"]
    assert frame["test_accuracy"][2] == result.score.accuracy
    assert "drift" not in frame
    assert "failed" not in frame
    assert frame["cohort"][0] == result.history[0].cohort
    assert isinstance(result.history, list)


def test_a_frame_without_pandas(monkeypatch: pytest.MonkeyPatch):
    result = holdfast.run("fedavg", **FAST)
    monkeypatch.setattr("holdfast.runs.history.find_spec", lambda name: None)
    with raises_exactly("frame needs the package pandas: pip install pandas"):
        result.frame()
