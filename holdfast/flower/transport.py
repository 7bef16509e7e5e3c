"""Questions to nodes and their replies, each under a deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from holdfast.flower.messages import one_line

FIRST, SLOWEST = 0.02, 1.0  # seconds between looks for replies: at first, and after a while
LIFE = 60.0  # seconds that Flower keeps a message beyond our deadline, so that the deadline is ours alone
MEANING = {
    1: "its app does not load",
    2: "its app raised an exception",
    3: "the message did not reach it in time",
    4: "its reply was lost",
    5: "the node is gone",
    8: "its app crashed",
}


class Transport:
    """Sends one message to each of some nodes and collects what comes back; ``waited`` counts the seconds."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.grid, self.timeout = grid, timeout
        self.waited = 0.0

    def exchange(self, kind: str, round: int, letters: Mapping[int, RecordDict]) -> dict[int, Message | str]:
        """For every node its reply, or why there is none."""
        begun = time.perf_counter()
        messages = [
            Message(content, dst_node_id=node, message_type=kind, group_id=str(round), ttl=self.timeout + LIFE)
            for node, content in letters.items()
        ]
        sent = list(self.grid.push_messages(messages))
        waiting: dict[str, int] = {}
        found: dict[int, Message | str] = dict.fromkeys(letters, "the message could not be sent")
        if len(sent) == len(letters):
            for word, node in zip(sent, letters, strict=True):
                if word:
                    waiting[word], found[node] = node, f"no reply within {self.timeout:g} s"
        self._collect(waiting, found, time.perf_counter() + self.timeout)
        self.waited += time.perf_counter() - begun
        return found

    def _collect(self, waiting: dict[str, int], found: dict[int, Message | str], deadline: float) -> None:
        """Look for replies until all are here or the deadline has passed."""
        pause = FIRST
        while waiting and time.perf_counter() < deadline:
            came = False
            for word, node in list(waiting.items()):
                reply = self._look(word, node)
                if reply is not None:
                    found[node], came = reply, True
                    del waiting[word]
            pause = FIRST if came else min(SLOWEST, pause * 1.5)
            if waiting:
                time.sleep(min(pause, max(0.0, deadline - time.perf_counter())))

    def _look(self, word: str, node: int) -> Message | str | None:
        """The reply to one message: one at a time, so that a reply that cannot be read hurts nobody else."""
        try:
            replies = list(self.grid.pull_messages([word]))
        except httpx.HTTPError:
            raise  # the SuperLink is gone, not the reply wrong
        except Exception as error:
            return f"its reply cannot be read: {one_line(f'{type(error).__name__}: {error}')}"
        for reply in replies:
            if reply.metadata.reply_to_message_id == word:
                return reply if not reply.has_error() else said(reply.error)
        return None


def said(error: Any) -> str:
    """An error reply of Flower's in words."""
    what = MEANING.get(error.code, f"Flower's error {error.code}")
    return f"{what}: {one_line(error.reason)}" if error.reason and error.code in (1, 2, 8) else what
