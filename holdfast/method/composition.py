"""What a sum of parts sends, shows and keeps, from what its parts declare."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from holdfast.core.errors import HoldfastError
from holdfast.method.method import Method
from holdfast.method.one_row import why_not_summed
from holdfast.method.part import TOTAL, Part, parts

DELTA = "delta"
UPLOADING = ("end", "send", "survey")  # the hooks in which clients send something


@dataclass(frozen=True)
class Upload:
    """Something that every client of a cohort sends.

    Attributes:
        part: The part that it belongs to; empty for the delta.
        name: Its name.
        what: What it is, in words.
        enters: How it enters the server: "mean", "total", or "one by one".
    """

    part: str
    name: str
    what: str
    enters: str


@dataclass(frozen=True)
class Composition:
    """What one should know about a sum before clients trust it.

    Attributes:
        uploads: What clients send.
        readers: The parts whose half at the server looks at single clients.
        private: The part that accounts for what is revealed; empty if none does.
        robust: The part that withstands liars in whatever is averaged; empty if none does.
        changes: The parts that change what is sent, in order.
        kept: What clients keep between rounds, by part.
        counts_all: The parts whose formulas divide by the number of all clients.
        unsummed: Why secure aggregation refuses the sum; empty if it takes it.
        uncounted: Why differential privacy cannot be added; empty if it can, or is there.
    """

    uploads: tuple[Upload, ...]
    readers: tuple[str, ...]
    private: str
    robust: str
    changes: tuple[str, ...]
    kept: dict[str, str]
    counts_all: tuple[str, ...]
    unsummed: str
    uncounted: str

    @property
    def linear(self) -> bool:
        """Whether sums over a cohort are all that the server needs."""
        return not self.readers


def composition(method: Method) -> Composition:
    """Return what a sum sends, shows and keeps."""
    readers = method.row_readers
    private = next((p.name for p in method.parts if p.private), "")
    return Composition(
        uploads=tuple(_uploads(method)),
        readers=tuple(p.name for p in readers),
        private=private,
        robust="" if method.robust is None else method.robust.name,
        changes=tuple(p.name for p in method.filling("send")),
        kept={p.name: p.keeps for p in method.parts if keeps_state(p)},
        counts_all=tuple(p.name for p in method.parts if TOTAL in (p.linear or {}).values()),
        unsummed=why_not_summed(method),
        uncounted="" if private else why_not_counted(method),
    )


def why_not_counted(method: Method) -> str:
    """Return why no part can account for what a method reveals; empty if one can be added."""
    reasons = []
    for part in (cls() for cls in parts().values() if cls.private):
        try:
            method + part
        except HoldfastError as error:
            reasons.append(str(error))
        else:
            return ""
    return "; ".join(reasons)


def _uploads(method: Method) -> list[Upload]:
    readers = method.row_readers
    alone = [p for p in readers if not p.sending]  # they look at the deltas
    found = [Upload("", DELTA, "local minus global model", "one by one" if alone else "mean")]
    for part in method.parts:
        for name, what in part.sending.items() if any(map(part.fills, UPLOADING)) else ():
            enters = "one by one" if part in readers else (part.linear or {}).get(name, "mean")
            found.append(Upload(part.name, name, what, enters))
    return found


def keeps_state(part: Part) -> bool:
    """Tell whether a part, with its parameters, keeps anything at the clients."""
    return part.fills("init_client") and bool(part.init_client(torch.zeros(1)))


def sentences(found: Composition) -> dict[str, str]:
    """Return what users should know, in words, by heading."""
    readers, changes = ", ".join(found.readers), ", ".join(found.changes)
    told = {
        "single clients": (
            "the server needs sums alone: single clients can be hidden from it"
            if found.linear
            else f"{readers} at the server looks at single clients"
        ),
        "secure aggregation": (
            f"refuses it: {found.unsummed}" if found.unsummed else "takes it: holdfast deploy ... --secure"
        ),
        "privacy": _privacy(found),
        "liars": (
            f"{found.robust} takes the place of every mean and total above"
            if found.robust
            else "one client that lies can move every mean as far as it likes: add median, trimmed, ... or norm_bound"
        ),
    }
    if changes:
        told["before sending"] = f"{changes} changes what is sent"
    told["kept at clients"] = (
        "; ".join(f"{what} ({part})" for part, what in found.kept.items()) if found.kept else "nothing"
    )
    told["few clients in a round"] = participation(found)
    return told


def _privacy(found: Composition) -> str:
    if found.private:
        return f"{found.private} bounds and accounts for everything above"
    counted = f"dp refuses it: {found.uncounted}" if found.uncounted else "add dp to account for it"
    return f"nothing limits what these reveal about a client's data; {counted}"


def participation(found: Composition) -> str:
    """Say what partial participation does to a sum."""
    said = []
    if found.kept:
        said.append("what a client keeps is as old as its last round, and of no use to clients that are drawn once")
    if found.counts_all:
        said.append(f"{', '.join(found.counts_all)} divides by the number of all clients, and moves by their share")
    return "; ".join(said) or "nothing grows old: clients may come once"
