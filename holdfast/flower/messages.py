"""What server and nodes write to each other: the numbers beside the arrays, checked when they are read.

Every question carries a ticket, a random word; an answer counts only with the ticket of its question, once. That keeps
out replayed and misdirected answers.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from holdfast.core.errors import HoldfastError
from holdfast.flower.array_codec import Refused

ENROL, TRAIN, AGAIN, GRADIENTS, SURVEY = "query.enrol", "train", "train.again", "query.gradients", "query.survey"
NUMBERS, ARRAYS = "numbers", "arrays"  # the records of a letter
WORD = re.compile(r"[0-9a-f]{16}")
L = TypeVar("L", "Question", "Answer", "Enrolment")


@dataclass(frozen=True)
class Question:
    """A question to a node about some of its clients."""

    ticket: str
    run: str  # the server's name for the run, the same after a resume
    round: int = 0
    trip: int = 0
    lr: float = 0.0
    clients: list[int] = field(default_factory=list)
    use: list[int] = field(default_factory=list)  # for each: the round, or trip, from whose state it goes on
    keep: list[int] = field(default_factory=list)  # for each: the round whose state the last checkpoint counts on
    parts: list[str] = field(default_factory=list)  # for a survey


@dataclass(frozen=True)
class Answer:
    """What a node says about the clients it was asked about."""

    ticket: str
    round: int
    trip: int
    clients: list[int]  # those that did what was asked
    n: list[int]
    K: list[int]
    fresh: list[int]  # those that should have had a state, but had none
    errors: list[str]  # "client: what happened", of the others
    seconds: float  # from the message to this answer, but for reading data
    training: float  # of these in local training, or in what else was asked for


@dataclass(frozen=True)
class Enrolment:
    """Which clients a node plays, and what their data look like."""

    ticket: str
    clients: list[int]
    n: list[int]
    shape: list[int]
    classes: int


def numbers(letter: Question | Answer | Enrolment) -> ConfigRecord:
    return ConfigRecord(asdict(letter))


def letter(kind: type[L], message: Message, records: set[str]) -> L:
    """The numbers of a message that holds exactly these records beside them."""
    content = message.content if message.has_content() else {}
    if set(content) != {NUMBERS, *records}:
        raise Refused(f"the message holds the records {', '.join(sorted(content)[:5])}: something else was asked for")
    found = content[NUMBERS]
    if not isinstance(found, ConfigRecord) or not all(isinstance(content[name], ArrayRecord) for name in records):
        raise Refused("the message holds records of another kind than was asked for")
    values: dict[str, Any] = dict(found)
    known: dict[str, Any] = {}
    for f in fields(kind):
        if f.name not in values or not fits(values[f.name], str(f.type)):
            raise Refused(f"the message lacks {f.name}, or it is no {f.type}")
        known[f.name] = values.pop(f.name)
    if values:
        raise Refused(f"the message also says {next(iter(values))}, for which nobody asked")
    result = kind(**known)
    if not WORD.fullmatch(result.ticket) or (isinstance(result, Question) and not WORD.fullmatch(result.run)):
        raise Refused("the message's ticket is no ticket")
    return result


def fits(value: object, kind: str) -> bool:
    """Whether a value is of a kind such as ``list[int]``."""
    if kind.startswith("list"):
        inner = kind[5:-1]
        return isinstance(value, list) and all(fits(v, inner) for v in value)
    if isinstance(value, bool):
        return False
    return type(value).__name__ == kind or (kind == "float" and isinstance(value, int))


def arrays(message: Message, name: str) -> ArrayRecord:
    """A record of arrays that ``letter`` has found to be there."""
    record = message.content[name]
    assert isinstance(record, ArrayRecord)
    return record


def reply(message: Message, answer: Answer | Enrolment, found: ArrayRecord | None = None) -> Message:
    records: dict[str, Any] = {NUMBERS: numbers(answer)}
    if found is not None:
        records[ARRAYS] = found
    return Message(RecordDict(records), reply_to=message)


def one_line(text: str) -> str:
    """A text from elsewhere, fit for a line of ours."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:200]


class TooFew(HoldfastError):
    """Too few clients came back, however often they were asked: the run stops, its last checkpoint is kept."""

    status = 1
