"""Stagings as processes of their own, and what they leave: contents, temporaries, and what the journal says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from staging.atomic import is_temporary

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
ENVIRON = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAMS}", "COLUMNS": "100"}
PLAIN = [sys.executable, "-m", "staging"]
PACED = [sys.executable, str(PROGRAMS / "paced.py")]
OBEYING = [sys.executable, "-c",
           "import ctypes, os, sys; [ctypes.CDLL(None).prctl(24, number, 0, 0, 0) for number in (1, 2)]; "
           "os.execv(sys.argv[1], sys.argv[1:])"]  # fmt: skip
"""In front of a command: permissions hold for it, also where root starts it. prctl(PR_CAPBSET_DROP) takes away
CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7)); for others it does nothing."""
MEMORY = Path("/dev/shm")
LIMIT_S = 10.0
"""A staging that must end is gone after so long."""


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """A new folder in memory, removed afterwards; ``otherwise`` where the system has no such place."""
    if not os.access(MEMORY, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


def make_tree(root: Path, count: int, seed: int = 0, first: int = 0, largest: int = 20_000) -> None:
    """Add ``count`` files of random sizes and bytes in two folders, numbered from ``first`` on."""
    random = np.random.default_rng([seed, first])
    for number in range(first, first + count):
        path = root / ("train" if number % 3 else "validation") / f"{number:05d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.bytes(int(random.integers(0, largest))))


def contents(root: Path) -> dict[str, bytes]:
    """All files below ``root`` but the bookkeeping."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and ".staging" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files in a folder, the books with them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unfinished(root: Path) -> list[str]:
    """Temporary files below ``root``."""
    return [str(path) for path in root.rglob("*") if is_temporary(path.name)]


def start(command: Sequence[object], **environ: object) -> subprocess.Popen[str]:
    """Start a command; its outputs are kept."""
    return subprocess.Popen(
        [str(word) for word in command], env=ENVIRON | {key: str(value) for key, value in environ.items()},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], timeout_s: float = 60.0) -> tuple[int, str, str]:
    """Exit code, output and error output; a process that stays longer is killed, and the test fails."""
    try:
        output, error = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output, error


def run(command: Sequence[object], **environ: object) -> tuple[int, str, str]:
    """Run a command to its end; exit code, output and error output."""
    return ended(start(command, **environ))


def said(error: str) -> list[str]:
    """What staging said of its failure."""
    return [line for line in error.splitlines() if line.startswith(("staging: error:", "staging: aborted:"))]


def wait_until(happened: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """Wait for something to be true; returns it."""
    deadline = time.monotonic() + timeout_s
    while not (found := happened()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


def journal(destination: Path) -> list[dict[str, Any]]:
    """The lines of a destination's journal; one that is being written is left out."""
    path = destination / ".staging" / "journal.jsonl"
    found = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def outcomes(destination: Path) -> dict[int, str]:
    """How each process that began ended, by its id; empty where it did not say."""
    lines = journal(destination)
    found = {line["pid"]: "" for line in lines if line.get("event") == "start"}
    return found | {line["pid"]: line["outcome"] for line in lines if line.get("event") == "end"}


def named(destination: Path) -> dict[str, dict[str, Any]]:
    """The files that the manifest names; a torn line is left out."""
    path = destination / ".staging" / "manifest.jsonl"
    found = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if "name" in item:
            found[item["name"]] = item
    return found


def landed(destination: Path) -> list[str]:
    """Names of complete files below ``destination``."""
    return [name for name in contents(destination) if not is_temporary(Path(name).name)]
