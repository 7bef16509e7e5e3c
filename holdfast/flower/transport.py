"""Sending messages to nodes and collecting their replies, each under a deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from holdfast.flower.messages import one_line

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # seconds between polls for replies
EXTRA_LIFETIME = 60.0  # seconds that Flower keeps a message beyond our deadline, so that only our deadline counts
ERROR_CODES = {
    1: "its app does not load",
    2: "its app raised an exception",
    3: "the message did not reach it in time",
    4: "its reply was lost",
    5: "the node is gone",
    8: "its app crashed",
}


class Transport:
    """Sends one message to each of some nodes and collects the replies.

    Attributes:
        grid: Flower's access to the nodes.
        timeout: The seconds to wait for replies.
        waited: The seconds spent waiting so far.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.grid, self.timeout = grid, timeout
        self.waited = 0.0

    def exchange(self, kind: str, round: int, contents: Mapping[int, RecordDict]) -> dict[int, Message | str]:
        """Send messages and wait for the replies.

        Args:
            kind: The type of the messages.
            round: The round, for Flower's logs.
            contents: The content of the message to each node.

        Returns:
            For every node its reply, or why there is none.
        """
        started = time.perf_counter()
        messages = [
            Message(
                content, dst_node_id=node, message_type=kind, group_id=str(round), ttl=self.timeout + EXTRA_LIFETIME
            )
            for node, content in contents.items()
        ]
        message_ids = list(self.grid.push_messages(messages))
        waiting: dict[str, int] = {}
        replies: dict[int, Message | str] = dict.fromkeys(contents, "the message could not be sent")
        if len(message_ids) == len(contents):
            for message_id, node in zip(message_ids, contents, strict=True):
                if message_id:
                    waiting[message_id], replies[node] = node, f"no reply within {self.timeout:g} s"
        self._collect(waiting, replies, time.perf_counter() + self.timeout)
        self.waited += time.perf_counter() - started
        return replies

    def pause(self, seconds: float) -> None:
        """Wait before nodes are looked for again."""
        time.sleep(seconds)
        self.waited += seconds

    def _collect(self, waiting: dict[str, int], replies: dict[int, Message | str], deadline: float) -> None:
        """Poll until all replies have arrived or the deadline has passed."""
        pause = FIRST_PAUSE
        while waiting and time.perf_counter() < deadline:
            arrived = False
            for message_id, node in list(waiting.items()):
                reply = self._poll(message_id)
                if reply is not None:
                    replies[node], arrived = reply, True
                    del waiting[message_id]
            pause = FIRST_PAUSE if arrived else min(LONGEST_PAUSE, pause * 1.5)
            if waiting:
                time.sleep(min(pause, max(0.0, deadline - time.perf_counter())))

    def _poll(self, message_id: str) -> Message | str | None:
        """Return the reply to one message, if it is there: one at a time, so that a damaged reply affects no other."""
        try:
            replies = list(self.grid.pull_messages([message_id]))
        except httpx.HTTPError:
            raise  # the SuperLink is gone; the reply is not to blame
        except Exception as error:
            return f"its reply cannot be read: {one_line(f'{type(error).__name__}: {error}')}"
        for reply in replies:
            if reply.metadata.reply_to_message_id == message_id:
                return reply if not reply.has_error() else describe_error(reply.error)
        return None


def describe_error(error: Any) -> str:
    """Describe an error reply of Flower's."""
    text = ERROR_CODES.get(error.code, f"Flower's error {error.code}")
    return f"{text}: {one_line(error.reason)}" if error.reason and error.code in (1, 2, 8) else text
