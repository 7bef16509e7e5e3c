"""Write a trained model so that it can be used without Holdfast: ``holdfast export``."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.files import refuse_file, write_atomically
from holdfast.runs.model_card import model_card
from holdfast.runs.model_facts import ModelFacts, to_text
from holdfast.runs.run_files import MODEL_FACTS
from holdfast.runs.trained_model import RawModel

if TYPE_CHECKING:
    from holdfast.runs.run_result import Result

PROGRAM, WEIGHTS, SAFETENSORS, ONNX, CARD = "model.pt2", "weights.pt", "model.safetensors", "model.onnx", "README.md"
TOLERANCE = 1e-5  # by which the probabilities of the written model may differ
NEEDED = {"safetensors": ("safetensors",), "onnx": ("onnx", "onnxscript", "onnxruntime")}
MAIN = {"torch": PROGRAM, "safetensors": SAFETENSORS, "onnx": ONNX}


def export(result: Result, out: Path, format: str) -> list[Path]:
    """Write the model of a run with its normalisation, its class names and a model card.

    Args:
        result: The run.
        out: The folder to write to; files of the same name are replaced.
        format: ``torch``, ``safetensors`` or ``onnx``.

    Returns:
        The files.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    for package in NEEDED.get(format, ()):
        if find_spec(package) is None:
            source = "'holdfast[onnx]'" if format == "onnx" else package
            raise HoldfastError(f"the format {format} needs the package {package}: pip install {source}")
    refuse_file(out, "the export")
    for other, name in MAIN.items():
        if other != format and (out / name).exists():
            raise HoldfastError(f"{out} has a model in the format {other}: choose another --out for {format}")
    out.mkdir(parents=True, exist_ok=True)
    files = FORMATS[format](result, out)
    write_atomically(out / MODEL_FACTS, to_text(result.facts))
    write_atomically(out / CARD, model_card(result, format))
    return [*files, out / MODEL_FACTS, out / CARD]


def write_torch(result: Result, out: Path) -> list[Path]:
    """Write a program that ``torch.export.load`` reads, and the weights by themselves."""
    raw = copy.deepcopy(result.raw_model()).cpu()
    examples = example_inputs(result.facts)
    with _exporting("torch"):
        program = torch.export.export(raw, tuple(examples), dynamic_shapes=(_batches(examples),))
        content = io.BytesIO()
        torch.export.save(program, content)
    written: Any = torch.export.load(io.BytesIO(content.getvalue())).module()
    _check(raw, result.facts, lambda inputs: written(*inputs))
    write_atomically(out / PROGRAM, content.getvalue())
    weights = io.BytesIO()
    torch.save({name: t.cpu() for name, t in result.state_dict().items()}, weights)
    write_atomically(out / WEIGHTS, weights.getvalue())
    return [out / PROGRAM, out / WEIGHTS]


def write_safetensors(result: Result, out: Path) -> list[Path]:
    """Write the weights, with the normalisation and the class names as metadata."""
    from safetensors.torch import save

    facts = result.facts
    meaning = {"mean": facts.mean, "std": facts.std, "classes": facts.classes}
    metadata = {name: json.dumps(value) for name, value in meaning.items()} | {"format": "pt"}
    state = {name: t.cpu().contiguous() for name, t in result.state_dict().items()}
    write_atomically(out / SAFETENSORS, save(state, metadata))
    return [out / SAFETENSORS]


def write_onnx(result: Result, out: Path) -> list[Path]:
    """Write a model in single precision for onnxruntime, and compare its probabilities with ours."""
    import onnxruntime

    facts = result.facts
    raw = RawModel(copy.deepcopy(result.model), facts, torch.float32).cpu().float().eval()
    examples = example_inputs(facts)
    names = [i.name if len(facts.inputs) > 1 else "x" for i in facts.inputs]
    with _exporting("onnx"):
        program = torch.onnx.export(
            raw, tuple(examples), dynamo=True, verbose=False, dynamic_shapes=(_batches(examples),), input_names=names,
            output_names=["logits"],
        )  # fmt: skip
        assert program is not None
        content = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def written(inputs: list[Tensor]) -> Tensor:
        fed = {name: t.numpy() for name, t in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(["logits"], fed)[0])

    _check(raw, facts, written)
    write_atomically(out / ONNX, content)
    return [out / ONNX]


FORMATS: dict[str, Callable[[Result, Path], list[Path]]] = {
    "torch": write_torch,
    "safetensors": write_safetensors,
    "onnx": write_onnx,
}


def example_inputs(facts: ModelFacts, samples: int = 3) -> list[Tensor]:
    """Draw raw inputs like those of the training data: pixels, numbers around the mean, or the numbers 0 and 1.

    Of the latter the first is 1: they may be a mask, which must not hide a whole sample.
    """
    draw = torch.Generator().manual_seed(0)
    found = []
    for number, i in enumerate(facts.inputs):
        shape = (samples, *i.shape)
        if not i.kind.is_floating_point:
            found.append(torch.randint(0, 256 if i.kind == torch.uint8 else 2, shape, generator=draw).to(i.kind))
            if i.kind != torch.uint8:
                found[-1].view(samples, -1)[:, 0] = 1
            continue
        x = torch.randn(shape, generator=draw)
        if facts.mean and number == 0:
            axes = (-1,) + (1,) * (len(i.shape) - 1)
            x = x * torch.tensor(facts.std).reshape(axes) + torch.tensor(facts.mean).reshape(axes)
        found.append(x.to(i.kind))
    return found


def _batches(inputs: list[Tensor]) -> tuple[dict[int, Any], ...]:
    """Let the number of samples vary; it is the same for all inputs."""
    batch = torch.export.Dim("batch")
    return tuple({0: batch} for _ in inputs)


def _check(raw: RawModel, facts: ModelFacts, written: Callable[[list[Tensor]], Tensor]) -> None:
    """Refuse to write a model that computes something else, for one sample or for several."""
    for samples in (1, 5):
        inputs = example_inputs(facts, samples)
        with torch.no_grad():
            ours, theirs = (torch.softmax(out.double(), 1) for out in (raw(*inputs), written(inputs)))
        gap = float((ours - theirs).abs().max())
        if not gap <= TOLERANCE:
            raise HoldfastError(
                f"the exported model gives probabilities that differ by {gap:.1g}, more than {TOLERANCE:g}: use the "
                "format safetensors"
            )


@contextmanager
def _exporting(format: str) -> Iterator[None]:
    """Turn whatever an exporter raises into one line; its warnings concern its developers."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise HoldfastError(f"the model cannot be exported to {format}: {first}; use the format safetensors") from error
    finally:
        log.setLevel(level)
