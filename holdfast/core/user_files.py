"""Python files of the user, and functions in them: ``net.py:build``, ``net.py:build(width=3)``.

A file is imported by itself: its folder is not added to the import path, so that its checksum covers what is executed.
Nothing is ever executed but files that a user has named.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import Call
from holdfast.core.params import one

MODULES = "holdfast_file_"  # how the modules of these files are called in this process
LIBRARY = str(Path(__file__).parents[1])
REFERENCE = re.compile(r"""\s*(?P<file>[^'"()]+\.py)\s*:\s*(?P<call>\S.*)""", re.DOTALL)
EXAMPLES = {"model": "build", "data set": "load", "metric": "score"}
NAME = re.compile(r"[\w-]+\.py")


class FileReference(NamedTuple):
    """A function in a file, with its arguments."""

    file: str  # the path, as given
    call: Call

    def __str__(self) -> str:
        return f"{self.file}:{self.call}"


def file_reference(text: str, kind: str) -> FileReference | None:
    """Read a text such as ``net.py:build(width=3)``.

    Args:
        text: The text.
        kind: What it should name, for the error: "model", "data set".

    Returns:
        The function, or None if the text names no file.

    >>> file_reference("nets/net.py:build(width=3)", "model")
    FileReference(file='nets/net.py', call=Call(name='build', args=(), kwargs={'width': 3}))
    >>> file_reference("mlp(width=3)", "model")
    """
    if text.strip().endswith(".py"):
        example = f"{text.strip()}:{EXAMPLES[kind]}"
        raise HoldfastError(f"the {kind} {text} is a file: name a function in it as well, such as {example}")
    match = REFERENCE.fullmatch(text)
    return FileReference(match["file"], one(match["call"], kind)) if match else None


def read_source(path: Path) -> bytes:
    """Return the content of a user's file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise HoldfastError(f"cannot read the file {path}: {error.strerror}; check the path") from error


def checksum(source: bytes) -> str:
    """Return the checksum of a file's content."""
    return hashlib.sha256(source).hexdigest()


def file_name(path: Path) -> str:
    """Return the name under which a run knows a file; odd names are refused."""
    if not NAME.fullmatch(path.name):
        raise HoldfastError(
            f"the file {path.name} needs a name of letters, digits, - and _ that ends in .py: rename it"
        )
    return path.name


def import_file(path: Path) -> ModuleType:
    """Execute a user's file as a module, once for each content that it has in the course of this process."""
    source = read_source(path)
    name = f"{MODULES}{path.stem}_{checksum(source)[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path.absolute())
    sys.modules[name] = module  # dataclasses and pickle look it up there
    try:
        exec(compile(source, module.__file__, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failure(f"cannot import {path}: it", error) from error
    return module


def function_in(reference: FileReference, kind: str) -> Callable[..., Any]:
    """Import the file of a reference; return the function or class that it names, with the arguments that it gives."""
    module = import_file(Path(reference.file).expanduser())
    found = getattr(module, reference.call.name, None)
    if found is None:
        own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise unknown("function", reference.call.name, own, f"in {reference.file}")
    if not callable(found):
        raise HoldfastError(
            f"the {kind} {reference} is of type {type(found).__name__}: name a function or a class that returns it"
        )
    return _with_arguments(found, reference, kind)


def _with_arguments(function: Callable[..., Any], reference: FileReference, kind: str) -> Callable[..., Any]:
    """Return a function with the arguments that a reference gives it."""
    call = reference.call
    if not call.args and not call.kwargs:
        return function
    if call.args:
        raise HoldfastError(f"the {kind} {reference} has arguments without names: write name=value")
    takes = list(inspect.signature(function).parameters)
    try:
        inspect.signature(function).bind_partial(**call.kwargs)
    except TypeError as error:
        expected = f"it takes {', '.join(takes)}" if takes else "it takes none"
        raise HoldfastError(f"the {kind} {reference} {error}: {expected}") from error
    return partial(function, **call.kwargs)


def failure(what: str, error: BaseException) -> HoldfastError:
    """Return the error for user's code that raised one: its kind, its message and the line, in one line.

    Raise it from ``error``, so that Python shows where that came from. ``what`` is the subject of the sentence.
    """
    text = " ".join(str(error).split())
    return HoldfastError(f"{what} raised {type(error).__name__}{f': {text}' if text else ''}{raised_at(error)}")


def raised_at(error: BaseException) -> str:
    """Return the innermost line of user's code that an error passed through, in parentheses; empty if there is none."""
    if isinstance(error, SyntaxError):
        return ""  # its message names the line
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith((LIBRARY, "<"))]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
