"""Nsight Compute: bytes that kernels moved between an NVIDIA GPU and its memory.

``ncu --csv --metrics dram__bytes_read.sum,dram__bytes_write.sum hpcbench ...`` prints a line for each kernel and metric
with the columns "Kernel Name", "Metric Name", "Metric Unit" and "Metric Value" (Nsight Compute CLI, "Print Details").
Lines of the program and of ncu itself (``==PROF==``) come before; those of ncu may also come between.
"""

from __future__ import annotations

import csv

from hpcbench.characterisation.counters.output_values import number_of, whole_rows
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
    """The sum over kernels.

    Raises ``ValueError`` or ``csv.Error`` where a metric is missing or has an unknown unit, and where rows were cut.
    """
    lines = [line for line in text.splitlines()[header(text) :] if not line.startswith("==")]
    values: dict[str, list[float]] = {direction: [] for direction in METRICS}
    for row in whole_rows(csv.DictReader(lines, strict=True), "ncu"):
        direction = next((name for name, metric in METRICS.items() if row["Metric Name"] == metric), None)
        if direction is not None:
            if row["Metric Unit"] not in UNITS:
                raise ValueError(f"ncu gives bytes in '{row['Metric Unit']}', where {', '.join(UNITS)} are known")
            value = number_of(row["Metric Value"].replace(",", ""), f"ncu's {METRICS[direction]}")
            values[direction].append(value * UNITS[row["Metric Unit"]])
    missing = [METRICS[name] for name in METRICS if not values[name]]
    if missing:
        raise ValueError(f"ncu did not measure {missing[0]}; give it with --metrics")
    if len(values["read"]) != len(values["written"]):
        counts = " and ".join(f"{len(values[name])} of {metric}" for name, metric in METRICS.items())
        raise ValueError(f"ncu's output has {counts}, where each kernel has both, so it was cut; give all of it")
    return [MovedBytes("ncu", "memory", sum(values["read"]), sum(values["written"]))]
