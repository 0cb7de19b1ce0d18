"""The C library's heap, told to keep what a training step frees for the next step.

By default, glibc gives the free end of the heap back to the system. A step on a CPU frees all of its activations, so
the next one meets thousands of page faults.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt`` (glibc, ``malloc.h``)."""
MAPPED_BYTES = 32 * 2**20
"""Blocks from this size on get pages of their own, and give them back: the largest bound that every glibc accepts."""
TRIM_BYTES = 2**31 - 1
"""Free memory at the end of the heap goes back beyond this: the largest value that ``mallopt`` takes, an ``int``."""


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Make glibc keep freed memory in this process, and return whether it does.

    Changes nothing with another C library, or where the environment sets these parameters itself
    (``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_`` or ``GLIBC_TUNABLES``).
    """
    chosen = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"} & environment.keys()
    if platform.libc_ver()[0] != "glibc" or chosen:
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))
