"""The model card: what an exported model is, how it was trained, how good it is, and how to load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.runs.history import best_text
from holdfast.runs.model_facts import DICT, ModelFacts

if TYPE_CHECKING:
    from holdfast.runs.run_result import Result

MADE = (("device", "device"), ("date", "date"), ("holdfast", "Holdfast"), ("torch", "PyTorch"), ("commit", "commit"))
LOADING = {
    "torch": """import json

import torch

facts = json.load(open("model.json"))
model = torch.export.load("model.pt2").module()
logits = model({raw})  # raw inputs: {inputs}
names = [facts["classes"][i] for i in logits.argmax(1)]
""",
    "safetensors": """import json

import torch
from safetensors.torch import load_file

facts = json.load(open("model.json"))
model.load_state_dict(load_file("model.safetensors"))  # your module, of the class that was trained
model.eval()
{prepare}logits = model({ready})
names = [facts["classes"][i] for i in logits.argmax(1)]
""",
    "onnx": """import json

import onnxruntime

facts = json.load(open("model.json"))
session = onnxruntime.InferenceSession("model.onnx")
(logits,) = session.run(None, {{{fed}}})  # raw inputs: {inputs}
names = [facts["classes"][i] for i in logits.argmax(1)]
""",
}


def model_card(result: Result, format: str) -> str:
    """Return the model card of a run's model, as Markdown."""
    return "\n".join(
        [
            f"# {result.config.model}, trained with {result.config.method}",
            "",
            "A classifier trained by federated learning with Holdfast: the clients' data stayed with the clients.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {_cell(value)} |" for name, value in _rows(result)),
            "",
            "Accuracies are those of the test data of the run.",
            "",
            "## Use",
            "",
            "```python",
            loading(result.facts, format).rstrip(),
            "```",
            "",
            _note(format),
            "",
        ]
    )


def _rows(result: Result) -> list[tuple[str, str]]:
    c, s, f = result.config, result.summary, result.facts
    count, unit = (c.steps, "step") if c.steps else (c.passes, "epoch")
    local = f"{count} {unit}{'s' * (count != 1)}"
    rows = [
        ("method", c.method),
        ("model", f"{c.model}, {result.net.layout.size:,} trained parameters, {c.precision}"),
        ("data", c.data),
        ("split", f"{c.split} over {c.clients} clients, seed {c.deal_seed}"),
        ("rounds", f"{s['rounds']} of {c.rounds}, {local} of local training each with batches of {c.batch}"),
    ]
    if s["final"] is not None:
        rows += [(s["metric"], f"{s['final']:.4f} on test data; {best_text(s)}")]
    if result.score is not None:
        rows.append(("test loss", f"{result.score.loss:.4f}"))
    if s.get("leaks_test_data"):
        rows.append(("warning", "the run LEAKS TEST DATA: its accuracy means nothing"))
    rows.append(("inputs", described_inputs(f)))
    if f.encoding is not None:
        rows.append(("columns", f"{', '.join(f.encoding.features)}; encoded as `encoding` in `model.json` says"))
    if f.mean:
        origin = f"{c.normalisation}: " if c.normalisation else ""
        rows.append(("normalisation", f"{origin}mean and standard deviation per channel or feature, in `model.json`"))
    rows.append(("classes", f"{len(f.classes)}: {', '.join(f.classes[:20])}{', ...' * (len(f.classes) > 20)}"))
    return rows + [(name, str(s[key])) for key, name in MADE if s.get(key)]


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def described_inputs(facts: ModelFacts) -> str:
    """Describe the inputs in words, such as ``uint8 [n, 1, 8, 8]``."""
    texts = [f"{i.dtype} [{', '.join(['n', *map(str, i.shape)])}]" for i in facts.inputs]
    if len(texts) == 1:
        return texts[0]
    return ", ".join(f"{i.name}: {text}" for i, text in zip(facts.inputs, texts, strict=True))


def loading(facts: ModelFacts, format: str) -> str:
    """Return the lines of Python that load an exported model and call it with raw inputs."""
    names = [i.name if i.name.isidentifier() else f"x{i.name}" for i in facts.inputs]
    pixels = [name for name, i in zip(names, facts.inputs, strict=True) if i.dtype == "uint8"]
    prepare = [f"{name} = {name}.float() / 255\n" for name in pixels]
    if facts.mean:
        axes = "".join(", 1" for _ in facts.inputs[0].shape[1:])
        for key in ("mean", "std"):
            prepare.append(f'{key} = torch.tensor(facts["{key}"]).reshape(-1{axes})\n')
        prepare.append(f"{names[0]} = ({names[0]} - mean) / std\n")
    ready = ", ".join(f"{name}={name}" if facts.form == DICT else name for name in names)
    fed = ", ".join(f'"{i.name}": {name}' for i, name in zip(facts.inputs, names, strict=True))
    return LOADING[format].format(
        raw=", ".join(names), inputs=described_inputs(facts), prepare="".join(prepare), ready=ready, fed=fed
    )


def _note(format: str) -> str:
    if format == "safetensors":
        return "The file has the weights; its metadata and `model.json` have the normalisation and the class names."
    scaled = "The model scales and normalises raw inputs itself. It returns logits; their softmax is the probabilities."
    more = " `weights.pt` has the weights alone, without the normalisation, for the class that was trained."
    return scaled + (more if format == "torch" else "")
