"""Keeps the memory of freed tensors within the process, so that no step has to fetch it from the system again."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of ``mallopt``, as in glibc's ``malloc.h``."""


def keep_freed_memory(environment: Mapping[str, str]) -> bool:
    """Let glibc take large blocks from its heap and never give the heap's end back; whether it does so from now on.

    By itself glibc maps every block above 32 MiB afresh and unmaps it when freed, so that in each step the system
    clears every page of every large activation again (mallopt(3), M_MMAP_THRESHOLD); benchmarks/README.md says what
    that costs. For training on the CPU only: accelerators keep their freed memory anyway. Concerns this process alone.
    Does nothing on other systems, or where the environment chooses glibc's settings itself.
    """
    chosen = any(name.startswith("MALLOC_") for name in environment)
    chosen = chosen or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")
    if chosen or platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(M_MMAP_MAX, 0)) and bool(library.mallopt(M_TRIM_THRESHOLD, -1))
