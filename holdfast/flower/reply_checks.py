"""What a node answered, checked before it is believed: whatever is not as asked is refused, with a reason."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ArrayRecord, Message

from holdfast.flower.array_codec import Refused, Spec, unpack
from holdfast.flower.messages import ARRAYS, Answer, Question, arrays, letter, one_line
from holdfast.method.part import Tensors


@dataclass(frozen=True)
class ClientReply:
    """One client's answer, checked."""

    tensors: Tensors
    n: int
    K: int
    fresh: bool
    overhead: float  # seconds that the node spent on all but training


def check(node: int, ask: Question, message: Message, expected: Spec) -> tuple[dict[int, ClientReply], dict[int, str]]:
    """The clients' answers, and why others have none. ``expected`` is what every client must send."""
    if message.metadata.src_node_id != node:
        raise Refused("another node answered")
    answer = letter(Answer, message, {ARRAYS})
    if (answer.ticket, answer.round, answer.trip) != (ask.ticket, ask.round, ask.trip):
        raise Refused("it answers another question")
    if not len(answer.clients) == len(set(answer.clients)) == len(answer.n) == len(answer.K):
        raise Refused("its lists differ in length")
    if not set(answer.clients) <= set(ask.clients):
        raise Refused("it answers for clients it was not asked about")
    owners = {name.partition("/")[0] for name in arrays(message, ARRAYS)}
    if owners != {str(i) for i in answer.clients}:
        raise Refused("it sends arrays of other clients than it answers for")
    found, failed = {}, errors(ask, answer)
    overhead = max(0.0, answer.seconds - answer.training)
    for i, n, K in zip(answer.clients, answer.n, answer.K, strict=True):
        try:
            found[i] = ClientReply(
                client(i, n, K, arrays(message, ARRAYS), expected), n, K, i in answer.fresh, overhead
            )
        except Refused as error:
            failed[i] = f"refused: {error}"
    return found, failed


def client(i: int, n: int, K: int, record: ArrayRecord, expected: Spec) -> Tensors:
    """The tensors of one client."""
    if not (0 < n < 2**48 and 0 < K < 2**48):
        raise Refused(f"it claims {n} samples and {K} steps")
    own = ArrayRecord({name: record[name] for name in record if name.startswith(f"{i}/")})
    tensors = unpack(own, {f"{i}/{name}": shape for name, shape in expected.items()}, "its update")
    return {name.partition("/")[2]: t for name, t in tensors.items()}


def errors(ask: Question, answer: Answer) -> dict[int, str]:
    """What the clients that did not do what was asked say about it."""
    said = {text.partition(": ")[0]: text.partition(": ")[2] for text in answer.errors}
    missing = set(ask.clients) - set(answer.clients)
    return {i: f"it raised {one_line(said[str(i)])}" if str(i) in said else "it did not say why" for i in missing}
