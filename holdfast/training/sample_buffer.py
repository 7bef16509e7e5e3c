"""Where the samples of a cohort are on the device, if its clients are made on demand."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from holdfast.data.client_maker import CohortSamples
from holdfast.data.federation import Federation

SPARE = 4  # one part in this many is added to what is needed, since the next cohort may need more


class SampleBuffer:
    """Holds one cohort. Traced steps read this very memory, so it is written again for every round.

    Args:
        federation: The federation, on its device.

    Attributes:
        federation: The same federation; its data are the samples of the cohort.
        most: The most samples of any client for which there is room.
    """

    def __init__(self, federation: Federation) -> None:
        data = federation.data
        own = replace(data, x=data.x.clone(), y=data.y.clone())  # the example belongs to the data set
        self.federation, self.most = replace(federation, data=own), len(data.y)

    def put(self, cohort: CohortSamples) -> bool:
        """Write the samples of a cohort; return whether that took new memory or found a larger client than before."""
        n, data = len(cohort.y), self.federation.data
        most = int(cohort.deal.sizes_of(cohort.deal.ids).max())
        grows = n > len(data.y) or most > self.most
        if n > len(data.y):
            room = with_spare(n)
            data = replace(data, x=empty(data.x, room), y=empty(data.y, room))
            self.federation = replace(self.federation, data=data)
        if most > self.most:
            self.most = with_spare(most)
        data.x[:n].copy_(cohort.x.reshape(n, *data.x.shape[1:]))
        data.y[:n].copy_(cohort.y)
        return grows


def empty(like: Tensor, rows: int) -> Tensor:
    """Return zeros of the same type and shape with another number of samples."""
    return like.new_zeros(rows, *like.shape[1:])


def with_spare(n: int) -> int:
    """Return a number of samples with some spare room."""
    return n + n // SPARE
