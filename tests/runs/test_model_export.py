"""Exported models: loaded without Holdfast, by the lines of their own card, they answer the same to raw inputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.commands import good, refused
from helpers.exact_errors import raises_exactly
from holdfast.runs.history import best_text
from holdfast.runs.model_export import example_inputs, write_onnx, write_torch
from holdfast.runs.model_facts import InputFacts, ModelFacts
from holdfast.runs.trained_model import RawModel

pytestmark = pytest.mark.usefixtures("elsewhere")
FAST: dict[str, Any] = {"rounds": 2, "steps": 2, "cohort": 2}
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
MODULE = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        h = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(h.flatten(1)))
"""
# What another program does: it has neither Holdfast nor the run, only the export, the module and the samples.
READER = """
import os, sys
sys.modules["holdfast"] = None
import numpy as np
{before}
x = np.load("../x.npy") if {numpy} else __import__("torch").from_numpy(np.load("../x.npy"))
{card}
np.save("logits.npy", logits.detach().numpy() if not {numpy} else logits)
print(*names)
"""


def small() -> nn.Module:
    space: dict[str, Any] = {}
    exec(MODULE, space)
    torch.manual_seed(3)
    module: nn.Module = space["Small"]()
    return module


@pytest.fixture(scope="module")
def result() -> holdfast.Result:
    data = holdfast.from_arrays(PIXELS, RNG.integers(0, 3, 40), classes=("ape", "bee", "cat"))
    return holdfast.run("fedavg", holdfast.federate(data, split="iid", clients=3), small(), **FAST)


def read_elsewhere(folder: Path, x: np.ndarray, before: str, numpy: bool) -> tuple[np.ndarray, list[str]]:
    """The logits and names that the lines of a model card find in a process without Holdfast."""
    np.save(folder.parent / "x.npy", x)
    (card,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    code = READER.format(before=before, numpy=numpy, card=card)
    said = subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return np.load(folder / "logits.npy"), said.stdout.split()


@pytest.mark.parametrize(
    ("format", "before"), [("torch", ""), ("safetensors", MODULE + "\nmodel = Small()"), ("onnx", "")]
)
def test_the_card_loads_the_model_without_holdfast(result: holdfast.Result, format: str, before: str):
    files = result.export("exported", format)
    assert {path.name for path in Path("exported").iterdir()} == {path.name for path in files}
    logits, names = read_elsewhere(Path("exported"), PIXELS, before, numpy=format == "onnx")
    found = torch.softmax(torch.from_numpy(logits), 1).numpy()
    wanted = result.predict_proba(PIXELS)
    np.testing.assert_allclose(found, wanted, atol=1e-5 if format == "onnx" else 1e-6)
    assert names == [result.classes[i] for i in result.predict(PIXELS)]


def test_plain_weights_and_metadata(result: holdfast.Result):
    from safetensors import safe_open

    result.export("a", "torch")
    module = small()
    module.load_state_dict(torch.load("a/weights.pt", weights_only=True))
    assert all(torch.equal(t, result.state_dict()[name]) for name, t in module.state_dict().items())
    result.export("b", "safetensors")
    with safe_open("b/model.safetensors", "pt") as file:
        found = {name: json.loads(text) for name, text in file.metadata().items() if name != "format"}
    assert found == {"mean": result.facts.mean, "std": result.facts.std, "classes": ["ape", "bee", "cat"]}


def test_the_card_says_what_the_model_is(result: holdfast.Result):
    result.export("exported", "safetensors")
    card = Path("exported/README.md").read_text(encoding="utf-8")
    assert card.startswith("# Small, trained with fedavg\n")
    rows = dict(re.findall(r"^\| ([\w ]+) \| (.*) \|$", card, re.MULTILINE))
    s = result.summary
    assert rows == {
        "method": "fedavg",
        "model": "Small, 315 trained parameters, fp32",
        "data": "arrays",
        "split": "iid over 3 clients, seed 0",
        "rounds": "2 of 2, 2 steps of local training each with batches of 32",
        "accuracy": f"{s['final']:.4f} on test data; {best_text(s)}",
        "test loss": f"{result.score.loss:.4f}",
        "inputs": "uint8 [n, 3, 8, 8]",
        "normalisation": "federated: mean and standard deviation per channel or feature, in `model.json`",
        "classes": "3: ape, bee, cat",
        "device": s["device"],
        "date": s["date"],
        "Holdfast": s["holdfast"],
        "PyTorch": s["torch"],
    } | ({"commit": s["commit"]} if s["commit"] else {})


def test_exporting_leaves_the_model_as_it_was():
    result = holdfast.run("fedavg", model="linear", precision="fp64", **FAST)
    x = holdfast.load("digits").test_x
    wanted = result.predict_proba(x)
    result.export("exported", "onnx")
    assert next(result.model.parameters()).dtype == torch.float64
    np.testing.assert_array_equal(result.predict_proba(x), wanted)


@pytest.mark.parametrize("name", ["mlp", "cnn", "cifar10-cnn", "lenet5"])
def test_named_networks_export_from_the_command_line(name: str):
    data = holdfast.from_arrays(RNG.integers(0, 256, (30, 3, 32, 32), dtype=np.uint8), RNG.integers(0, 2, 30))
    federation = holdfast.federate(data, split="iid", clients=2)
    result = holdfast.run("fedavg", federation, name, out="run", rounds=1, steps=1, batch=2)
    for format in ("torch", "onnx"):
        said = good("export", "run", "--format", format)
        assert said.out.startswith(f"the model is in run/export/{format}: model.")
    written = torch.export.load("run/export/torch/model.pt2").module()
    logits = written(data.test_x)
    np.testing.assert_allclose(torch.softmax(logits, 1).detach(), result.predict_proba(data.test_x), atol=1e-5)


def test_what_is_exported_belongs_to_the_run():
    good("run", "fedavg", "--rounds", "1", "--steps", "1", "--model", "linear", "--out", "run", "--quiet")
    good("export", "run")
    assert {p.name for p in Path("run/export/torch").iterdir()} == {
        "model.pt2",
        "weights.pt",
        "model.json",
        "README.md",
    }
    good(
        "run", "fedavg", "--rounds", "1", "--steps", "1", "--model", "linear", "--out", "run", "--quiet", "--overwrite"
    )
    assert not Path("run/export").exists(), "it was the model of the run that was replaced"


# -- other kinds of models --------------------
class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.body = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.words(x))[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        features = self.body(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        return SimpleNamespace(logits=self.head(features[:, 0]))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).mean((2, 3)))


def described(form: str, dtype: str, shape: list[int], names: tuple[str, ...], mean: list[float]) -> ModelFacts:
    inputs = [InputFacts(name, shape, dtype) for name in names]
    return ModelFacts(form, inputs, mean, [0.25] * len(mean), ["a", "b", "c"], {})


@pytest.mark.parametrize(
    ("module", "facts"),
    [
        (Recurrent(), described("tensor", "int64", [5], ("x",), [])),
        (Attending(), described("dict", "int64", [5], ("input_ids", "attention_mask"), [])),
        (Normed(), described("tensor", "uint8", [3, 8, 8], ("x",), [0.5, 0.4, 0.3])),
    ],
    ids=["lstm", "transformer", "batchnorm"],
)
def test_tokens_dictionaries_and_statistics_can_be_exported(module: nn.Module, facts: ModelFacts, tmp_path: Path):
    """Both writers compare what they wrote with the model, for one sample and for five."""
    module.eval()
    run: Any = SimpleNamespace(
        model=module,
        facts=facts,
        state_dict=module.state_dict,
        raw_model=lambda: RawModel(module, facts, torch.float32),
    )
    assert write_torch(run, tmp_path) == [tmp_path / "model.pt2", tmp_path / "weights.pt"]
    assert write_onnx(run, tmp_path) == [tmp_path / "model.onnx"]
    x = example_inputs(facts, samples=7)
    with torch.no_grad():
        wanted = RawModel(module, facts, torch.float32).eval()(*x)
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(*x), wanted)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(None, {i.name: t.numpy() for i, t in zip(facts.inputs, x, strict=True)})
    np.testing.assert_allclose(found, wanted, atol=1e-5)


# -- bad input --------------------
def test_an_unknown_format(result: holdfast.Result):
    with raises_exactly("unknown format 'onx'; did you mean onnx?"):
        result.export("exported", "onx")
    assert not Path("exported").exists()


@pytest.mark.parametrize(
    ("format", "package", "message"),
    [
        ("onnx", "onnxruntime", "the format onnx needs the package onnxruntime: pip install 'holdfast[onnx]'"),
        ("safetensors", "safetensors", "the format safetensors needs the package safetensors: pip install safetensors"),
    ],
)
def test_a_missing_package(
    result: holdfast.Result, format: str, package: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.runs.model_export.find_spec", lambda name: None if name == package else name)
    with raises_exactly(message):
        result.export("exported", format)
    assert not Path("exported").exists()


def test_another_format_in_the_same_folder(result: holdfast.Result):
    result.export("exported", "safetensors")
    result.export("exported", "safetensors")
    with raises_exactly("exported has a model in the format safetensors: choose another --out for torch"):
        result.export("exported", "torch")


def test_a_file_in_the_place_of_the_folder(result: holdfast.Result):
    Path("exported").write_text("mine")
    with raises_exactly("exported is a file, not a folder for the export: choose another --out"):
        result.export("exported", "safetensors")


class Branching(nn.Module):
    """What it computes depends on the numbers that it sees: no graph can hold that."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x if float(x.sum()) > 0 else -x)


def test_a_model_that_cannot_be_exported():
    data = holdfast.from_arrays(RNG.normal(size=(40, 4)), RNG.integers(0, 2, 40))
    federation = holdfast.federate(data, split="iid", clients=2)
    result = holdfast.run("fedavg", federation, Branching(), engine="loop", **FAST)
    with pytest.raises(holdfast.HoldfastError) as caught:
        result.export("exported", "torch")
    message = str(caught.value)
    assert message.startswith("the model cannot be exported to torch: ")
    assert message.endswith("; use the format safetensors")
    assert "\n" not in message
    result.export("exported", "safetensors")


def test_an_export_that_computes_something_else_is_refused(result: holdfast.Result, monkeypatch: pytest.MonkeyPatch):
    load = torch.export.load

    class Broken:
        def __init__(self, program: Any) -> None:
            self.program = program.module()

        def module(self) -> Any:
            return lambda x: self.program(x) * torch.tensor([1.0, 1.0, 2.0])

    monkeypatch.setattr("torch.export.load", lambda file: Broken(load(file)))
    with pytest.raises(
        holdfast.HoldfastError, match=r"^the exported model gives probabilities that differ by \S+, more"
    ):
        result.export("exported", "torch")
    assert not Path("exported/model.pt2").exists()


def test_runs_that_cannot_be_exported():
    assert refused("export", "nowhere") == "holdfast: nowhere holds no run: check the folder\n"
    data = holdfast.from_arrays(RNG.normal(size=(40, 4)), RNG.integers(0, 2, 40))
    holdfast.run("fedavg", holdfast.federate(data, split="iid", clients=2), nn.Linear(4, 2), out="own", **FAST)
    assert refused("export", "own", "--format", "onnx") == (
        "holdfast: the run in own was started from Python with its own model, Linear: use holdfast.load_run(folder, "
        "model=...)\n"
    )
    good("run", "fedavg", "--rounds", "1", "--steps", "1", "--model", "linear", "--out", "run", "--quiet")
    assert refused("export", "run", "--format", "pickle") == (
        "holdfast: unknown format 'pickle'; known: onnx, safetensors, torch\n"
    )
