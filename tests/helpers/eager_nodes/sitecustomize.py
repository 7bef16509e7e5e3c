"""Makes Flower's nodes ask for messages twice a second, rather than every 3 s, in processes that tests start."""

import sys
import time

if "--node-config" in sys.orig_argv:
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(0.5 if seconds == 3 else seconds)
