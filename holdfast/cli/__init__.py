"""The command line: one file per command, and what a user sees while it runs.

May import every other room. Heavy imports happen inside functions, so that ``holdfast --help`` is quick.
"""

from holdfast.cli.main import main

__all__ = ["main"]
