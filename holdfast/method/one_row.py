"""A cohort as one row: all that the server needs where no part looks at single clients.

Whatever hides single clients from the server, such as differential privacy or secure aggregation, hands it this row.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from holdfast.core.tensors import PerPart, Tensors
from holdfast.method.method import Method
from holdfast.method.part import MEAN, TOTAL, Part, Round


def as_one_row(method: Method, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
    """Replace the rows of a cohort by one.

    Args:
        method: The method, which must have no ``row_readers``.
        r: The round.
        uploads: What the clients uploaded, by part.

    Returns:
        The round and the uploads with one row: the weighted mean of what enters the server through ``r.mean``, and the
        plain mean of what enters it through ``r.total``.
    """
    entries = {p.name: p.linear or {} for p in method.parts}

    def row(tensor: Tensor, enters: str) -> Tensor:
        rows = tensor if tensor.is_floating_point() else tensor.double()
        return (rows.mean(0) if enters == TOTAL else r.mean(rows))[None]

    def rows(part: str, tensors: Tensors) -> Tensors:
        return {name: row(t, entries.get(part, {}).get(name, MEAN)) for name, t in tensors.items()}

    one = {part: rows(part, tensors) for part, tensors in uploads.items()}
    return with_one_row(r, r.mean(r.deltas), len(r.deltas)), one


def why_not_summed(method: Method) -> str:
    """Return why a server that receives nothing but sums over clients cannot play a method; empty if it can.

    >>> why_not_summed(Method.parse("scaffold")), why_not_summed(Method.parse("median"))
    ('', 'median looks at single clients at the server')
    """
    for part in method.row_readers:
        return f"{part.name} looks at single clients at the server"
    for part in (p for hook in ("survey", "trips") for p in method.filling(hook)):
        return f"{part.name} asks clients for more than their update"
    for part in method.parts:
        if type(part).encodes is not Part.encodes:
            return f"{part.name} writes every update in a form that cannot be summed"
    return ""


def with_one_row(r: Round, delta: Tensor, size: float) -> Round:
    """Return a round whose only row is the mean of the deltas.

    Args:
        r: The round; who took part is kept.
        delta: The mean.
        size: How many clients it stands for.

    Returns:
        The round.
    """
    return replace(r, deltas=delta[None], weights=r.weights.new_ones(1), size=size)
