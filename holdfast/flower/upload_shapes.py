"""What clients will send, found by playing one: the names, types and shapes that the server expects.

The method trains a client of the server's own that has one sample of zeros. What it uploads has the shapes of every
client's uploads, since the contract of parts fixes them.
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

ONE = np.array([0])


class UploadShapes:
    """The server's own client; ``federation`` holds test and public data alone."""

    def __init__(self, config: Config, method: Method, federation: Federation, net: Net) -> None:
        config = config.changed(engine="loop", steps=None, epochs=config.passes, compile=False)
        data, sizes = federation.data, np.ones(federation.clients + 1, np.int64)
        sizes[0] = 0
        x = torch.cat([torch.zeros_like(data.x[:1]) if len(data.x) else data.x.new_zeros(1, *federation.shape), data.x])
        y = torch.cat([data.y.new_zeros(1), data.y])
        zero = replace(data, x=x, y=y)
        public = federation.public + 1
        self.method = method
        dealt = Deal(np.arange(1), sizes)
        self.player = Simulation(
            config, method, replace(federation, data=zero, deal=dealt, public=public, augment=False, numbers=None), net
        )
        self.seen: dict[object, PerPart] = {}

    def train(self, broadcast: Broadcast) -> PerPart:
        """One client's uploads from its local training."""
        if 0 not in self.seen:
            self.player.server.w = broadcast.w0
            uploads = self.player.train(broadcast, ONE).uploads if self.method.filling("end") else {}
            self.seen[0] = tree_map(lambda t: t[0], uploads)
        return self.seen[0]

    def again(self, number: int, broadcast: Broadcast, state: PerPart) -> PerPart:
        """One client's uploads from a further trip."""
        if number not in self.seen:
            sum = Method(self.player.trips[number - 1][1].sum)
            first = tree_map(lambda rows: rows[:1], state)
            still = torch.zeros_like(broadcast.w0)[None]
            uploads = (
                self.player.train_again(number, broadcast, ONE, first, still).uploads if sum.filling("end") else {}
            )
            self.seen[number] = tree_map(lambda t: t[0], uploads)
        return self.seen[number]

    def survey(self, broadcast: Broadcast, parts: Sequence[Part]) -> PerPart:
        """What one client finds in a survey."""
        found = self.player.engines[0].survey(broadcast, self.player.client_info(ONE), parts)
        return tree_map(lambda t: t[0], found)  # type: ignore[no-any-return]
