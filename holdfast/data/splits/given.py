"""given: data that is already divided among clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.data.split import OwnerSplit


@dataclass(frozen=True)
class Given(OwnerSplit):
    """Every group of the data is a client, in the order of the group numbers."""

    name = "given"
    by_groups = True

    def owners(self, groups: np.ndarray | None, samples: int, clients: int) -> np.ndarray:
        if groups is None:
            raise HoldfastError("given: this data has no groups; use a split such as iid or dirichlet(0.3)")
        if np.shape(groups) != (samples,):
            raise HoldfastError(
                f"given: groups must have one number per sample, shape [{samples}], not {list(np.shape(groups))}; "
                "reshape them"
            )
        names, owner = np.unique(np.asarray(groups), return_inverse=True)
        if len(names) < clients and names.min() >= 0 and names.max() < clients:
            return np.asarray(groups).astype(np.int64)  # some clients are empty: the others keep their numbers
        if len(names) != clients:
            raise HoldfastError(f"given: the data has {len(names)} groups; use clients={len(names)}, not {clients}")
        return owner.astype(np.int64, copy=False)
