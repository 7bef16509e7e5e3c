"""What a part may ask of the model and the task, and sums that cannot have layers that stay at the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.method.part import Part
    from holdfast.models.net import Net
    from holdfast.tasks.task import Task

# What a part may need -> whether a network has it, and how an error says it.
NEEDS: dict[str, tuple[Callable[[Net], bool], str]] = {
    "features": (lambda net: net.head is not None, "a model that returns the output of a last nn.Linear"),
    "head": (lambda net: bool(net.layout.head), "a model that returns the output of a last nn.Linear and trains it"),
    "neurons": (lambda net: bool(net.layout.layers), "a model that trains a linear or convolutional layer"),
    "numbers": (lambda net: net.takes_numbers, "inputs that are one tensor of real numbers"),
}
CLASSES = "classes"  # what a part may need of the task: one class per sample
# Hooks that run the global model as a whole, away from the clients' own training.
WHOLE_MODEL = {
    "consult": "asks for gradients of the global model",
    "trips": "trains clients a second time",
    "tune": "trains the global model at the server",
    "survey": "measures the global model",
}


def check_needs(part: Part, net: Net, task: Task) -> None:
    """Raise an error if the model or the task lacks something that a part needs."""
    if CLASSES in part.needs and not task.has_classes:
        raise HoldfastError(f"{part.name} needs one class per sample, not {task.name}; leave {part.name} out")
    for need in set(part.needs) - {CLASSES}:
        has, sentence = NEEDS[need]
        if not has(net):
            raise HoldfastError(f"{part.name} needs {sentence}; choose another model, or leave {part.name} out")


def check_local_batchnorm(part: Part, net: Net) -> None:
    """Raise an error if a part needs a whole global model, while BatchNorm layers stay at the clients."""
    if not net.kept_at_clients():
        return
    for hook, does in WHOLE_MODEL.items():
        if part.fills(hook):
            raise HoldfastError(
                f"{part.name} {does}, but with batchnorm local no such model exists; use --batchnorm average or frozen"
            )
