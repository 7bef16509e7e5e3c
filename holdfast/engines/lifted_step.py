"""What parts do with a gradient, for all clients at once without ``vmap``, where it is vector algebra and nothing else.

Parts write one client's step with vectors [P] and numbers []. If every operation works number by number, the same code
is right for all clients, with vectors [clients, P] and numbers [clients, 1]: broadcasting does what ``vmap`` does, with
a fraction of its overhead. Every operation is looked at as it is called. Lengths and sums of a vector are taken client
by client; at anything else the step is given up, before anything has changed, and ``vmap`` takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from holdfast.core.tensors import PerPart
from holdfast.data.batch import Batch
from holdfast.engines.local_training import BatchResult, ClientInfo, ClientTask, LocalTraining
from holdfast.method.hook_checks import is_library

# Operations, without the underscores of operators, that compute each number of the result from one of each argument.
NUMBER_BY_NUMBER = {
    "abs", "add", "addcdiv", "addcmul", "and", "clamp", "clone", "div", "double", "eq", "exp", "expm1", "float",
    "floordiv", "full_like", "ge", "gt", "invert", "isfinite", "le", "lerp", "log", "log1p", "logical_and",
    "logical_not", "logical_or", "lt", "maximum", "minimum", "mod", "mul", "ne", "neg", "ones_like", "or",
    "pow", "radd", "rdiv", "reciprocal", "rmul", "rpow", "rsqrt", "rsub", "rtruediv", "sign", "sqrt", "square",
    "sub", "to", "truediv", "where", "zeros_like",
}  # fmt: skip
ABOUT_MEMORY = {"untyped_storage"}
ABOUT_SHAPE = {"dim", "len", "numel"}  # answered for what all clients share, whose shape is that of one client's
TYPE_AND_DEVICE = {Tensor.dtype.__get__, Tensor.device.__get__}  # type: ignore[attr-defined]
# Operations on a whole vector that have a number as their result: what to call for many.
OF_A_VECTOR: dict[Callable[..., Any], Callable[[Tensor], Tensor]] = {
    torch.linalg.vector_norm: lambda t: torch.linalg.vector_norm(t, dim=1, keepdim=True),
    torch.sum: lambda t: t.sum(1, keepdim=True),
    Tensor.sum: lambda t: t.sum(1, keepdim=True),
}


class NotVectorAlgebra(Exception):
    """A part did something that is not known to be the same for many clients at once."""


class VectorAlgebra(TorchFunctionMode):
    """Calls operations for all clients that were written for one, or raises ``NotVectorAlgebra``."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__.removeprefix("__").removesuffix("__")  # what works in place keeps an underscore
        if func.__name__ == "__float__" or (name == "where" and len(args) < 3):  # one number, places
            raise NotVectorAlgebra(name)
        if name in NUMBER_BY_NUMBER or name in ABOUT_MEMORY or func in TYPE_AND_DEVICE:
            return func(*args, **kwargs)
        if name in ABOUT_SHAPE and args[0].dim() < 2:
            return func(*args, **kwargs)
        if func in OF_A_VECTOR and len(args) == 1 and not kwargs and args[0].dim() == 2:
            return OF_A_VECTOR[func](args[0])
        raise NotVectorAlgebra(name)


class LiftedStep:
    """Takes the part of a cohort's step that follows the gradient.

    Args:
        training: The local training.

    Attributes:
        possible: Whether no step has been given up so far.
        proven: Whether a step has been taken, too.
    """

    def __init__(self, training: LocalTraining) -> None:
        self.training = training
        ours = all(map(is_library, training.method.parts))  # the checks of users' hooks expect shapes of one client
        self.possible, self.taken = ours and not training.by_hook["teachers"], False
        self.latest = threading.local()  # what the thread trained with last, and what was made of it

    @property
    def proven(self) -> bool:
        return self.possible and self.taken

    def __call__(
        self, task: ClientTask, scratch: PerPart, w: Tensor, g: Tensor, loss: Tensor, batch: Batch, k: Tensor,
        epoch: Tensor,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        """Take a step of every client with a gradient that is known; all but ``epoch`` have a client axis.

        Args:
            task: What the clients train with.
            scratch: What the parts keep within the round.
            w: The local models, which are overwritten.
            g: The gradients.
            loss: The task losses.
            batch: The samples of the step.
            k: The number of the step.
            epoch: The number of the epoch.

        Returns:
            The new models, the new scratch, and the losses. If it raises ``NotVectorAlgebra``, nothing has changed.
        """
        if getattr(self.latest, "task", None) is not task:
            self.latest.task, self.latest.lifted = task, self._ventured(lifted_task, task)
        whole = self.latest.lifted
        moved, kept = self._ventured(self._step, whole, scratch, w, g, loss, batch, k, epoch)
        self.taken = True
        return moved, kept, loss

    def _ventured(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work``, and note if that is not possible."""
        try:
            return work(*arguments)
        except NotVectorAlgebra:
            self.possible = False
            raise

    def _step(
        self, task: ClientTask, scratch: PerPart, w: Tensor, g: Tensor, loss: Tensor, batch: Batch, k: Tensor,
        epoch: Tensor,
    ) -> tuple[Tensor, PerPart]:  # fmt: skip
        local, number, result = lifted_parts(scratch), lifted(k), BatchResult(lifted(loss), {})
        with VectorAlgebra():
            moved, kept, _ = self.training.step(lambda *_: (g, result), task, local, w, batch, number, epoch, out=w)
        return moved, {part: {n: lowered(t, scratch[part][n]) for n, t in new.items()} for part, new in kept.items()}


def lifted_task(task: ClientTask) -> ClientTask:
    """Return what the clients train with, lifted; what all of them share stays as it is."""
    sent = task.broadcast
    for message in (*sent.messages.values(), sent.stats):
        if any(t.dim() > 1 for t in message.values()):
            raise NotVectorAlgebra("a matrix in a message")
    return ClientTask(sent, ClientInfo(*map(lifted, task.info)), lifted_parts(task.state))


def lifted_parts(tensors: PerPart) -> PerPart:
    return {part: {name: lifted(t) for name, t in own.items()} for part, own in tensors.items()}


def lifted(t: Tensor) -> Tensor:
    """Return every client's number as a row of its own, and vectors as they are."""
    if t.dim() > 2:
        raise NotVectorAlgebra("a matrix of a client")
    return t[:, None] if t.dim() == 1 else t


def lowered(t: Tensor, like: Tensor) -> Tensor:
    """Undo ``lifted``; what is the same for all clients is repeated."""
    return t.expand(len(like), 1)[:, 0] if like.dim() == 1 else t.expand(like.shape)
