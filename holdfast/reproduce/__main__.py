"""``python -m holdfast.reproduce``: the command where only torch, numpy and safetensors are installed."""

from holdfast.core.plain_parser import run_plain
from holdfast.reproduce.command import main

if __name__ == "__main__":
    run_plain(main, "python -m holdfast.reproduce")
