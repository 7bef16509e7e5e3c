"""What a trained model is called with and what its outputs mean: ``model.json``, so that it is usable without data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.core.typed_json import OMIT_NONE, JsonMismatch, from_json, to_json
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.data.packed_inputs import InputField, pack
from holdfast.data.table_encoding import TableEncoding
from holdfast.data.vocabulary import Vocabulary
from holdfast.runs.run_files import MODEL_FACTS
from holdfast.tasks.task_names import read_task

TENSOR, TUPLE, DICT = "tensor", "tuple", "dict"
FORMAT = 1


@dataclass(frozen=True)
class InputFacts:
    """One tensor of a sample, as it is stored.

    Attributes:
        name: Its name in a dictionary of inputs, or its number in a tuple.
        shape: Its shape, without the batch axis.
        dtype: The name of its torch type.
    """

    name: str
    shape: list[int]
    dtype: str

    @property
    def kind(self) -> torch.dtype:
        """The torch type."""
        kind: torch.dtype = getattr(torch, self.dtype)
        return kind


@dataclass(frozen=True)
class ModelFacts:
    """What a trained model expects and returns.

    Attributes:
        form: What it is called with: one ``tensor``, a ``tuple`` or a ``dict`` of tensors.
        inputs: The tensors of a sample.
        mean: The mean per channel or feature that is subtracted from the input; empty: none.
        std: The standard deviation per channel or feature by which the input is divided.
        classes: The names of the outputs: classes, labels, targets or tokens.
        state: The shape of every tensor in the module's state, by name.
        frozen: The checksum of what is not trained, in a run's folder; None: it is not known.
        task: What the model predicts.
        positions: The axes of an output between samples and outputs, as of a text.
        encoding: How the columns of a table become the inputs, if the data set was made of one.
        tokens: The names of the tokens that inputs are made of; empty: inputs are no tokens, or without names.
        characters: Whether these tokens are characters, so that the model takes texts.
        format: The format of ``model.json``.
    """

    form: str
    inputs: list[InputFacts]
    mean: list[float]
    std: list[float]
    classes: list[str]
    state: dict[str, list[int]]
    frozen: str | None = None
    task: str = "classification"
    positions: list[int] = field(default_factory=list)
    encoding: TableEncoding | None = field(default=None, metadata=OMIT_NONE)
    tokens: list[str] = field(default_factory=list)
    characters: bool = False
    format: int = FORMAT

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokens that inputs are made of."""
        return Vocabulary(tuple(self.tokens), self.characters) if self.tokens else None


def facts_of(federation: Federation, module: nn.Module) -> ModelFacts:
    """Return the facts of a model that is trained on a federation."""
    data = federation.data
    form, inputs = _inputs(federation)
    mean, std = ([], []) if federation.tokens else (list(data.mean), list(data.std))
    state = {name: list(t.shape) for name, t in module.state_dict().items() if isinstance(t, Tensor)}
    task, positions, known = str(data.task), list(data.task.positions(data.y)), data.vocabulary or Vocabulary(())
    return ModelFacts(
        form, inputs, mean, std, list(data.classes), state, task=task, positions=positions, encoding=data.encoding,
        tokens=list(known.tokens), characters=known.characters,
    )  # fmt: skip


def _inputs(federation: Federation) -> tuple[str, list[InputFacts]]:
    fields, x = federation.data.fields, federation.data.x
    if fields:
        return DICT if fields[0].name else TUPLE, [
            InputFacts(f.name or str(number), list(f.shape), "int64" if f.integer else "float32")
            for number, f in enumerate(fields)
        ]
    kind = "float32" if federation.integers and not federation.tokens else str(x.dtype).removeprefix("torch.")
    return TENSOR, [InputFacts("x", list(x.shape[1:]), kind)]


def stand_in(facts: ModelFacts, name: str) -> DataSet:
    """Return a data set of this kind with two made-up samples, from which the network can be built again."""
    fill = [0 if i.kind.is_floating_point else 1 for i in facts.inputs]
    tensors = [torch.full((2, *i.shape), f, dtype=i.kind) for i, f in zip(facts.inputs, fill, strict=True)]
    task = read_task(facts.task)
    y = task.blank(2, facts.positions, len(facts.classes))
    x, fields = tensors[0], tuple[InputField, ...]()
    if facts.form != TENSOR:
        names = [i.name for i in facts.inputs]
        x, fields = pack(name, dict(zip(names, tensors, strict=True)) if facts.form == DICT else tensors)
    return DataSet(
        name, x, y, x, y, tuple(facts.classes), tuple(facts.mean), tuple(facts.std), fields=fields, task=task,
        encoding=facts.encoding, vocabulary=facts.vocabulary,
    )  # fmt: skip


def to_text(facts: ModelFacts) -> str:
    """Write the facts as the content of ``model.json``."""
    return json.dumps(to_json(facts)) + "\n"


def read_model_facts(folder: Path) -> ModelFacts | None:
    """Read ``model.json`` of a run; None if an earlier version made the run."""
    path, remedy = folder / MODEL_FACTS, "delete it to look the facts up in the data"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found.get("format") if isinstance(found, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise HoldfastError(f"{path} has format {version}, but this version reads up to {FORMAT}: upgrade Holdfast")
        facts = from_json(ModelFacts, found)
        _check(facts)
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    except JsonMismatch as error:
        raise HoldfastError(f"{path} is damaged, {error}: {remedy}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise HoldfastError(f"{path} is damaged, it is not valid JSON: {remedy}") from error
    return facts


def check_encoding(folder: Path, stored: ModelFacts | None, federation: Federation) -> None:
    """Refuse to resume a run whose table or texts would be encoded in another way than when it was started.

    Args:
        folder: The run's folder.
        stored: The facts that are stored there, if any.
        federation: The clients and their data, as they are read now.
    """
    if stored is not None and stored.encoding != federation.data.encoding:
        raise HoldfastError(
            f"the table of the run in {folder} has changed since the run was started: restore it, or start over with "
            "--overwrite"
        )
    if stored is not None and stored.vocabulary != federation.data.vocabulary:
        raise HoldfastError(
            f"the texts of the run in {folder} have another vocabulary than when the run was started: restore them, or "
            "start over with --overwrite"
        )


def _check(facts: ModelFacts) -> None:
    """Refuse values that no run writes."""
    kinds = [getattr(torch, i.dtype, None) for i in facts.inputs]
    numbers = [n for i in facts.inputs for n in i.shape]
    if facts.form not in (TENSOR, TUPLE, DICT) or not kinds or (facts.form == TENSOR and len(kinds) != 1):
        raise JsonMismatch("form does not fit inputs")
    if not all(isinstance(kind, torch.dtype) for kind in kinds) or any(n < 1 for n in numbers):
        raise JsonMismatch("inputs has an unknown type or an empty shape")
    if len(facts.mean) != len(facts.std) or not all(map(math.isfinite, facts.mean + facts.std)):
        raise JsonMismatch("mean and std do not fit together")
    if len(facts.classes) < 1 or any(s <= 0 for s in facts.std):
        raise JsonMismatch("classes is empty or std is not above 0")
    try:
        read_task(facts.task)
    except HoldfastError as error:
        raise JsonMismatch(f"task is not known: {error}") from error
