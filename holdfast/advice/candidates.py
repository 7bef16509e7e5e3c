"""The field of a race: methods and sums of parts, each with the one parameter that matters most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.comparison.part_sweeps import text_with_values
from holdfast.core.errors import HoldfastError
from holdfast.method.method import Method

BASELINE = "fedavg"


@dataclass(frozen=True)
class Candidate:
    """A method in the field.

    Attributes:
        method: The sum, with its parameter at the usual value.
        idea: What it does against drift, in a few words.
        parameter: The parameter that is tuned beside the learning rate, such as ``prox.mu``; empty if there is none.
        values: The other values of it to try.
    """

    method: str
    idea: str
    parameter: str = ""
    values: tuple[float, ...] = ()


class Point(NamedTuple):
    """A candidate at one setting of what is tuned."""

    candidate: Candidate
    lr: float
    value: float | None = None  # of the candidate's parameter; None: as its sum has it

    @property
    def method(self) -> str:
        """The sum with the parameter at this value."""
        if self.value is None:
            return self.candidate.method
        return text_with_values(self.candidate.method, {self.candidate.parameter: self.value})

    @property
    def label(self) -> str:
        """The method and the learning rate."""
        return f"{self.method}, lr {self.lr:.3g}"


FEDAVG = Candidate(BASELINE, "averages the clients' updates")
FIELD = (
    FEDAVG,
    Candidate("fedbug(share=0.4)", "freezes the lower layers at first", "fedbug.share", (0.1, 0.2)),
    Candidate("scaffold", "cancels drift with control variates"),
    Candidate("feddyn(alpha=0.1)", "aligns local optima with the global one", "feddyn.alpha", (0.01, 0.03)),
    Candidate("fedavgm(beta=0.9)", "adds momentum at the server", "fedavgm.beta", (0.5, 0.7)),
    Candidate("fedcm(alpha=0.1)", "mixes the last update into local steps", "fedcm.alpha", (0.3, 0.5)),
    Candidate("fedlc(tau=1.0)", "calibrates logits by class frequency", "fedlc.tau", (0.3, 0.5)),
    Candidate("fednlr", "gives every neuron its own rate", "fednlr.a1", (0.3, 3.0)),
    Candidate("scaffold+fedbug(share=0.4)", "control variates and late unfreezing", "fedbug.share", (0.1, 0.2)),
    Candidate("fnr", "refines weak clients on public data", "fnr.p", (0.3, 0.8)),
    Candidate("prox(mu=0.01)", "pulls local models to the global one", "prox.mu", (0.001, 0.1)),
    Candidate("fedadam(eta=0.01)", "adapts the server's step", "fedadam.eta", (0.003, 0.03)),
    Candidate("fedexp", "lengthens the server step on disagreement"),
    Candidate("sam(rho=0.05)", "looks for flat minima", "sam.rho", (0.01, 0.1)),
    Candidate("fedagg", "adapts each client's rate in every epoch", "fedagg.alpha", (0.3, 0.5)),
    Candidate("fedcm(alpha=0.1)+sam(rho=0.05)", "momentum and flat minima", "fedcm.alpha", (0.3, 0.5)),
    Candidate("fedmrur(rho=0.05)", "regularises features, normalises the mean", "fedcm.alpha", (0.3, 0.5)),
    Candidate("moon(mu=1.0)", "contrasts global and previous features", "moon.mu", (0.1, 5.0)),
    Candidate("feddecorr(beta=0.1)", "decorrelates features", "feddecorr.beta", (0.01, 0.3)),
    Candidate("nova", "averages updates per local step"),
)


def fitting(field: Sequence[Candidate], refused: Sequence[str]) -> list[Candidate]:
    """Return the candidates without those whose sum is refused on this data.

    Args:
        field: The candidates.
        refused: The methods that are refused.

    Returns:
        The others, in their order.
    """
    return [candidate for candidate in field if candidate.method not in refused]


def named(methods: Sequence[str]) -> list[Candidate]:
    """Return candidates for methods that a user names: those of the field as they are, others without a parameter."""
    known = {str(Method.parse(c.method)): c for c in FIELD}
    found = [known.get(str(Method.parse(text)), Candidate(text, "named by you")) for text in methods]
    if all(c.method == BASELINE for c in found):
        raise HoldfastError("a race needs at least one method beside fedavg: name it, or leave --methods out")
    return [FEDAVG, *(c for c in found if c.method != BASELINE)]
