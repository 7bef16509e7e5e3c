"""LEAF's JSON layout: ``train/*.json`` and ``test/*.json``, each with ``users``, ``num_samples`` and ``user_data``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError

AGAIN = "make it again with LEAF's preprocess.sh"


class UserSamples(NamedTuple):
    """The samples of one user, as they are in the file; rows of numbers are already an array."""

    x: Any
    y: list[Any]


Users = dict[str, UserSamples]


def leaf_files(folder: Path, part: str) -> list[Path]:
    """Return the JSON files of ``train`` or ``test``, sorted by name."""
    if not folder.is_dir():
        raise HoldfastError(f"{folder}: no such folder; expected LEAF's train/*.json and test/*.json in it")
    files = sorted((folder / part).glob("*.json"))
    if not files:
        raise HoldfastError(f"{folder / part}: no JSON files in it; make them with LEAF's preprocess.sh -t sample")
    return files


def read_users(folder: Path, part: str) -> Users:
    """Read the samples of every user from all files of ``train`` or ``test``, in the order of their names."""
    found: Users = {}
    for file in leaf_files(folder, part):
        own = _read_file(file, part == "test")
        twice = [user for user in own if user in found]
        if twice:
            raise HoldfastError(f"{file}: user {twice[0]} is in another file of {part} as well; keep one of them")
        found |= own
    return {user: found[user] for user in sorted(found)}


def check_same_users(folder: Path, train: Users, test: Users) -> None:
    """Raise an error if a user has test samples, but no training samples."""
    others = [user for user in test if user not in train]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise HoldfastError(
            f"{folder}: user {others[0]}{more} in test, but not in train; divide samples, not users, with LEAF's "
            "preprocess.sh -t sample"
        )


def _read_file(file: Path, test: bool) -> Users:
    content = _parsed(file)
    keys = ("users", "num_samples", "user_data")
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise HoldfastError(f"{file} has no {missing[0]}; expected LEAF's users, num_samples and user_data: {AGAIN}")
    users, counts, data = (content[key] for key in keys)
    if not (isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)):
        raise HoldfastError(f"{file}: users and num_samples must be lists and user_data an object; {AGAIN}")
    if len(users) != len(counts):
        raise HoldfastError(f"{file} has {len(users)} users and {len(counts)} num_samples, expected as many; {AGAIN}")
    return {str(user): _samples(file, user, count, data, test) for user, count in zip(users, counts, strict=True)}


def _samples(file: Path, user: Any, count: Any, data: dict[str, Any], test: bool) -> UserSamples:
    own = data.pop(str(user), None)  # taken out, so that the memory of its numbers is given back
    if not isinstance(own, dict) or not all(isinstance(own.get(key), list) for key in ("x", "y")):
        raise HoldfastError(f"{file}: user {user} has no lists x and y in user_data; {AGAIN}")
    x, y = own["x"], own["y"]
    if len(x) != len(y):
        raise HoldfastError(f"{file}: user {user} has {len(x)} x and {len(y)} y, expected as many; {AGAIN}")
    if count != len(y) and not (test and _counts_left_out_windows(x, count)):
        raise HoldfastError(f"{file}: user {user} has {len(y)} samples, but num_samples says {count}; {AGAIN}")
    return UserSamples(_as_array(file, user, x), y)


def _counts_left_out_windows(x: list[Any], count: Any) -> bool:
    """Tell whether a test file counts windows that overlap with training ones, which LEAF leaves out after counting."""
    return bool(x) and isinstance(x[0], str) and count == len(x) + len(x[0]) - 1


def _as_array(file: Path, user: Any, x: list[Any]) -> Any:
    """Return rows of numbers as an array, which takes far less memory than lists; anything else as it is."""
    if not x or not isinstance(x[0], list) or not x[0] or not isinstance(x[0][0], (int, float)):
        return x
    try:
        return np.asarray(x, np.float32)
    except (ValueError, TypeError) as error:
        raise HoldfastError(f"{file}: the x of user {user} are not rows of as many numbers; {AGAIN}") from error


def _parsed(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise HoldfastError(f"cannot read {file}: {error.strerror or error}; check the file") from error
    except json.JSONDecodeError as error:
        raise HoldfastError(
            f"{file} is not valid JSON at line {error.lineno}, column {error.colno}; {AGAIN}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise HoldfastError(f"{file} is not valid JSON; {AGAIN}") from error
