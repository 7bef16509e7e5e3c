"""Parts that settings stand for: ``--clip 1`` is the part ``clip(1)`` at the end of the sum."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.params import make, one
from holdfast.method.config import FLAG_PARTS, Config
from holdfast.method.method import Method
from holdfast.method.part import Part, parts

SGD = "sgd"  # the local optimiser without a part


def with_flag_parts(method: Method, config: Config) -> Method:
    """Return the method with the parts that the config's flags add to it, each with what the config decides for it."""
    known = parts()
    for setting, name in FLAG_PARTS.items():
        value = getattr(config, setting)
        if value:
            method = method + known[name](value)  # type: ignore[call-arg]
    optimiser = None if config.optimizer is None else local_optimiser(config.optimizer)
    method = method if optimiser is None else method + optimiser
    return Method(tuple(part.settled(config) for part in method.parts))


def local_optimiser(text: str) -> Part | None:
    """Read the setting ``optimizer``: a part that optimises local steps with its parameters, or None for plain SGD.

    >>> str(local_optimiser("momentum(0.5)")), local_optimiser("sgd")
    ('momentum(beta=0.5)', None)
    """
    call = one(text, "local optimiser")
    if call.name == SGD:
        if call.args or call.kwargs:
            raise HoldfastError(f"{SGD} takes no parameters: write {SGD} alone")
        return None
    known = {name: part for name, part in parts().items() if "optimise" in part.hooks()}
    if call.name not in known:
        raise unknown("local optimiser", call.name, [SGD, *known])
    return make(known[call.name], call.args, call.kwargs)
