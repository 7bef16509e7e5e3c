"""Updates that are far longer than the others of their round: one of them may own the mean."""

from __future__ import annotations

from torch import Tensor
from torch.linalg import vector_norm

FAR = 10.0  # times the median length
FEWEST = 3  # clients, below which a median says nothing


def far_from_median(ids: Tensor, deltas: Tensor) -> dict[int, float]:
    """Return the clients whose update is more than ten times as long as the median one, and how many times.

    Args:
        ids: The clients of a cohort.
        deltas: Their updates, [C, P].

    Returns:
        Client -> its length in median lengths, with three digits; empty for cohorts too small for a median.

    >>> from torch import eye, tensor
    >>> far_from_median(tensor([4, 6, 9]), tensor([[1.0], [25.0], [2.0]]) @ eye(1, 2))
    {6: 12.5}
    """
    if len(ids) < FEWEST:
        return {}
    lengths = vector_norm(deltas, dim=1).double()
    median = float(lengths.median())
    if not median > 0:
        return {}
    times = (lengths / median).tolist()
    return {client: float(f"{t:.3g}") for client, t in zip(ids.tolist(), times, strict=True) if t > FAR}
