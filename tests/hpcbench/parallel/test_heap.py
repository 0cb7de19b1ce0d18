"""Freed memory stays in the process: page faults of blocks that are freed and asked for again, in real processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.data.workers import worker_pool
from hpcbench.parallel.heap import keep_freed_memory

ROUNDS = 8
ROUND_PAGES = (3 * 30 << 20) // os.sysconf("SC_PAGE_SIZE")
FAULTS = (
    f"(lambda faults: (-faults(), [[b'x' * (30 << 20) for _ in range(3)] and None for _ in range({ROUNDS})], faults()))"
    "(lambda: __import__('resource').getrusage(0).ru_minflt)"
)
"""An expression: page faults before and after eight rounds of three blocks of 30 MiB, which each round frees."""

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = [
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library has no mallopt"),
    pytest.mark.skipif(HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text(), reason="pages are huge here"),
]


def faults_of_a_process(before: str) -> float:
    """Page faults of eight rounds, in rounds, in a process that runs ``before`` first."""
    code = f"{before}\nbefore, _, after = {FAULTS}\nprint(before + after)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(found.stdout) / ROUND_PAGES


KEEP = "from hpcbench.parallel.heap import keep_freed_memory; assert keep_freed_memory()"


def test_freed_blocks_are_used_again() -> None:
    assert faults_of_a_process("") > ROUNDS / 2
    assert faults_of_a_process(KEEP) < 1.5


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_a_choice_of_the_environment_holds(name: str) -> None:
    assert not keep_freed_memory({name: "131072"})


def test_workers_keep_freed_memory() -> None:
    with worker_pool("apps.cosmoflow", 1) as pool:
        before, _, after = pool.submit(eval, FAULTS).result()
    assert (before + after) / ROUND_PAGES < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ["data", "simulate", "cosmoflow", "--preset", "smoke", "--processes", "1", "--out", "data"],
    ["train", "cosmoflow", "--preset", "smoke", "--data.root", "data", "--train.max_steps", "2", "--run-dir", "run"],
], ids=["simulate", "train"])  # fmt: skip
def test_commands_keep_freed_memory(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the command's own process, once it is done."""
    monkeypatch.chdir(tmp_path)
    if command[0] == "train":
        simulate = [sys.executable, "-m", "hpcbench", "data", "simulate", "cosmoflow", "--preset", "smoke", "--out"]
        subprocess.run([*simulate, "data"], capture_output=True, check=True)
    code = f"from hpcbench.cli.main import main\nassert main({command}) in (0, 3)\nbefore, _, after = {FAULTS}\n"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}print(before + after)"], capture_output=True, text=True, check=True
    )
    assert int(found.stdout.splitlines()[-1]) / ROUND_PAGES < 1.5
