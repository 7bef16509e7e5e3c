"""The trained module: loaded with the weights of a run, and wrapped so that it takes raw inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from holdfast.models.inputs import run_module
from holdfast.models.net import Net
from holdfast.runs.model_facts import DICT, ModelFacts
from holdfast.tasks.task_names import read_task

BATCH = 1000  # samples per forward pass


class RawModel(nn.Module):
    """A model that takes inputs as the training data is stored, and scales and normalises them itself.

    Attributes:
        model: The model behind it.
        dtype: The type of the numbers that it computes with.
    """

    def __init__(self, model: nn.Module, facts: ModelFacts, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype, self.task = model, dtype, read_task(facts.task)
        self._names = [i.name for i in facts.inputs] if facts.form == DICT else []
        axes = (-1,) + (1,) * (len(facts.inputs[0].shape) - 1)
        for name, values in (("mean", facts.mean), ("std", facts.std)):
            self.register_buffer(name, torch.tensor(values, dtype=dtype).reshape(axes) if values else None)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs for raw inputs: logits, or numbers in the unit of the data."""
        ready = self.prepare(inputs)
        x = dict(zip(self._names, ready, strict=True)) if self._names else tuple(ready)
        logits: Tensor = run_module(lambda args, kwargs: self.model(*args, **kwargs), x)
        outputs: Tensor = self.task.in_units(logits).to(logits.dtype)
        return outputs

    def prepare(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Turn raw inputs into those of the model behind it."""
        ready = [self._scaled(x) for x in inputs]
        if isinstance(self.mean, Tensor) and isinstance(self.std, Tensor):
            ready[0] = (ready[0] - self.mean) / self.std
        return ready

    def _scaled(self, x: Tensor) -> Tensor:
        if x.dtype == torch.uint8:
            return x.to(self.dtype) / 255
        return x.to(self.dtype) if x.is_floating_point() else x


def loaded(net: Net, state: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of the module that a network was made of, with these weights, in eval mode."""
    module = copy.deepcopy(net.module).to(net.device, net.dtype)
    module.load_state_dict(state)
    return module.eval()


def logits_of(raw: RawModel, stored: Sequence[Tensor], device: torch.device) -> Tensor:
    """Run a model on raw inputs in batches; return the logits on the CPU."""
    found = []
    with torch.no_grad():
        for start in range(0, len(stored[0]), BATCH):
            found.append(raw(*(t[start : start + BATCH].to(device) for t in stored)).cpu())
    return torch.cat(found)
