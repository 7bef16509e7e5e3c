"""Kill commands at random moments and resume them: the outcome is that of a command that nobody killed."""

from __future__ import annotations

import time
from pathlib import Path

from campaign.cases import SMALL, STATEFUL, Part, check, undisturbed
from campaign.process import Ended, start


def kill_runs(part: Part) -> None:
    for place in part.rounds():
        method = part.random.choice(STATEFUL)
        store, every = part.random.choice(("memory", "disk")), part.random.choice("123")
        args = ("run", method, *SMALL, "--rounds", "12")
        whole, seconds = undisturbed(part.folder / f"whole-{method}", *args)
        case = f"{method}, states {store}, a checkpoint every {every} rounds"
        ended = kill_and_resume(part, place, seconds, (*args, "--states", store, "--checkpoint-every", every))
        check(part, case, ended, place, whole)


def kill_comparisons(part: Part) -> None:
    for place in part.rounds():
        method = part.random.choice(STATEFUL)
        args = ("compare", "fedavg", method, *SMALL, "--rounds", "4", "--seeds", "2")
        whole, seconds = undisturbed(part.folder / f"whole-{method}", *args)
        check(part, f"fedavg and {method}", kill_and_resume(part, place, seconds, args), place, whole)


def kill_reproductions(part: Part) -> None:
    args = ("reproduce", "fedagg", "--table", "III", "--rows", "1", "--columns", "1-3", "--scale", "smoke")
    args = (*args, "--set", "model=linear", "--device", "cpu", "--quiet")
    for place in part.rounds():
        whole, seconds = undisturbed(part.folder / "whole", *args)
        check(part, "fedagg, table III", kill_and_resume(part, place, seconds, args), place, whole)


def kill_and_resume(part: Part, place: Path, seconds: float, args: tuple[str, ...]) -> Ended:
    """Kill a command up to three times, each time at a random moment, then let it finish."""
    for _ in range(part.random.randint(1, 3)):
        child = start(*again(place, args), "--out", place)
        time.sleep(part.random.uniform(0.0, seconds))
        child.kill()
        ended = child.wait()
        if ended.code != -9:
            return ended
        part.count("kills")
    return start(*again(place, args), "--out", place).wait()


def again(place: Path, args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that resumes: a run that has its config needs ``--resume``, the others the same command."""
    resumes = args[0] == "run" and (place / "config.toml").exists()
    return ("run", "--resume", "--quiet") if resumes else args
