"""norm_bound: updates that are too long are shortened or left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.core.tensors import PerPart, flatten, unflatten
from holdfast.method.part import Part, Round, Tensors, keep
from holdfast.models.batchnorm import STATISTICS


@dataclass(frozen=True)
class NormBound(Part):
    """No update is longer than a bound when it enters the mean:

        of=median    c times the median length of the cohort's updates
        of=fixed     c

    What is longer is shortened to the bound, or with ``drop=true`` left out, and its client named in the history as
    skipped. What parts upload is bounded by the same multiple of its own median length. Honest updates grow and shrink
    in the course of a run, which the median follows by itself. It bounds what one liar can do in a round, not what many
    can: sum it with a robust mean.
    """

    name = "norm_bound"
    paper = "Sun et al. 2019, Can You Really Backdoor Federated Learning?"
    group = "trust"
    summary = "Shortens or drops updates too long"

    c: float = param(
        2.0, "the bound, or its multiple of the median length", above=0, search="it follows from what liars send"
    )
    of: str = param("median", "what the bound is", choices=("median", "fixed"))
    drop: bool = param(False, "leave out what is longer, rather than shorten it")

    def admit(self, s: Tensors, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        multiple = self.c / float(usual_length(r.deltas)) if self.of == "fixed" else self.c
        others = flatten({part: tensors for part, tensors in uploads.items() if part != STATISTICS})
        others = {name: rows for name, rows in others.items() if rows.is_floating_point()}
        shares = {name: share_within(rows, multiple) for name, rows in others.items()}
        share = share_within(r.deltas, multiple)
        if self.drop:
            return keep(r, uploads, torch.stack([share, *shares.values()]).amin(0) >= 1)
        shorter = unflatten({name: times(shares[name], rows) for name, rows in others.items()})
        bounded = {part: tensors | shorter.get(part, {}) for part, tensors in uploads.items()}
        return replace(r, deltas=times(share, r.deltas)), bounded


def lengths(rows: Tensor) -> Tensor:
    """Return the length of every client's tensor, [C]."""
    norms: Tensor = torch.linalg.vector_norm(rows.reshape(len(rows), -1).to(torch.float64), dim=1)
    return norms


def usual_length(rows: Tensor) -> Tensor:
    """Return the median length, never zero."""
    return lengths(rows).median().clamp(min=torch.finfo(torch.float64).tiny)


def share_within(rows: Tensor, multiple: float) -> Tensor:
    """Return which share of every client's tensor is within a multiple of the median length: 1 if all of it is."""
    return (multiple * usual_length(rows) / lengths(rows).clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1)


def times(factors: Tensor, rows: Tensor) -> Tensor:
    """Multiply every client's tensor by its factor; factors of one leave it as it is."""
    return rows * factors.to(rows.dtype).reshape(-1, *[1] * (rows.dim() - 1))
