"""Asks for huge pages behind large tensors on the CPU, so that the system has fewer pages to find and to clear."""

from __future__ import annotations

from collections.abc import MutableMapping

SWITCH = "THP_MEM_ALLOC_ENABLE"
"""Environment variable that torch reads at the first tensor of a process (documented in its CPU tuning guide)."""


def use_huge_pages(environment: MutableMapping[str, str]) -> None:
    """Let torch advise the kernel (madvise, MADV_HUGEPAGE) for tensors from 2 MiB on; the user's own choice stays.

    glibc gives a freed tensor's memory back and fetches it anew in every step: at 4 KiB a page that was a quarter of a
    CosmoFlow step. To be called before torch is imported, since libraries make tensors as they load; without effect
    where the kernel gives huge pages never or always, or is not Linux.
    """
    environment.setdefault(SWITCH, "1")
