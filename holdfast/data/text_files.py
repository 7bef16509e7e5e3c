"""Texts of clients from files: a folder with a file per client, or a play whose speakers are the clients."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.core.errors import HoldfastError

Texts = dict[str, list[str]]  # the texts of every client, by its name

# A line with a name and a colon, as in "First Citizen:", opens a speech.
SPEAKER = re.compile(r"^[ \t]*([^\s:][^:\n]{0,60}):[ \t]*$", re.MULTILINE)


def read_texts(path: Path, speakers: bool) -> tuple[Texts, Texts]:
    """Read the texts of clients.

    Args:
        path: A folder ``path/*.txt`` or ``path/{train,test}/*.txt`` with a file per client, or one file.
        speakers: Whether a file is a play, whose speakers are the clients; the name of a file then means nothing.

    Returns:
        The training texts and the test texts by client, in the order of their names; no test texts without a folder
        ``test``.
    """
    if path.is_file():
        return _of_files([path], speakers), {}
    if not path.is_dir():
        raise HoldfastError(f"{path}: no such file or folder; expected a text file, or a folder of .txt files")
    train, test = path / "train", path / "test"
    if not train.is_dir():
        return _of_files(_text_files(path), speakers), {}
    return _of_files(_text_files(train), speakers), _of_files(_text_files(test), speakers) if test.is_dir() else {}


def read_text_file(path: Path) -> str:
    """Return the content of a text file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise HoldfastError(f"{path} is not a text in UTF-8; convert it") from error
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror or error}; check the file") from error


def speeches(text: str) -> Texts:
    """Return what every speaker of a play says, in the order of their names; what precedes the first is left out.

    >>> speeches("ANN:\\nGood day.\\n\\nBOB:\\nHo!\\n\\nANN:\\nFarewell.\\n")
    {'ANN': ['Good day.\\nFarewell.'], 'BOB': ['Ho!']}
    """
    _, *pieces = SPEAKER.split(text)
    found: dict[str, list[str]] = {}
    for name, speech in zip(pieces[::2], pieces[1::2], strict=True):
        found.setdefault(name.strip(), []).append(speech.strip())
    return {name: ["\n".join(filter(None, found[name]))] for name in sorted(found)}


def _text_files(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.glob("*.txt") if p.is_file() and not p.name.startswith("."))
    if not files:
        raise HoldfastError(f"{folder}: no .txt files in it; put a text file per client there")
    return files


def _of_files(files: list[Path], speakers: bool) -> Texts:
    if not speakers:
        return {file.stem: [read_text_file(file)] for file in files}
    found = speeches("\n\n".join(read_text_file(file) for file in files))
    if not found:
        raise HoldfastError(
            f"{files[0]}: no speakers in it; expected a line such as 'HAMLET:' before every speech, or leave out "
            "speakers"
        )
    return found
