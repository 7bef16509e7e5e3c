"""``python -m holdfast.reproduce``: the command where only torch and numpy are installed."""

import sys

from holdfast.core.errors import HoldfastError
from holdfast.reproduce.command import main

if __name__ == "__main__":
    try:
        status = main(sys.argv[1:], "python -m holdfast.reproduce")
    except HoldfastError as error:
        print(f"holdfast: {' '.join(str(error).split())}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
