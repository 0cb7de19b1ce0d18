"""Nsight Compute: bytes that kernels moved between an NVIDIA GPU and its memory.

``ncu --csv --metrics dram__bytes_read.sum,dram__bytes_write.sum hpcbench ...`` prints a line for each kernel and metric
with the columns "Kernel Name", "Metric Name", "Metric Unit" and "Metric Value" (Nsight Compute CLI, "Print Details").
Lines of the program and of ncu itself (``==PROF==``) come before.
"""

from __future__ import annotations

import csv

from hpcbench.characterisation.model import MovedBytes

UNITS = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "Tbyte": 10**12}
METRICS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")


def header(text: str) -> int | None:
    """The number of the line with the names of the columns; ``None`` where there is none."""
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines) if all(f'"{name}"' in line for name in COLUMNS)), None)


def is_output(text: str) -> bool:
    """Whether a text has these columns."""
    return header(text) is not None


def read(text: str) -> list[MovedBytes]:
    """The sum over kernels. Raises ``ValueError`` where a metric is missing, or has an unknown unit."""
    first = header(text)
    sums: dict[str, float] = {}
    for row in csv.DictReader(text.splitlines()[first:]):
        direction = next((name for name, metric in METRICS.items() if row["Metric Name"] == metric), None)
        if direction is not None:
            if row["Metric Unit"] not in UNITS:
                raise ValueError(f"ncu gives bytes in '{row['Metric Unit']}', where {', '.join(UNITS)} are known")
            value = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
            sums[direction] = sums.get(direction, 0.0) + value
    missing = [METRICS[name] for name in METRICS if name not in sums]
    if missing:
        raise ValueError(f"ncu did not measure {missing[0]}; give it with --metrics")
    return [MovedBytes("ncu", "memory", sums["read"], sums["written"])]
