"""Staged files that are damaged on purpose."""

from __future__ import annotations

import os
from pathlib import Path

from tests.staging.processes import contents


def flip(path: Path) -> None:
    """Flip one bit of a file; size and times stay."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def spoil(folder: Path) -> list[str]:
    """Damage three files of ``folder`` in three ways; their names, sorted."""
    largest = sorted(contents(folder), key=lambda name: (folder / name).stat().st_size)[-3:]
    flipped, gone, longer = largest
    flip(folder / flipped)
    (folder / gone).unlink()
    with (folder / longer).open("ab") as file:
        file.write(b"more")
    return sorted(largest)


def read_of(folder: Path, names: list[str]) -> int:
    """The bytes that some files of a source have."""
    return sum((folder / name).stat().st_size for name in names)
