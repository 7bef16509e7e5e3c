"""A grid in memory: real messages, written to bytes and read again, between a server and nodes in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.common.serde import context_from_proto, context_to_proto, message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Context as ContextBytes
from flwr.proto.message_pb2 import Message as MessageBytes
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from holdfast.flower.app import client_app, serve
from holdfast.flower.messages import TRAIN
from holdfast.method.config import Config
from holdfast.runs.run_result import Result

SMALL = {
    "data": "digits", "split": "dirichlet(0.5)", "clients": 4, "cohort": 3, "model": "mlp", "epochs": 2, "rounds": 3,
    "batch": 64, "device": "cpu",
}  # fmt: skip
Trouble = Callable[[Message, Message], "Message | str | None"]  # (request, reply) -> another reply, none, or an error


class MemoryGrid(Grid):
    """Nodes in this process. ``trouble`` may change, drop or spoil their replies."""

    def __init__(self, settings: dict[str, Any], nodes: int, trouble: Trouble = lambda request, reply: reply) -> None:
        self.settings, self.trouble, self.app = settings, trouble, client_app()
        self.contexts: dict[int, Context] = {}
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []  # every message from the server
        self.nodes, self.started = nodes, 0
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        for partition in range(nodes):
            self.start(partition)

    def start(self, partition: int, **settings: Any) -> int:
        """Start a new node for a partition, without any state, and return its id."""
        self.started += 1
        node = 1000 + self.started
        config = {"partition-id": partition, "num-partitions": self.nodes, **settings}
        self.contexts[node] = Context(1, node, config, RecordDict(), dict(self.settings))
        return node

    def stop(self, partition: int) -> None:
        for node in [n for n, c in self.contexts.items() if c.node_config["partition-id"] == partition]:
            del self.contexts[node]

    # -- the grid ------------------------------------------------------------------------------------------------
    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def _deliver(self, message: Message) -> str:
        message_id = str(uuid.uuid4())
        message.metadata.__dict__["_message_id"] = message_id
        request, node = travel(message), message.metadata.dst_node_id
        self.sent.append(request)
        context = self.contexts.get(node)
        if context is None:
            self.replies[message_id] = Message(Error(5, "gone"), reply_to=request)
            return message_id
        context = context_from_proto(ContextBytes.FromString(context_to_proto(context).SerializeToString()))
        try:
            reply = self.app(request, context)
            self.contexts[node] = context
        except Exception as error:
            reply = Message(Error(2, repr(error)), reply_to=request)
        changed = self.trouble(request, reply)
        if isinstance(changed, str):
            changed = Message(Error(5, changed), reply_to=request)
        if changed is not None:
            self.replies[message_id] = travel(changed)
        return message_id


def travel(message: Message) -> Message:
    """Return the message as it arrives on another machine."""
    return message_from_proto(MessageBytes.FromString(message_to_proto(message).SerializeToString()))


def on_grid(method: str, grid: MemoryGrid | None = None, nodes: int = 4, **settings: Any) -> Result:
    """Run a method on nodes in this process."""
    values = {**SMALL, **settings, "method": method}
    grid = grid or MemoryGrid(values, nodes)
    known = {k: v for k, v in values.items() if k in Config.__dataclass_fields__}
    return serve(grid, Config(**known), {"nodes": nodes, "patience": 1.0, "timeout": 0.3, **values})


def about(request: Message, round: int, client: int) -> bool:
    """Whether a message is the local training of this client in this round."""
    numbers = request.content["numbers"]
    return request.metadata.message_type == TRAIN and numbers["round"] == round and client in numbers["clients"]


def changed(reply: Message, **arrays: Any) -> Message:
    """A reply with other arrays under some names; None takes one out."""
    kept = {k: v for k, v in reply.content["arrays"].items() if k not in arrays}
    new = {k: v if isinstance(v, Array) else Array(v) for k, v in arrays.items() if v is not None}
    content = RecordDict({"numbers": reply.content["numbers"], "arrays": ArrayRecord({**kept, **new})})
    return Message(content, reply_to=reply_to(reply))


def reply_to(reply: Message) -> Message:
    """A message with the metadata of the request that a reply answers."""
    request = Message(RecordDict(), dst_node_id=reply.metadata.src_node_id, message_type=reply.metadata.message_type)
    request.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return request
