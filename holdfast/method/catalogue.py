"""The catalogue: every method that a user can name, recipes and parts alike, with what each does."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES

GROUPS = {  # group -> its heading, in the order of the list
    "paper": "The five papers",
    "baseline": "Baselines",
    "building block": "Building blocks",
    "trust": "Robust, private, cheap to send",
    "yours": "Yours",
}


@dataclass(frozen=True)
class MethodEntry:
    """A line of the catalogue.

    Attributes:
        name: The name to use in a sum.
        group: One of ``GROUPS``; parts from outside the library are "yours".
        summary: What it does, in one short sentence.
        paper: The reference: authors, year, a comma, the title.
        sum: The parts that it stands for; empty for plain federated averaging.
    """

    name: str
    group: str
    summary: str
    paper: str
    sum: str

    @property
    def citation(self) -> str:
        """First author and year.

        >>> MethodEntry("sam", "baseline", "", "Qu et al. 2022, Generalized Federated Learning", "sam").citation
        'Qu 2022'
        """
        return self.paper.partition(",")[0].replace(" et al.", "").replace(" and ", " & ")


def methods() -> list[MethodEntry]:
    """List every recipe and every part, by group and name."""
    entries = [MethodEntry(name, r.group, r.summary, r.paper, r.sum) for name, r in RECIPES.items()]
    for name, part in parts().items():
        group = part.group if part.__module__.startswith("holdfast.") else "yours"
        entries.append(MethodEntry(name, group, part.summary, part.paper, name))
    order = list(GROUPS)
    return sorted(entries, key=lambda entry: (order.index(entry.group), entry.name))
