"""Where a run was made: the device, the day, and the versions of this code and of torch."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.commit import commit
from holdfast.core.version import __version__

if TYPE_CHECKING:
    import torch

MADE = ("device", "date", "holdfast", "torch", "commit")
DATA = "data_checksum"  # see ``holdfast.data.loading.sample_checksum``


def made_here(device: torch.device, data_checksum: str) -> dict[str, str]:
    """Return where, with what and on which data a run that ends now was made."""
    import torch  # here, so that the command line starts quickly

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "date": datetime.date.today().isoformat(),
        "holdfast": __version__,
        "torch": torch.__version__,
        "commit": commit(),
        **({DATA: data_checksum} if data_checksum else {}),
    }


def made_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return where and on which data a run was made according to its record; runs of older versions say less."""
    return {name: record[name] for name in (*MADE, DATA) if record.get(name)}
