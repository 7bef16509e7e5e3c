"""Full disks and folders that may not be written: one line, exit code 2, and the command can be resumed."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from campaign.cases import SMALL, Part, check, undisturbed
from campaign.kills import again
from campaign.process import holdfast

RUN = ("run", "scaffold", *SMALL, "--rounds", "12")
COMPARISON = ("compare", "fedavg", "scaffold", *SMALL, "--rounds", "4", "--seeds", "1")
NOBODY = 65534


def limited(size: int) -> Callable[[], None]:
    """Return a function that lets no file of this process grow beyond a size: a full disk, as far as it can tell."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def fill_disks(part: Part) -> None:
    for place in part.rounds():
        args = part.random.choice((RUN, COMPARISON))
        whole, _ = undisturbed(part.folder / f"whole-{args[0]}", *args)
        size = part.random.randint(300, 9000)
        case = f"{args[0]}, no file above {size} bytes"
        full = holdfast(*args, "--out", place, before=limited(size))
        if full.code == 0 or (full.refused and "file too large" in full.err):
            part.count("refused" if full.code else "fitted")
        else:
            part.find(case, full)
        check(part, f"{case}, then resumed", holdfast(*again(place, args), "--out", place), place, whole)


def close_folders(part: Part) -> None:
    for place in part.rounds():
        args = part.random.choice((RUN, COMPARISON))
        place.mkdir()
        if started := part.random.random() < 0.5:
            holdfast(*args, "--out", place)
        case = f"{args[0]}, {'a finished' if started else 'an empty'} folder that may not be written"
        more = ("--rounds", "14") if started and args[0] == "run" else ("--seeds", "2") if started else ()
        with_permissions(place, 0o555, 0o444)
        ended = holdfast(*again(place, args), *more, "--out", place, before=become_nobody)
        with_permissions(place, 0o755, 0o644)
        if not ended.refused or "ermission denied" not in ended.err:
            part.find(case, ended)


def with_permissions(place: Path, folder_mode: int, file_mode: int) -> None:
    for path in (place, *place.rglob("*")):
        path.chmod(folder_mode if path.is_dir() else file_mode)


def become_nobody() -> None:
    """Give up the rights of root, who may write everywhere."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
