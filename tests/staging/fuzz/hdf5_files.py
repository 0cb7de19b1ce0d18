"""HDF5 files of several forms; what is repaired are checksums of metadata, in files that have some."""

from __future__ import annotations

import io
import random
from pathlib import Path

import h5py
import numpy as np

from staging.formats.hdf5 import check_whole, describe, read_dataset
from staging.source.hdf5_source import HDF5Source
from tests.staging.fuzz.allowed import expect, refused
from tests.staging.fuzz.family import Family
from tests.staging.fuzz.sinks import transform

SUPERBLOCK = b"\x89HDF\r\n\x1a\n"
MASK = 0xFFFFFFFF
MOST_ENTRIES = 12


def file_of(libver: str, **options: object) -> bytes:
    """A sample as DeepCAM has it, its datasets stored by ``options``."""
    file = io.BytesIO()
    random_numbers = np.random.default_rng(0)
    with h5py.File(file, "w", libver=(libver, "latest")) as made:
        data = random_numbers.integers(0, 9, (6, 5, 4)).astype("<f4")
        made.create_dataset("climate/data", data=data, track_times=False, **options)
        labels = random_numbers.integers(0, 3, (6, 5)).astype("<f4")
        made.create_dataset("climate/labels_0", data=labels, track_times=False)
        made["climate"].attrs["year"] = 1990
    return file.getvalue()


def many_datasets(libver: str) -> bytes:
    """A file of many names, with links."""
    file = io.BytesIO()
    with h5py.File(file, "w", libver=(libver, "latest")) as made:
        for number in range(24):
            made.create_dataset(f"rows/{number:02d}", data=np.arange(12, dtype="<i2").reshape(6, 2), track_times=False)
        made["soft"] = h5py.SoftLink("/rows/03")
        made["outside"] = h5py.ExternalLink("other.h5", "x")
    return file.getvalue()


class HDF5Family(Family):
    """As HDF5 1.8 wrote them, without checksums, and as its latest version does."""

    tokens = (
        SUPERBLOCK, b"OHDR", b"OCHK", b"TREE", b"SNOD", b"HEAP", b"GCOL", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTLF",
        b"BTIN", b"FSHD", b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EADB", b"deflate\0", b"climate\0", b"data\0",
        b"labels_0\0",
        b"\xff" * 8, bytes(8), b"\x01\0", b"\x10\0\0\0", b"\x00\x01\x00\x00\x00\x00\x00\x00",
    )  # fmt: skip
    memory_bytes = 32 << 20
    memory_factor = 1100  # a deflated chunk grows a thousandfold

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        packed = {"chunks": (2, 5, 4), "compression": "gzip", "shuffle": True}
        growing = {"chunks": (1, 5, 4), "maxshape": (None, 5, 4)}
        return [
            file_of("v108"), file_of("earliest"), file_of("latest"), file_of("earliest", **packed),
            file_of("v110", **packed),
            file_of("earliest", **growing), file_of("latest", **growing, fletcher32=True),
            file_of("v110", chunks=(6, 5, 4), maxshape=(9, 9, 9)), many_datasets("earliest"), many_datasets("v110"),
        ]  # fmt: skip

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """The superblock and the object headers have their checksums (HDF5 file format 3.0, II.A, IV.A.1.b)."""
        found = bytearray(data)
        if found[:8] == SUPERBLOCK and len(found) >= 48 and found[8] in (2, 3):
            found[44:48] = lookup3(bytes(found[:44])).to_bytes(4, "little")
        place = found.find(b"OHDR")
        while 0 <= place < len(found) - 12:
            flags = found[place + 5]
            width, start = 1 << (flags & 3), place + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
            end = start + width + int.from_bytes(found[start : start + width], "little")
            if end + 4 <= len(found) and end - place < 8192:
                found[end : end + 4] = lookup3(bytes(found[place:end])).to_bytes(4, "little")
            place = found.find(b"OHDR", place + 4)
        return bytes(found)

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """By the readers of a training, by the transform, and as a source of rows."""
        path = folder / "data-1.h5"
        path.write_bytes(data)
        with refused():
            describe(path)
        with refused():
            check_whole(path, 1 << 20)
        with refused():
            whole = read_dataset(path, "climate/data", shape=(6, 5, 4), dtype_kind="f")
            expect(whole.shape == (6, 5, 4), "an array of another shape")
        with refused():
            read_dataset(path, "climate/labels_0", selection=(slice(1, 3),), most=1 << 20)
        with refused():
            read_dataset(path, dice.choice(("soft", "outside", "rows/03")), shape=(None, 2), most=1 << 20)
        transform(data, "train/data-1.h5", "hdf5-to-npy", folder, dice, lands=True)
        with refused():
            self._rows(path)

    def _rows(self, path: Path) -> None:
        source = HDF5Source(path, retries=0)
        reader = source.reader()
        try:
            for entry in list(range(len(source.listing)))[:MOST_ENTRIES]:
                buffer = bytearray(min(int(source.listing.sizes[entry]), 1 << 16))
                reader.read_into(entry, 0, memoryview(buffer))
                reader.finish(entry)
        finally:
            reader.close()


def lookup3(data: bytes) -> int:
    """Bob Jenkins's hash of 2006, ``hashlittle`` from 0, as HDF5 checks its metadata with."""
    a = b = c = (0xDEADBEEF + len(data)) & MASK
    if not data:
        return c
    padded = data + bytes(-len(data) % 12)
    for place in range(0, len(padded), 12):
        a, b, c = (
            (word + int.from_bytes(padded[at : at + 4], "little")) & MASK
            for word, at in ((a, place), (b, place + 4), (c, place + 8))
        )
        if place + 12 < len(padded):
            a, b, c = _mixed(a, b, c)
    return _final(a, b, c)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & MASK


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & MASK) ^ _rotated(c, bits)
        a, b, c = b, (c + b) & MASK, a
    return a, b, c


def _final(a: int, b: int, c: int) -> int:
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, bits)) & MASK
        a, b, c = b, c, a
    return b
