"""Runs models on the same samples again and again: on a GPU as one CUDA graph, in which only the model changes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.engines.cuda_graph import can_capture, capture, copied
from holdfast.metrics.predictions import Predictions
from holdfast.models.net import Net
from holdfast.tasks.task import Task
from holdfast.training.evaluation import Samples, predicted


class SamplePass:
    """A pass over samples that stay the same.

    The first one is made as it comes. The second one is captured, if all outputs are kept and nothing in it needs the
    host; from then on nothing but the model and its running statistics may differ.

    Args:
        task: What is predicted.
        samples: Returns inputs and targets, some at a time, always the same.
        captures: Whether to capture the pass.
    """

    def __init__(self, task: Task, samples: Callable[[], Samples], captures: bool) -> None:
        self.task, self.samples, self.captures = task, samples, captures
        self.passes = 0
        self.forward: CapturedForward | None = None

    def __call__(self, net: Net, w: Tensor) -> Predictions:
        """Return what a model predicts, beside the truth."""
        self.passes += 1
        if self.captures and self.passes == 2:
            self.forward = CapturedForward.of(net, w, self.samples)
        if self.forward is not None:
            with torch.no_grad():
                return Predictions.of(self.task, [self.task.judge(self.forward(net, w), self.forward.y)])
        found = predicted(net, w, self.task, self.samples())
        self.captures = self.captures and found.outputs is not None
        return found


class CapturedForward:
    """The outputs of a network for all samples.

    Attributes:
        w: The model, which every call overwrites.
        net: The network with running statistics of its own, which every call overwrites.
        y: The targets of all samples.
        logits: The outputs of the last call, some samples at a time.
    """

    def __init__(self, net: Net, w: Tensor, samples: Callable[[], Samples]) -> None:
        self.w, self.net, self.samples = w.clone(), net.with_stats(copied(net.stats)), samples
        self.y = torch.cat([y for _, y in samples()])
        self.logits: list[Tensor] = []
        self.replay: Callable[[], object] = self.run

    @classmethod
    def of(cls, net: Net, w: Tensor, samples: Callable[[], Samples]) -> CapturedForward | None:
        """Capture the pass; return None if something in it needs the host."""
        made = cls(net, w, samples)
        if w.is_cuda:
            if not can_capture(made.run):
                return None
            made.replay = capture(made.run)
        return made

    def run(self) -> None:
        """Compute the outputs once."""
        with torch.no_grad():
            self.logits = [self.net(self.w, x).logits for x, _ in self.samples()]

    def __call__(self, net: Net, w: Tensor) -> Tensor:
        """Return the outputs of a model."""
        self.w.copy_(w)
        tree_map(lambda mine, new: mine.copy_(new), self.net.stats, net.stats)
        self.replay()
        return torch.cat(self.logits)
