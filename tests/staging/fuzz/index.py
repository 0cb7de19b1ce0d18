"""Dataset indexes; what is repaired is the number of files and the checksum in the last line."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from crc32c import crc32c

from staging.planning.overhead import overhead
from staging.planning.plan import make_plan
from staging.source.index import HEADER, read_index
from staging.source.listing import Listing, Selection
from staging.storage.space import bytes_in_blocks
from tests.staging.fuzz.allowed import expect, refused
from tests.staging.fuzz.family import Family

NUMBERS = (0, 1, 4095, 1 << 31, 1 << 32, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 10**19 - 1, -1)


def line(size: int, time_ns: int, checksum: bytes, name: bytes) -> bytes:
    """As an index has it."""
    return b"%19d %20d %8b %b\n" % (size, time_ns, checksum, name)


def ended(body: bytes) -> bytes:
    """With the last line that belongs to it."""
    return body + b"#end %d %08x\n" % (body.count(b"\n") - 1, crc32c(body))


class IndexFamily(Family):
    """``dataset.index``."""

    tokens = (
        b"\n", b" ", b"#end 1 ", b"#end " + b"9" * 5000 + b" 00000000\n", HEADER, b"#hpcbench-index " + b"9" * 5000,
        b"--------", b"../", b"/", b"\0", b"\xff\xfe", b".staging/", b"9" * 19, b" -1", b"9223372036854775807",
        *(line(number, number, b"00000001", b"zz") for number in NUMBERS),
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        few = [line(3, 10**18, b"0a1b2c3d", b"a"), line(6, 10**18, b"--------", b"train/b\xff.bin")]
        many = [line(n, n, b"%08x" % n, b"train/%06d.tfrecord" % n) for n in range(400)]
        large = [line(dice.choice(NUMBERS[:-2]), 1, b"00000000", b"%02d" % n) for n in range(8)]
        return [ended(HEADER + b"".join(part)) for part in (few, few[:1], many, large)]

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """The last line says what stands before it."""
        body = data[: data.rfind(b"\n", 0, -1) + 1]
        if not body.startswith(HEADER) and dice.random() < 0.7:
            body = HEADER + body.partition(b"\n")[2]
        return ended(body)

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """The listing, a choice of it, and a plan."""
        path = folder / "dataset.index"
        path.write_bytes(data)
        with refused():
            listing = read_index(path)
            expect(ended(HEADER + b"".join(_lines(listing))) == data, "an index that would not be written so")
            expect(listing.bytes == sum(listing.sizes.tolist()), "sizes that overflow")
            with refused():
                Selection(("*a*",), ("*.npy",), 3).of(listing, path)
            expect(bytes_in_blocks(listing.sizes, folder) >= listing.bytes, "blocks that overflow")
            overhead(listing.names, listing.bytes, folder, 0)
            may_cut = listing.sizes >= 8 << 20
            for placement, way in (("replicate", "exchange"), ("shard", "direct")):
                with refused():
                    plan = make_plan(listing, 3, [2, 2, 2], placement, way, 5, may_cut=may_cut)  # type: ignore[arg-type]
                    plan.summary(np.ones(len(listing), np.bool_)).table()


def _lines(listing: Listing) -> list[bytes]:
    columns = (listing.sizes.tolist(), listing.mtimes_ns.tolist(), listing.checksums.tolist())
    names = [name for block in listing.names.blocks() for name in block]
    return [
        line(size, time_ns, b"-" * 8 if checksum < 0 else b"%08x" % checksum, name)
        for name, size, time_ns, checksum in zip(names, *columns, strict=True)
    ]
