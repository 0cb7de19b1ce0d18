"""Stagings that are caught midway, and what may be there afterwards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from tests.staging.processes import PACED, contents, named, start, unfinished, wait_until

PIECE = ["--piece-bytes", 60_000]
LAST = "validation/00297.bin"
"""The last file of ``source`` by name."""


def midway(source: Path, destination: Path, *words: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A staging of which some files are named already and most have not landed."""
    process = start([*before, *PACED, source, destination, *PIECE, "--threads", 1, *words], PACE_S=0.03)
    wait_until(lambda: named(destination))
    return process


def exchange(mpiexec: str, source: Path, destination: Path, *words: object) -> list[object]:
    """A paced exchange between two pretended nodes."""
    paced = [*PACED, source, destination / "{node}", *PIECE, "--simulated-nodes", 2, "--path", "exchange"]
    return [mpiexec, "-n", 2, *paced, *words]


def expect_sound(destination: Path, source: Path) -> None:
    """Everything that the manifest names is whole."""
    for name, item in named(destination).items():
        data = (destination / name).read_bytes()
        assert len(data) == item["size"]
        assert crc32c(data) == item["crc32c"]
        assert data == (source / name).read_bytes()


def expect_copy(destination: Path, source: Path) -> None:
    """The destination is the source, and nothing is left behind."""
    assert contents(destination) == contents(source)
    assert set(named(destination)) == set(contents(source))
    assert unfinished(destination) == []


def report(path: Path) -> dict[str, int]:
    """The sums of a report."""
    totals: dict[str, int] = json.loads(path.read_text())["totals"]
    return totals
