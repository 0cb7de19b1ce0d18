"""Finds the reader for the output of a tool that counts bytes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hpcbench.characterisation.counters import darshan, ncu, perf, rocprof
from hpcbench.characterisation.model import MovedBytes
from hpcbench.config.bounds import check_bounds
from staging.errors import InputError
from staging.formats.regular import read_text

READERS: tuple[tuple[Callable[[str], bool], Callable[[str], list[MovedBytes]]], ...] = (
    (darshan.is_output, darshan.read), (ncu.is_output, ncu.read), (rocprof.is_output, rocprof.read),
    (perf.is_output, perf.read),
)  # fmt: skip


TOOLS = "perf stat -x, of ncu --csv, rocprof or darshan-parser"


def read_moved(path: Path, steps: int | None = None) -> list[MovedBytes]:
    """The bytes in the output of a tool; ``steps`` is the number of optimizer steps that it covers.

    Raises ``InputError`` for a file that cannot be read, is not the output of a known tool, was cut, lacks the
    counters, or holds numbers that no counter gives.
    """
    where = f"--counters {path}"
    if not path.is_file():
        raise InputError(f"{where} is no file")
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"{where} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{where} is no text; give the output of {TOOLS}") from None
    read = next((read for is_output, read in READERS if is_output(text)), None)
    if read is None:
        raise InputError(f"{where} is no output of {TOOLS}; give one of these")
    if not text.endswith("\n"):
        raise InputError(f"{where} ends within a line, so the output was cut; give all of it")
    try:
        found = [replace(moved, steps=steps) for moved in read(text)]
    except csv.Error as error:
        raise InputError(f"{where} is damaged: it is no table in CSV ({error}); give the output as it was") from None
    except (ValueError, OverflowError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{where}: {error}") from None
    for moved in found:
        check_bounds(moved, f"{where}: {moved.tool}'s ")
    return found
