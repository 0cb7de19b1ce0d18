"""Asks for huge pages for large tensors on the CPU, so that the system has fewer pages to find and to clear."""

from __future__ import annotations

from collections.abc import MutableMapping

SWITCH = "THP_MEM_ALLOC_ENABLE"
"""Environment variable that torch reads at the first tensor of a process (documented in its CPU tuning guide)."""


def use_huge_pages(environment: MutableMapping[str, str]) -> None:
    """Let torch advise the kernel (madvise, MADV_HUGEPAGE) for tensors of at least 2 MiB; the user's own choice stays.

    glibc returns a freed tensor's memory and requests it again in every step: at 4 KiB a page that was a quarter of a
    CosmoFlow step. Call it before torch is imported, since libraries make tensors as they load. It has no effect if the
    kernel never or always uses huge pages, or is not Linux.
    """
    environment.setdefault(SWITCH, "1")
