"""What a run leaves behind: its figures, and the trained model, ready to be used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.data.table import as_frame, frame_table
from holdfast.data.table_encoding import Encoded, encode
from holdfast.method.config import Config
from holdfast.models.net import Net
from holdfast.runs.client_table import ClientRow, ClientTable
from holdfast.runs.history import best_text, history_frame
from holdfast.runs.model_facts import DICT, TENSOR, ModelFacts
from holdfast.runs.raw_inputs import stored_inputs
from holdfast.runs.text_inputs import output_texts, texts_in, tokens_of_texts
from holdfast.runs.trained_model import RawModel, loaded, logits_of
from holdfast.tasks.task import CLASS, TOKENS, Task
from holdfast.tasks.task_names import read_task
from holdfast.training.evaluation import Score
from holdfast.training.round_record import RoundRecord

if TYPE_CHECKING:
    import pandas

SHOWN = 10  # class names in the text of a result


@dataclass(frozen=True, repr=False)
class Result:
    """What a run leaves behind.

    Attributes:
        config: The run's config, as it is in its folder.
        history: A record per round.
        summary: The run in one flat dictionary.
        net: The network.
        w: The served model as a vector.
        score: The last evaluation.
        facts: What the model is called with, and the names of its classes.
        table: The scores of the clients, if the run measures them and is finished.
    """

    config: Config
    history: list[RoundRecord]
    summary: dict[str, Any]
    net: Net
    w: Tensor
    score: Score | None
    facts: ModelFacts
    table: ClientTable | None = None

    def __repr__(self) -> str:
        c, s = self.config, self.summary
        megabytes = [f"{s[key] / 1e6:.2f} MB" for key in ("upload_bytes", "download_bytes")]
        known = s["final"] is not None
        scores = f"{s['metric']} {s['final']:.4f}, {best_text(s)}; " if known else ""
        more = ", ..." * (len(self.classes) > SHOWN)
        lines = [
            f"{c.method} on {c.data}, {c.split} over {c.clients} clients",
            f"{s['rounds']} of {c.rounds} rounds in {s['seconds']:.1f} s: {scores}{' up, '.join(megabytes)} down",
            f"{c.model} with {self.net.layout.size:,} parameters for {self.task.described(len(self.classes))}: "
            f"{', '.join(self.classes[:SHOWN])}{more}",
        ]
        return "\n".join(lines + ([f"kept in {s['out']}"] if s.get("out") else []))

    @property
    def finished(self) -> bool:
        """Whether the run played all its rounds, or stopped early by itself."""
        return len(self.history) >= self.config.rounds or bool(self.summary.get("stopped_early"))

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names; ``predict`` returns their numbers."""
        return tuple(self.facts.classes)

    @cached_property
    def model(self) -> nn.Module:
        """The module that was trained, with its weights and buffers, in eval mode.

        It takes what it was trained on: inputs that ``prepare`` has scaled and normalised.
        """
        if self.net.kept_at_clients():
            raise HoldfastError(
                "with batchnorm local every client has its own model, and the server has none: use --batchnorm average "
                "or frozen for a model of all clients"
            )
        return loaded(self.net, self.state_dict())

    def state_dict(self) -> dict[str, Tensor]:
        """Return the served model's parameters and buffers, to be loaded into the module that was trained."""
        return self.net.state_dict(self.w)

    def predict(self, x: Any) -> np.ndarray:
        """Return what the model predicts for every sample.

        That is the number of the most probable class, whose name is in ``classes``; 0 or 1 for every label; numbers in
        the unit of the data; or the most probable token at every position.

        ``x`` are raw inputs: arrays, tensors or lists like those that the data set was made of. They are scaled and
        normalised as in training. A model that was trained on characters takes texts as well, a string or a list of
        strings; it then returns texts: the name of each one's class, or the character that comes next.
        """
        found: np.ndarray = self.task.predictions(self._outputs(x)).numpy()
        named = texts_in(x) and self.task.targets in (CLASS, TOKENS)
        return np.array(output_texts(self.facts), dtype=object)[found] if named else found

    def predict_proba(self, x: Any) -> np.ndarray:
        """Return the probability of every class, label or token for every sample; ``x`` are raw inputs.

        For ``next-token`` they are the probabilities at every position, [n, length, tokens]; for texts those of the
        token that comes next, [n, tokens].
        """
        found: np.ndarray = self.task.probabilities(self._outputs(x)).numpy()
        return found

    def _outputs(self, x: Any) -> Tensor:
        """Return the network's outputs for raw inputs; for texts those after their last token."""
        texts = texts_in(x)
        if not texts:
            return logits_of(self.raw_model(), stored_inputs(x, self.facts), self.net.device)
        tokens, last = tokens_of_texts(texts, self.facts)
        outputs = logits_of(self.raw_model(), [tokens], self.net.device)
        return outputs if last is None else outputs[torch.arange(len(last)), last]

    @property
    def task(self) -> Task:
        """What the model predicts."""
        return read_task(self.facts.task)

    def prepare(self, x: Any) -> Any:
        """Turn raw inputs into inputs of ``model``: ``result.model(result.prepare(x))`` are the logits."""
        stored = [t.to(self.net.device) for t in stored_inputs(x, self.facts)]
        ready = self.raw_model().prepare(stored)
        if self.facts.form == DICT:
            return {i.name: t for i, t in zip(self.facts.inputs, ready, strict=True)}
        return ready[0] if self.facts.form == TENSOR else tuple(ready)

    def encode(self, frame: Any) -> Encoded:
        """Encode raw rows of a table as in training: the inputs of ``raw_model`` and of exported models."""
        if self.facts.encoding is None:
            raise HoldfastError("the model was not trained on a table: give its inputs as arrays")
        rows = as_frame(frame)
        if rows is None:
            raise HoldfastError(
                f"encode needs raw rows as a frame of pandas, not a {type(frame).__name__}: convert them"
            )
        return encode(frame_table("the frame", rows), self.facts.encoding)

    def raw_model(self) -> RawModel:
        """Return ``model`` in a module that takes raw inputs: it scales and normalises them itself."""
        return RawModel(self.model, self.facts, self.net.dtype).to(self.net.device).eval()

    def client_scores(self) -> dict[str, ClientRow]:
        """Return the final score of every client on its own test samples, by name; needs ``client_eval``."""
        if self.table is None:
            raise HoldfastError("this run has no scores of clients: run it with client_eval, up to its last round")
        return {row.name: row for row in self.table.rows}

    def frame(self) -> pandas.DataFrame:
        """Return the history as a pandas frame: a row per round, and a column per measure of drift."""
        return history_frame(self.history)

    def export(self, out: str | Path, format: str = "torch") -> list[Path]:
        """Write the model with its normalisation, its class names and a model card.

        Args:
            out: The folder to write to.
            format: ``torch``, ``safetensors`` or ``onnx``.

        Returns:
            The files.
        """
        from holdfast.runs.model_export import export

        return export(self, Path(out), format)
