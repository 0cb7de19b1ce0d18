"""``perf stat -x,``: bytes that the memory controllers of a processor moved.

A line holds value, unit, event, and more (perf-stat(1), "CSV FORMAT"). Intel's controllers count reads and writes in
MiB as ``uncore_imc/cas_count_read/`` and ``.../cas_count_write/``, for all processes of the node:
``perf stat -a -x, -e uncore_imc/cas_count_read/,uncore_imc/cas_count_write/ hpcbench ...``.
"""

from __future__ import annotations

from hpcbench.characterisation.counters.output_values import number_of
from hpcbench.characterisation.model import MovedBytes

UNITS = {"MiB": 2**20, "KiB": 2**10, "GiB": 2**30, "Bytes": 1, "bytes": 1}
EVENTS = {"read": "cas_count_read", "written": "cas_count_write"}


def is_output(text: str) -> bool:
    """Whether a text has lines of this form with one of the events."""
    return any(event in line.partition(",")[2] for line in text.splitlines() for event in EVENTS.values())


def read(text: str) -> list[MovedBytes]:
    """The sum over controllers. Raises ``ValueError`` for an event that was not counted."""
    sums = dict.fromkeys(EVENTS, 0.0)
    seen = set()
    for line in text.splitlines():
        fields = line.split(",")
        direction = next((name for name, event in EVENTS.items() if event in ",".join(fields[2:])), None)
        if len(fields) < 4 or direction is None:
            continue
        if fields[0].startswith("<"):
            raise ValueError(f"perf says {fields[0]} of {fields[2]}; it needs -a, and the right to count (root)")
        if fields[1] not in UNITS:
            raise ValueError(f"perf gives {fields[2]} in '{fields[1]}', where {', '.join(UNITS)} are known")
        sums[direction] += number_of(fields[0], f"perf's {fields[2]}") * UNITS[fields[1]]
        seen.add(direction)
    missing = [EVENTS[name] for name in EVENTS if name not in seen]
    if missing:
        raise ValueError(f"perf did not count {missing[0]}; give it with -e, too")
    return [MovedBytes("perf", "memory", sums["read"], sums["written"])]
