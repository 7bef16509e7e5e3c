"""``holdfast reproduce PAPER``: the papers' tables, run again. See ``holdfast.reproduce.command``."""

from holdfast.cli.help import forwarded

command = forwarded("reproduce", "holdfast.reproduce.command")
