"""The command line. Each command is a file of this folder; heavy imports happen when a command runs."""

from holdfast.cli.main import main

__all__ = ["main"]
