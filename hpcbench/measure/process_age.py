"""How long this process has been running. Imports nothing but psutil, for systems other than Linux."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/self/stat")
START_TIME = 19
"""Place of ``starttime`` in ``STAT`` behind the name of the program: clock ticks from boot to the start."""


def process_age_s() -> float:
    """Seconds since this process was started, to a clock tick, which is 10 ms.

    Linux counts the start from its boot, and so does the clock that is read here. ``psutil`` adds it to the time of the
    boot, which the kernel tells in whole seconds, so that its answer is up to a second off.
    """
    try:
        ticks = int(STAT.read_text(encoding="utf-8").rpartition(")")[2].split()[START_TIME])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        import psutil

        return time.time() - psutil.Process().create_time()
