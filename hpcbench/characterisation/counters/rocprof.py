"""rocprof: bytes that kernels moved between an AMD GPU and its memory.

``rocprof -i FILE hpcbench ...``, where FILE holds the line ``pmc: FETCH_SIZE WRITE_SIZE``, writes a CSV with a line
for each kernel and these columns, in kilobytes of 1024 (ROCm, derived counters).
"""

from __future__ import annotations

import csv

from hpcbench.characterisation.counters.output_values import number_of, whole_rows
from hpcbench.characterisation.model import MovedBytes

COLUMNS = ("FETCH_SIZE", "WRITE_SIZE")
KILOBYTE = 1024


def is_output(text: str) -> bool:
    """Whether the first line names the kernels and one of these columns."""
    first = text.partition("\n")[0]
    return "KernelName" in first and any(name in first for name in COLUMNS)


def read(text: str) -> list[MovedBytes]:
    """The sum over kernels. Raises ``ValueError`` or ``csv.Error`` where a column is missing, and for cut rows."""
    rows = csv.DictReader(text.splitlines(), strict=True)
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"rocprof did not count {missing[0]}; its input needs 'pmc: {' '.join(COLUMNS)}'")
    sums = [0.0, 0.0]
    for row in whole_rows(rows, "rocprof"):
        for number, name in enumerate(COLUMNS):
            sums[number] += number_of(row[name], f"rocprof's {name}") * KILOBYTE
    return [MovedBytes("rocprof", "memory", sums[0], sums[1])]
