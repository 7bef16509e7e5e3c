"""FNR-FL: refine the weakest clients of the cohort on public data, towards the feature norms of the others."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Round, Tensors, Trip
from holdfast.models.net import Out
from holdfast.parts._public_data import require_public_data

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class Fnr(Part):
    """Feature-norm regularisation (Alg. 1-3 of the paper). After its training, each client i of the cohort measures on
    public data the mean feature norm of every class, F_i[c], and its accuracy. The floor(p*n) least accurate clients,
    S_re, then train a second time, on the public data, with

        loss = cross-entropy + weight * J

    ``mode=gradient``, the default: J is recomputed on every batch; rho_c is the share of class c in it.

        J = sum_c rho_c * | mean_{m not in S_re} F_m[c] - F_j[c](batch) |

    The absolute value is needed: the signed sum in the paper would reward norms that grow without bound.
    ``mode=published``: J is computed once, from stored norms, as printed. It is a constant, so its gradient is zero,
    and the method fine-tunes the weakest clients on public data.

    The paper gives neither p nor the weight. Ours were chosen on digits; ``docs/methods/fnr.md`` shows the sensitivity.
    Public data is held out of the training data (``--public 0.05``). The paper's own code used the test set and then
    reported accuracy on it. ``--public test`` does that, but only with ``allow_test_leak=true``, and the run is marked
    as leaking. That code refines on images as they are, in batches of 32, in the order of the files: ``--augment-public
    none`` with ``fnr(batch=32, shuffled=false)``.
    """

    name = "fnr"
    paper = "Hu et al. 2023, Feature Norm Regularized Federated Learning"
    group = "paper"
    summary = "Refines weak clients on public data"
    sends: ClassVar[dict[str, str]] = {
        "norms": "mean feature norm per class",
        "accuracy": "accuracy on the client's data",
    }
    accepts_test_data = True

    p: float = param(0.6, "share of the cohort that is refined", above=0, below=1, search=(0.1, 0.9))
    weight: float = param(0.01, "lambda: strength of J", low=0, search=(1e-3, 1, "log"))
    epochs: int = param(5, "E_re: passes over the public data", low=1, search=(1, 10))
    mode: str = param("gradient", "whether J has a gradient", choices=("gradient", "published"))
    allow_test_leak: bool = param(False, "admit the test data as public data; the run is marked as leaking")
    batch: int | None = param(
        None,
        "public samples per step of the refinement; none: as in local training",
        low=1,
        search="by default it is batch, which is searched",
    )
    shuffled: bool = param(True, "take the public samples in a new order in every pass")

    @property
    def needs(self) -> tuple[str, ...]:
        return ("features", "classes")

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        require_public_data(self.name, federation, self.allow_test_leak)
        if self.chosen(config.cohort_size) < 1:
            raise HoldfastError(
                f"fnr: p={self.p:g} of a cohort of {config.cohort_size} refines no client; raise p or the cohort"
            )

    def chosen(self, n: int) -> int:
        """Return floor(p * n), computed exactly.

        >>> Fnr(p=0.29).chosen(100)
        29
        """
        return int(Fraction(str(self.p)) * n)

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        classes = torch.arange(c.net.classes, device=w.device)
        norms = count = w.new_zeros(c.net.classes)
        hits = total = w.new_zeros(())
        for batch in c.public():
            out = c.net(w, batch.x)
            member = (batch.y[:, None] == classes).to(w.dtype)
            norms, count = norms + length(out.features) @ member, count + member.sum(0)
            hits, total = hits + (out.logits.argmax(1) == batch.y).sum(), total + len(batch.y)
        return {"norms": norms / count.clamp(min=1), "accuracy": hits / total}, {}

    def trips(self) -> tuple[Trip, ...]:
        refine = FeatureNorms(self.weight, self.mode)
        return (
            Trip(
                sum=(refine,), who=self.weakest, message=self.reference, state=self.stored, epochs=self.epochs,
                public=True, batch=self.batch, shuffled=self.shuffled,
            ),
        )  # fmt: skip

    def weakest(self, r: Round) -> Tensor:
        """Return the rows of the least accurate clients; ties go to the smaller id (rows are sorted by id)."""
        return torch.argsort(r.uploads["accuracy"], stable=True)[: self.chosen(len(r.ids))]

    def reference(self, r: Round) -> Tensors:
        """Return the mean norms of the clients that are not refined."""
        return {"norms": r.uploads["norms"][self._others(r)].mean(0)}

    def stored(self, r: Round, rows: Tensor) -> Tensors:
        """Return the summed differences of norms (Alg. 2), which the published mode adds as a constant."""
        others, refined = r.uploads["norms"][self._others(r)], r.uploads["norms"][rows]
        return {"difference": others.sum(0) - len(others) * refined}

    def _others(self, r: Round) -> Tensor:
        rest = torch.ones(len(r.ids), dtype=torch.bool, device=r.w.device)
        rest[self.weakest(r)] = False
        return rest


@dataclass(frozen=True)
class FeatureNorms(Part):
    """The penalty of the second trip."""

    name = "feature-norms"
    internal = True

    weight: float = param(0.01, "lambda", search=(1e-3, 1, "log"))
    mode: str = param("gradient", "whether J has a gradient")

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        classes = torch.arange(c.net.classes, device=batch.y.device)
        member = ((batch.y[:, None] == classes) & batch.mask[:, None]).to(out.features.dtype)
        count = member.sum(0)
        rho = count / batch.mask.sum().clamp(min=1)
        if self.mode == "published":
            return self.weight * (rho * c.state["difference"]).sum()
        norms = length(out.features) @ member / count.clamp(min=1)
        return self.weight * (rho * (c.message["norms"] - norms).abs()).sum()


def length(features: Tensor) -> Tensor:
    """Return the norm of every row; its gradient is zero at a zero row."""
    return torch.sqrt((features**2).sum(1).clamp(min=torch.finfo(features.dtype).tiny))
