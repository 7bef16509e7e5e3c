"""The messages between server and nodes: a record of plain fields beside the arrays, checked when it is read.

Every request carries a ticket, a random id. A reply counts only with the ticket of its request, and only once. That
keeps out replayed and misdirected replies.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from holdfast.core.errors import HoldfastError
from holdfast.flower.array_codec import Refused

ENROL, TRAIN, TRAIN_AGAIN = "query.enrol", "train", "train.again"
GRADIENTS, SURVEY, SCORE, SUMS = "query.gradients", "query.survey", "query.score", "query.sums"
PERSONAL = "query.personal"
FIELDS_RECORD, ARRAYS_RECORD = "numbers", "arrays"  # the names of a message's records
RANDOM_ID = re.compile(r"[0-9a-f]{16}")


class Fields(Protocol):
    """The plain fields of a message: a dataclass with a ticket."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def ticket(self) -> str: ...


F = TypeVar("F", bound=Fields)


@dataclass(frozen=True)
class NodeRequest:
    """The fields of a request to a node.

    Attributes:
        ticket: The random id of the request.
        run: The server's id of the run, the same after a resume.
        round: The round.
        trip: The trip within the round; 0 is local training.
        lr: The local learning rate.
        clients: The clients of the node that the request is about.
        use: For each client, the round (in a further trip: the trip) whose state it starts from.
        keep: For each client, the round whose state the last checkpoint needs.
        parts: The parts that take part in a survey; or what to sum up: inputs, targets.
        purpose: Which samples a score is of: those held out for ``validation`` or ``client_test``; empty: test data.
    """

    ticket: str
    run: str
    round: int = 0
    trip: int = 0
    lr: float = 0.0
    clients: list[int] = field(default_factory=list)
    use: list[int] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    purpose: str = ""


@dataclass(frozen=True)
class NodeReply:
    """The fields of a node's reply.

    Attributes:
        ticket: The ticket of the request.
        round: The round of the request.
        trip: The trip of the request.
        clients: The clients that did what was requested.
        n: The samples of each of them.
        K: The local steps of each of them.
        fresh: The clients that should have had a state, but had none.
        errors: For each of the other clients "client: what happened".
        seconds: The time from the message to this reply, without reading data.
        training: How much of it was spent on what was requested.
    """

    ticket: str
    round: int
    trip: int
    clients: list[int]
    n: list[int]
    K: list[int]
    fresh: list[int]
    errors: list[str]
    seconds: float
    training: float


@dataclass(frozen=True)
class Enrolment:
    """The fields of a node's reply to the request to enrol.

    Attributes:
        ticket: The ticket of the request.
        clients: The clients of the node.
        names: What the node calls each of them; empty if they have no names.
        n: The samples of each of them.
        shape: The shape of a sample.
        classes: The number of the network's outputs: classes, labels, targets or tokens.
        task: What is predicted.
    """

    ticket: str
    clients: list[int]
    names: list[str]
    n: list[int]
    shape: list[int]
    classes: int
    task: str


def to_record(content: Fields) -> ConfigRecord:
    """Return the fields as a record of Flower."""
    return ConfigRecord(asdict(content))


def read_message(kind: type[F], message: Message, arrays: set[str]) -> F:
    """Read the fields of a message.

    Args:
        kind: What the message must contain.
        message: The message.
        arrays: The names of the records of arrays that the message must have, and no others.

    Returns:
        The fields. A message that does not fit is refused.
    """
    content = message.content if message.has_content() else {}
    expected = {FIELDS_RECORD, *arrays}
    if set(content) != expected:
        names = one_line(", ".join(sorted(content)[:5])) or "none"
        raise Refused(f"the message has the wrong records: {names}, not {', '.join(sorted(expected))}")
    record = content[FIELDS_RECORD]
    if not isinstance(record, ConfigRecord) or not all(isinstance(content[name], ArrayRecord) for name in arrays):
        raise Refused("the message has records of the wrong kind")
    result = kind(**_checked_fields(kind, dict(record)))
    ids = [result.ticket, result.run] if isinstance(result, NodeRequest) else [result.ticket]
    if not all(RANDOM_ID.fullmatch(text) for text in ids):
        raise Refused("the message has a malformed ticket")
    return result


def _checked_fields(kind: type[F], values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass from a record; every one must be there with its type, and nothing else."""
    known: dict[str, Any] = {}
    for f in fields(kind):
        if f.name not in values:
            raise Refused(f"the message lacks the field {f.name}")
        if not has_type(values[f.name], str(f.type)):
            raise Refused(f"the message's field {f.name} is not of type {f.type}")
        known[f.name] = values.pop(f.name)
    if values:
        raise Refused(f"the message has an unknown field: {one_line(next(iter(values)))}")
    return known


def has_type(value: object, kind: str) -> bool:
    """Tell whether a value has a type such as ``list[int]``."""
    if kind.startswith("list"):
        inner = kind[5:-1]
        return isinstance(value, list) and all(has_type(v, inner) for v in value)
    if isinstance(value, bool):
        return False
    return type(value).__name__ == kind or (kind == "float" and isinstance(value, int))


def arrays_of(message: Message, name: str) -> ArrayRecord:
    """Return a record of arrays that ``read_message`` has checked."""
    record = message.content[name]
    assert isinstance(record, ArrayRecord)
    return record


def make_reply(request: Message, content: Fields, arrays: ArrayRecord | None = None) -> Message:
    """Make the reply to a message.

    Args:
        request: The message to reply to.
        content: The fields of the reply.
        arrays: The arrays of the reply, if any.

    Returns:
        The reply.
    """
    records: dict[str, Any] = {FIELDS_RECORD: to_record(content)}
    if arrays is not None:
        records[ARRAYS_RECORD] = arrays
    return Message(RecordDict(records), reply_to=request)


def one_line(text: str) -> str:
    """Shorten a text from another machine to one printable line."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:200]


class TooFewClients(HoldfastError):
    """Too few clients returned an update, even after retries. The run stops; its last checkpoint is kept."""

    status = 1
