"""How many bytes a run reads and leaves: its samples' files where the dataset lies, and its folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

MOST_FILES = 256
"""At most this many files are looked at, evenly spread over the names; for more, the size is an estimate."""


def files_bytes(files: Sequence[Path]) -> int:
    """Bytes of ``files``: their number times the mean size of up to ``MOST_FILES``. Raises ``OSError``."""
    if not files:
        return 0
    looked = [files[index * len(files) // MOST_FILES] for index in range(MOST_FILES)]
    looked = list(files) if len(files) <= MOST_FILES else looked
    return round(sum(path.stat().st_size for path in looked) / len(looked) * len(files))


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below ``folder``; those that vanish meanwhile do not count."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(where) / name).lstat().st_size
    return total
