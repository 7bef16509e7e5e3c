"""The programs under ``examples/`` run, and what the page about models says is so."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import holdfast
from helpers.places import DOCS, ROOT
from holdfast.core.discovery import discover
from holdfast.core.user_files import import_file
from holdfast.method.part import Part

PAGE = (DOCS / "models.md").read_text(encoding="utf-8")
NEEDS = {
    "features": "features: a last linear layer",
    "head": "a head that is trained",
    "neurons": "neurons: a trained linear or convolutional layer",
    "numbers": "inputs that are one tensor of real numbers",
}


def example(name: str) -> ModuleType:
    """Import a program, without running it."""
    return import_file(ROOT / "examples" / f"{name}.py")


def test_transfer_learning(capsys: pytest.CaptureFixture[str]):
    result = example("transfer_learning").main(rounds=4)
    said = capsys.readouterr().out
    assert "trained 5,130 of 9,978 parameters: 102,600 bytes up per round\n" in said
    assert result.score.accuracy > 0.8
    assert f"accuracy on all ten digits: {result.score.accuracy:.3f}\n" in said


def test_lora_on_a_bert(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    result = example("lora_bert").main(rounds=1)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"trained 1,090 of 20,068 parameters; accuracy {result.score.accuracy:.3f}"
    assert [line.split()[-1] in ("good", "bad") for line in said[1:]] == [True] * 4
    assert result.history[0].upload_bytes == 5 * 4 * 1090


def test_batchnorm_of_timm(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("timm")
    found = example("timm_batchnorm").main(rounds=1, epochs=1)
    sent = {mode: result.history[0].upload_bytes for mode, result in found.items()}
    assert sent["local"] < sent["frozen"] < sent["average"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["average", "local", "frozen"]


def test_the_page_lists_what_parts_need():
    parts = discover("holdfast.parts", Part).items()
    ours = {name: part().needs for name, part in parts if part.__module__.startswith("holdfast.parts.")}
    for need, sentence in NEEDS.items():
        (row,) = re.findall(rf"^\| {re.escape(sentence)} \| (.*) \|$", PAGE, re.MULTILINE)
        named = re.findall(r"`([\w-]+)`(?! with)", row.replace("with `space=input`", "with"))
        assert named == sorted(name for name, needs in ours.items() if need in needs)


def test_converting_a_pretrained_network_to_groupnorm_costs_what_the_page_says():
    data = holdfast.load("digits")
    x, test_x = ((t - data.mean[0]) / data.std[0] for t in (data.x, data.test_x))
    network = small_network(x, data.y)

    def accuracy(module: nn.Module) -> float:
        return float((module.eval()(test_x).argmax(1) == data.test_y).float().mean())

    assert accuracy(network) > 0.97
    assert accuracy(holdfast.to_groupnorm(network)) < 0.6
    assert "98.9 % accuracy on the digits had 34.5 % after conversion" in " ".join(PAGE.split())


def small_network(x: Tensor, y: Tensor) -> nn.Module:
    """Train three convolutions with BatchNorm in one place."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for inside, outside, stride in ((1, 16, 1), (16, 32, 2), (32, 32, 1)):
            convolution = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outside), nn.ReLU()]
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        for _ in range(20):
            for batch in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(network(x[batch]), y[batch]).backward()
                optimizer.step()
    return network
