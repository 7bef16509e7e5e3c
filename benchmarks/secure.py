"""What secure aggregation costs by itself: the cryptography of one sum, without messages and training.

python benchmarks/secure.py               # 3, 10 and 30 nodes, a million numbers
python benchmarks/flower.py deployment --secure    # whole rounds of a local deployment
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from holdfast.flower.fixed_point import to_ring
from holdfast.flower.sum_member import masked, new_member, receive, reveal, share, unmasked

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what some work gives, and its seconds of processor time."""
    started = time.process_time()
    return work(), time.process_time() - started


def one_sum(nodes: int, length: int, gone: int) -> None:
    """Time every stage of a sum at one node and at the server; ``gone`` nodes drop out before their vectors arrive."""
    values = torch.randn(length, dtype=torch.float64)
    members, first = timed(lambda: [new_member("t") for _ in range(nodes)])
    keys = [key for member in members for key in member.public_keys()]
    shared, second = timed(lambda: [share(member, place, keys) for place, member in enumerate(members)])
    texts = [[shared[u][1][v] for u in range(nodes)] for v in range(nodes)]
    there = range(nodes - gone)
    hidden, third = timed(lambda: [masked(receive(shared[v][0], texts[v]), to_ring(values)) for v in there])
    vectors = {v: hidden[v][1] for v in there}
    shares, fourth = timed(lambda: {v: reveal(hidden[v][0], list(there)) for v in there})
    _, server = timed(lambda: unmasked(keys, vectors, range(nodes), shares))
    node = first / nodes + second / nodes + third / len(there) + fourth / len(there)
    print(f"{nodes} nodes, {length} numbers, {gone} gone: {node:.3f} s at a node, {server:.3f} s at the server")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1_000_000)
    args = parser.parse_args()
    for nodes in (3, 10, 30):
        for gone in (0, nodes // 5 or 1):
            one_sum(nodes, args.length, gone)
