"""The names, types and shapes of what clients will send, found by training a dummy client at the server.

The dummy client has one sample of zeros. Its uploads have the shapes of every client's uploads, since the contract of
parts fixes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart
from holdfast.data.federation import Federation
from holdfast.data.splits import Deal
from holdfast.engines.local_training import Broadcast
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Part
from holdfast.models.net import Net
from holdfast.training.simulation import Simulation

DUMMY = np.array([0])  # the ids of the cohort


class UploadShapes:
    """Trains the dummy client; its uploads serve as a template for those of every client."""

    def __init__(self, config: Config, method: Method, federation: Federation, net: Net) -> None:
        """Prepare the dummy client.

        Args:
            config: The run.
            method: Its method.
            federation: What the server sees: test and public data alone.
            net: The network.
        """
        config = config.changed(engine="loop", steps=None, epochs=config.passes, compile=False)
        data, offsets = federation.data, np.ones(federation.clients + 1, np.int64)
        offsets[0] = 0
        x, y = (torch.cat([t.new_zeros(1, *t.shape[1:]), t]) for t in (data.x, data.y))
        data = replace(data, x=x, y=y)
        held, public = Deal(np.arange(1), offsets), federation.public + 1
        dummy = replace(federation, data=data, deal=held, public=public, numbers=None)
        self.method = method
        self.simulation = Simulation(config, method, dummy, net)
        self._uploads: dict[int, PerPart] = {}  # by trip

    def train(self, broadcast: Broadcast) -> PerPart:
        """Return one client's uploads from its local training."""
        if 0 not in self._uploads:
            self.simulation.server.w = broadcast.w0
            sends = self.method.filling("end") or self.method.filling("send") or broadcast.stats
            uploads = self.simulation.train(broadcast, DUMMY).uploads if sends else {}
            self._uploads[0] = tree_map(lambda t: t[0], uploads)
        return self._uploads[0]

    def train_again(self, number: int, broadcast: Broadcast, state: PerPart) -> PerPart:
        """Return one client's uploads from a further trip.

        Args:
            number: The trip within the round.
            broadcast: What every client is sent.
            state: What the clients are sent one by one, with a client axis.

        Returns:
            The uploads.
        """
        if number not in self._uploads:
            method = Method(self.simulation.trips[number - 1][1].sum)
            first = tree_map(lambda rows: rows[:1], state)
            delta = torch.zeros_like(broadcast.w0)[None]
            uploads: PerPart = {}
            if method.filling("end"):
                uploads = self.simulation.train_again(number, broadcast, DUMMY, first, delta).uploads
            self._uploads[number] = tree_map(lambda t: t[0], uploads)
        return self._uploads[number]

    def survey(self, broadcast: Broadcast, parts: Sequence[Part]) -> PerPart:
        """Return what one client reports in a survey."""
        results = self.simulation.engines[0].survey(broadcast, self.simulation.client_info(DUMMY), parts)
        return tree_map(lambda t: t[0], results)  # type: ignore[no-any-return]
