"""``holdfast bench``: how fast this machine is. See ``holdfast.bench.suites``."""

from holdfast.cli.help import forwarded

command = forwarded("bench", "holdfast.bench.suites")
