"""``darshan-parser LOG``: bytes and operations of files, by the mount point that they lie on.

After a header of lines with ``#``, each line has module, rank, record, counter, value, file, mount point and type of
the file system, separated by tabs (darshan-util documentation, "darshan-parser"). The module POSIX is read, since
others do their work through it.
"""

from __future__ import annotations

from hpcbench.characterisation.counters.output_values import number_of
from hpcbench.characterisation.model import MovedBytes

HEAD = "# darshan log version:"
FIELDS = 8


def is_output(text: str) -> bool:
    """Whether a text begins like the parser's output."""
    return any(line.startswith(HEAD) for line in text.splitlines()[:5])


def read(text: str) -> list[MovedBytes]:
    """The sums of each mount point. Raises ``ValueError`` where the log has no POSIX records."""
    sums: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == FIELDS and fields[0] == "POSIX":
            counter, value, mount = fields[3], fields[4], fields[6]
            if counter in ("POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN", "POSIX_READS", "POSIX_WRITES"):
                mount_sums = sums.setdefault(mount, {})
                counted = max(0, round(number_of(value, f"darshan's {counter}")))
                mount_sums[counter] = mount_sums.get(counter, 0) + counted
    if not sums:
        raise ValueError("darshan's log has no records of the module POSIX; was the program instrumented?")
    return [
        MovedBytes("darshan", mount, mount_sums.get("POSIX_BYTES_READ", 0), mount_sums.get("POSIX_BYTES_WRITTEN", 0),
                   operations=mount_sums.get("POSIX_READS", 0) + mount_sums.get("POSIX_WRITES", 0))
        for mount, mount_sums in sums.items()
    ]  # fmt: skip
