"""A cohort as one row: all that the server needs where no part looks at single clients.

Whatever hides single clients from the server, such as differential privacy or secure aggregation, hands it this row.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from holdfast.core.tensors import PerPart, Tensors
from holdfast.method.method import Method
from holdfast.method.part import MEAN, TOTAL, Round


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
