"""Models from a user's function or class: a factory is called for every run, and its weights depend on the seed alone.

A factory takes ``shape``, the shape of one input without the batch axis, and ``classes``, either of them or neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import FileReference, failure, function_in

Factory = Callable[..., nn.Module]
OFFERED = ("shape", "classes")  # the arguments with which a factory may be called


def is_factory(model: object) -> bool:
    """Tell whether an object makes models, rather than being one."""
    return callable(model) and not isinstance(model, nn.Module)


def factory_name(factory: Factory) -> str:
    """Return the name of a factory: that of the function or class.

    >>> factory_name(nn.Flatten), factory_name(partial(nn.Linear, 3, 2))
    ('Flatten', 'Linear')
    """
    inner = factory.func if isinstance(factory, partial) else factory
    return str(getattr(inner, "__name__", type(inner).__name__))


def from_factory(factory: Factory, shape: tuple[int, ...], classes: int, seed: int, name: str = "") -> nn.Module:
    """Make a model whose initial weights depend on the seed alone.

    Args:
        factory: Makes the model.
        shape: The shape of one input, without the batch axis.
        classes: The number of classes.
        seed: The seed of the initial weights.
        name: What errors call the factory; by default its own name.

    Returns:
        The model.
    """
    name = name or factory_name(factory)
    offered = {"shape": shape, "classes": classes}
    given = {key: offered[key] for key in model_arguments(factory, name)}
    with rng.lent_generators(seed):
        try:
            module: object = factory(**given)
        except HoldfastError:
            raise
        except Exception as error:
            raise failure(f"the model {name}", error) from error
    if not isinstance(module, nn.Module):
        kind = "None" if module is None else f"a {type(module).__name__}"
        raise HoldfastError(f"the model {name} returned {kind}, expected an nn.Module: return the network")
    return module


def from_file(reference: FileReference, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Make the model that a text such as ``net.py:build(width=3)`` names; see ``from_factory``."""
    short = f"{Path(reference.file).name}:{reference.call}"
    return from_factory(function_in(reference, "model"), shape, classes, seed, short)


def model_arguments(factory: Factory, name: str = "") -> list[str]:
    """Return which of ``shape`` and ``classes`` a factory takes; it must need nothing else.

    >>> model_arguments(lambda classes, width=3: nn.Linear(width, classes)), model_arguments(nn.Flatten)
    (['classes'], [])
    """
    name = name or factory_name(factory)
    parameters = inspect.signature(factory).parameters.values()
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    given = {*factory.keywords} if isinstance(factory, partial) else set()
    taken = [key for key in OFFERED if (anything or key in named) and key not in given]
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in taken and p.kind not in variable]
    if missing:
        raise HoldfastError(
            f"the model {name} needs {', '.join(missing)}, but is called with shape and classes at most: give the "
            "others defaults, or use a function or an instance that needs none"
        )
    return taken
