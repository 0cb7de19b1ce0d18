"""What the parts of a machine can do for a staging: the rates that a probe measured, kept beside the staged data."""

from __future__ import annotations

import json
import math
import os
import secrets
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from staging.atomic import TEMPORARY_SUFFIX
from staging.bookkeeping import BOOKKEEPING
from staging.errors import DataError
from staging.one_line import one_line
from staging.storage.destination_folder import DestinationFolder

SCHEMA = 1
NAME = "probe.json"
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
WORDS = {
    "read": "source read",
    "stat": "source stat",
    "open": "source open",
    "write": "local write",
    "write_flushed": "local write, flushed",
    "create": "local small files",
    "exchange": "exchange",
    "crc32c": "CRC32C",
    "gunzip": "gunzip, bytes out",
}
"""The parts, as reports call them."""
DEEPEST = 8
"""The most levels of nested lists and objects in the facts of machines; these have two."""
COUNTED = ("stat", "open", "create")
"""Parts whose rates are files per second; those of the others are bytes per second."""


@dataclass(frozen=True)
class Rate:
    """How fast one part was with one setting, all ranks at once."""

    part: str
    threads: int
    """Threads of each rank."""
    block_bytes: int
    """Bytes read, written or sent at a time; the size of a small file; 0 if it has no meaning."""
    per_node: tuple[float, ...]
    """Bytes or files per second of each node, in the order of the nodes."""
    note: str = ""
    """Where reads came from (``cold``, ``warm``, ``mixed``, ``unknown``); whether files were looked at before; how
    large files were written (``buffered``, ``early``, ``uncached``)."""

    @property
    def total(self) -> float:
        """The rate of all nodes together."""
        return sum(self.per_node)


@dataclass(frozen=True)
class Ceilings:
    """Everything that one probe measured; the same on all ranks."""

    source: str
    destination: str
    """The template that all nodes share."""
    nodes: tuple[str, ...]
    ranks: int
    seconds: float
    rates: tuple[Rate, ...]
    machine: list[dict[str, Any]] = field(default_factory=list)
    """Facts about the nodes, one object for each kind of node."""

    def best(self, part: str, note: str | None = None) -> Rate | None:
        """The fastest setting of ``part``, of those with ``note`` if any have it; ``None`` if none was measured."""
        rates = [rate for rate in self.rates if rate.part == part]
        noted = [rate for rate in rates if rate.note == note]
        return max(noted or rates, key=lambda rate: rate.total, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"what": "hpcbench staging probe", "schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, record: dict[str, Any], place: object) -> Ceilings:
        """What ``as_dict`` returned. Raises ``DataError`` naming ``place`` for anything else."""
        again = "delete it, and probe again with `hpcbench stage SRC DST --probe`"
        try:
            if record.get("schema") != SCHEMA:
                raise DataError(place, f"has schema {record.get('schema')} where {SCHEMA} is read", again)
            nodes = tuple(str(node) for node in record["nodes"])
            rates = [
                Rate(str(rate["part"]), int(rate["threads"]), int(rate["block_bytes"]),
                     _of_nodes(rate["per_node"], len(nodes)), str(rate["note"]))
                for rate in record["rates"]
            ]  # fmt: skip
            if not _is_shallow(record["machine"]):
                raise ValueError("the facts of machines are nested too deeply")
            return cls(
                str(record["source"]), str(record["destination"]), nodes, int(record["ranks"]),
                float(record["seconds"]), tuple(rates), list(record["machine"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(place, f"is not a probe's result ({type(error).__name__}: {error})", again) from None

    def table(self) -> str:
        """A line for each measurement, at most 100 columns wide; the fastest setting of a part has a star."""
        head = f"{'part':22} {'threads':>7} {'at a time':>9} {'median node':>13} {'slowest node':>13} {'in all':>13}"
        best = {part: self.best(part) for part in WORDS}
        lines = [head, *(_row(rate, rate is best.get(rate.part)) for rate in self.rates)]
        nodes, ranks = (_counted(number, name) for number, name in ((len(self.nodes), "node"), (self.ranks, "rank")))
        lines.append(f"{nodes}, {ranks}, {self.seconds:.1f} s; threads are of each rank; * fastest setting of its part")
        return "\n".join(lines)


def write_ceilings(ceilings: Ceilings, folder: DestinationFolder) -> None:
    """Keep a probe's result below a destination. Raises ``DataError`` if it can't be written."""
    name = f"{BOOKKEEPING}/{NAME}"
    temporary = f"{BOOKKEEPING}/.{NAME}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}"
    try:
        with os.fdopen(folder.open(temporary, NEW), "w", encoding="utf-8") as file:
            file.write(json.dumps(ceilings.as_dict(), indent=1) + "\n")
        folder.rename(temporary, name)
    except OSError as error:
        with suppress(OSError, DataError):
            folder.unlink(temporary)
        raise DataError(folder / name, f"cannot be written ({error.strerror})", "choose another destination") from None


def read_ceilings(destination: Path) -> Ceilings | None:
    """The last probe's result below ``destination``; ``None`` without one. Raises ``DataError`` for a damaged one."""
    path = destination / BOOKKEEPING / NAME
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, f"can't be read as JSON ({error})", "delete it, or probe again") from None
    return Ceilings.from_dict(record if isinstance(record, dict) else {}, path)


def ceilings_for(destination: Path, source: Path, nodes: int) -> Ceilings | None:
    """The last probe's result below ``destination`` if it was of this ``source`` and on as many nodes."""
    ceilings = read_ceilings(destination)
    return (
        ceilings
        if ceilings is not None and (ceilings.source, len(ceilings.nodes)) == (str(source.absolute()), nodes)
        else None
    )


def rate_text(part: str, value: float) -> str:
    """A rate with its unit, such as ``1.18 GB/s`` or ``2100 files/s``."""
    if part in COUNTED:
        return f"{value:.0f} files/s" if value < 9999.5 else f"{value / 1000:.0f}k files/s"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            return f"{value:.2f} {unit}/s" if value < 100 else f"{value:.0f} {unit}/s"
        value /= 1000
    raise AssertionError


def block_text(size: int) -> str:
    """A block size, such as ``256 KiB``."""
    if not size:
        return ""
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size >> 10} KiB" if size % 1024 == 0 else f"{size} B"


def _of_nodes(rates: Sequence[Any], nodes: int) -> tuple[float, ...]:
    values = tuple(float(value) for value in rates)
    if len(values) != nodes or not all(0 <= value < math.inf for value in values):
        raise ValueError(f"rates of {nodes} nodes are as many numbers from 0 on")
    return values


def _is_shallow(value: object, levels: int = DEEPEST) -> bool:
    parts: Iterable[object] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in parts)


def _row(rate: Rate, best: bool) -> str:
    values = (statistics.median(rate.per_node), min(rate.per_node), rate.total)
    shown = " ".join(f"{rate_text(rate.part, value):>13}" for value in values)
    name = WORDS.get(rate.part, rate.part)
    line = f"{name:22} {rate.threads:>7} {block_text(rate.block_bytes):>9} {shown} {'*' if best else ' '} {rate.note}"
    return one_line(line.rstrip())


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
