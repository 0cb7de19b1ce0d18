"""How long this process has been running. Imports nothing but psutil, for systems other than Linux."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/self/stat")
START_TIME = 19
"""Index of ``starttime`` in ``STAT`` after the name of the program: clock ticks from boot to the start."""


def process_age_s() -> float:
    """Return the seconds since this process started, to within a clock tick, which is 10 ms.

    Linux counts the start time from boot, as does the clock that is read here. ``psutil`` adds it to the time of boot,
    which the kernel gives in whole seconds, so its answer is up to a second off.
    """
    try:
        ticks = int(STAT.read_text(encoding="utf-8").rpartition(")")[2].split()[START_TIME])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        import psutil

        return time.time() - psutil.Process().create_time()
