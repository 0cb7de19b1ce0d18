"""Large tensors of a run lie on huge pages where the kernel gives them, unless the user chose otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")

PROGRAM = """
import resource
from hpcbench.cli.main import main
assert main(["--version"]) == 0
import torch
from hpcbench.train.run import run_training
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**environment: str) -> int:
    """Page faults of the first tensor of 64 MiB in a run."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, env=environ)
    return int(done.stdout.splitlines()[-1])


@pytest.mark.skipif(
    not ENABLED.exists() or "[madvise]" not in ENABLED.read_text(),
    reason="needs a kernel that gives huge pages on advice",
)
@pytest.mark.slow
def test_a_large_tensor_takes_few_pages() -> None:
    small_pages = (64 << 20) // os.sysconf("SC_PAGESIZE")
    assert page_faults() < small_pages / 2
    assert page_faults(THP_MEM_ALLOC_ENABLE="0") >= small_pages
