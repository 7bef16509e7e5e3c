"""``python -m holdfast.bench``: the command where only torch and numpy are installed."""

from holdfast.bench.suites import main
from holdfast.core.plain_parser import run_plain

if __name__ == "__main__":
    run_plain(main, "python -m holdfast.bench")
