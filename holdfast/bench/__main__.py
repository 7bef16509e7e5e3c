"""``python -m holdfast.bench``."""

import sys

from holdfast.bench.suites import main
from holdfast.core.errors import HoldfastError

if __name__ == "__main__":
    try:
        main()
    except HoldfastError as error:
        sys.exit(f"holdfast: {error}")
