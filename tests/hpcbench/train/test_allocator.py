"""The allocator keeps freed memory where glibc lets it, and leaves the user's own choice alone."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from hpcbench.train.allocator import keep_freed_memory

PROGRAM = """
import os, resource, sys
import torch
from hpcbench.train.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory({})
torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(kind: str) -> int:
    """Page faults of a second tensor of 64 MiB, the first one being freed, in a process of its own."""
    environment = {"PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], check=True, capture_output=True, text=True, env=environment
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's allocator")
def test_a_freed_tensors_pages_are_used_again_without_a_fault() -> None:
    # 32 huge pages or 16384 small ones, whichever the system gives out
    assert page_faults("default") >= 32
    assert page_faults("keep") < 16


@pytest.mark.parametrize("name", ["MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX"])
def test_settings_in_the_environment_stay(name: str) -> None:
    assert not keep_freed_memory({name: "1"})
    assert not keep_freed_memory({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"})


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory({})
