"""A staged file of several blocks, a part of which is what a training reads first."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from staging.checksums import checksums
from staging.first_reads import FirstReads
from staging.ledger.manifest import load_records
from staging.ledger.records import BLOCKS
from tests.staging.fuzz.allowed import expect
from tests.staging.fuzz.sinks import pieces

NAME = "train/large.bin"
DATA = random.Random(7).randbytes(600_000)
CHECKSUM, BLOCK_CHECKSUMS = checksums(memoryview(DATA))
RECORD: dict[str, Any] = {
    "name": NAME, "size": len(DATA), "crc32c": CHECKSUM, "source": NAME, "mtime_ns": 10**9,
    BLOCKS: BLOCK_CHECKSUMS.hex(),
}  # fmt: skip
"""Its line in a sound manifest."""


def read_part(destination: Path, dice: random.Random) -> None:
    """Read some of it, where every second time a bit has flipped: checksums that are right let that not pass."""
    start = dice.randrange(len(DATA))
    stop = dice.randrange(start, len(DATA)) + 1
    is_damaged, path, data = dice.random() < 0.5, destination / NAME, bytearray(DATA)
    if is_damaged:
        data[dice.randrange(start, stop)] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(10**9, 10**9))
    with path.open("rb") as file:
        feed = FirstReads(destination).reading(file.fileno(), path, start, stop - start)
        if feed is not None:
            for piece in pieces(bytes(data[start:stop]), dice):
                feed(piece)
    expect(not (is_damaged and _is_right(destination)), "a bit that flipped passes the first read")


def _is_right(destination: Path) -> bool:
    """Whether the manifest has of it what a sound one has."""
    records = load_records(destination)
    if NAME not in records or records.is_doubted(NAME):
        return False
    landed = records[NAME]
    return (landed.size, landed.checksum, landed.blocks) == (len(DATA), CHECKSUM, BLOCK_CHECKSUMS)
