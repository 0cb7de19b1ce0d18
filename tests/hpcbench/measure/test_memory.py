"""Peak memory, against an allocation of known size; limits, against written control groups."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from hpcbench.measure.memory import memory_limit_bytes, peak_memory_bytes

CODE = """
from types import SimpleNamespace
from hpcbench.measure.memory import process_peak_bytes, reset_peak_memory
cpu = SimpleNamespace(type="cpu")  # as torch.device("cpu"), without importing torch
before = process_peak_bytes()
block = bytearray(200 * 2**20); block[::4096] = b"x" * len(block[::4096])
during = process_peak_bytes()
del block
after = process_peak_bytes()
reset_peak_memory(cpu)
print(during - before, after - during, process_peak_bytes() - before)
"""


def test_peak_grows_by_what_is_allocated_stays_and_can_be_reset():
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux with /proc")
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    grown, kept, reset = (int(part) / 2**20 for part in done.stdout.split())
    assert grown == pytest.approx(200, abs=20)
    assert kept == pytest.approx(0, abs=5)
    assert reset < 100


def test_peak_of_the_cpu_is_at_least_what_the_process_holds_now():
    assert peak_memory_bytes(torch.device("cpu")) >= 0.9 * psutil.Process().memory_info().rss


def groups(tmp_path: Path, line: str, **files: str) -> tuple[Path, Path]:
    root = tmp_path / "cgroup"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    process = tmp_path / "process"
    process.write_text(line)
    return root, process


def test_the_tightest_limit_of_a_group_and_its_parents_counts(tmp_path):
    files = {"job/memory.max": "3000000\n", "job/step/memory.max": "max\n", "job/step/task/memory.max": "4000000\n"}
    assert memory_limit_bytes(*groups(tmp_path, "0::/job/step/task\n", **files)) == 3_000_000


def test_the_limit_of_version_1(tmp_path):
    files = {"memory/slurm/memory.limit_in_bytes": "5000000\n"}
    assert memory_limit_bytes(*groups(tmp_path, "5:cpu:/x\n4:memory:/slurm\n", **files)) == 5_000_000


def test_no_limit(tmp_path):
    files = {"memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert memory_limit_bytes(*groups(tmp_path, "4:memory:/\n", **files)) is None
    assert memory_limit_bytes(*groups(tmp_path / "b", "0::/\n", **{"memory.max": "max\n"})) is None
