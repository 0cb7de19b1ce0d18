"""Finds the reader for the output of a tool that counts bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hpcbench.characterisation.counters import darshan, ncu, perf, rocprof
from hpcbench.characterisation.model import MovedBytes
from staging.errors import InputError
from staging.formats.regular import read_text

READERS: tuple[tuple[Callable[[str], bool], Callable[[str], list[MovedBytes]]], ...] = (
    (darshan.is_output, darshan.read), (ncu.is_output, ncu.read), (rocprof.is_output, rocprof.read),
    (perf.is_output, perf.read),
)  # fmt: skip


def read_moved(path: Path, steps: int | None = None) -> list[MovedBytes]:
    """The bytes in the output of a tool; ``steps`` is the number of optimizer steps that it covers.

    Raises ``InputError`` for a file that cannot be read, is not the output of a known tool, or lacks the counters.
    """
    if not path.is_file():
        raise InputError(f"--counters {path} is no file")
    text = read_text(path)
    for is_output, read in READERS:
        if is_output(text):
            try:
                return [replace(moved, steps=steps) for moved in read(text)]
            except (ValueError, KeyError, IndexError) as error:
                raise InputError(f"--counters {path}: {error}") from None
    raise InputError(
        f"--counters {path} is no output of perf stat -x, of ncu --csv, rocprof or darshan-parser; give one of these"
    )
