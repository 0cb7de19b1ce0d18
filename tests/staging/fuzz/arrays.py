"""npy files; what is repaired is the length of the header, and the length of the data that the header says."""

from __future__ import annotations

import io
import math
import random
import re
import struct
from pathlib import Path

import numpy as np

from staging.formats.npy import parse_header, read_array
from tests.staging.fuzz.allowed import expect, refused
from tests.staging.fuzz.family import Family
from tests.staging.fuzz.sinks import transform

MAGIC = b"\x93NUMPY"
MOST_DATA = 1 << 16
SHAPE = re.compile(rb"'shape': \(([^)]*)\)")
DTYPES = ("<f4", "<i2", "u1")


def saved(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], version: tuple[int, int] | None = None) -> bytes:
    """The file that NumPy writes."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version, allow_pickle=False)
    return file.getvalue()


class NpyFamily(Family):
    """Arrays by ``numpy.save``."""

    tokens = (
        MAGIC, MAGIC + b"\x01\x00", MAGIC + b"\x02\x00", MAGIC + b"\x03\x00", b"'shape': (", b"'descr': '<f4'",
        b"'descr': '|O'", b"'descr': [('a', '<f4')]", b"'descr': '<M8[ns]'", b"'descr': '<U99999999999'", b"True", b"(",
        b"[", b"{", b")", b"]", b"}", b"-", b"~", b"+", b"not ", b"L", b"1j", b"'", b"\\", b"\n", b"#", b"\0", b"(-1,)",
        b"(2**99,)", b"(99999999999999999999,)", b"(True,)", b"('a',)", b"0,", b"lambda:0", b"f'{0}'", b"9" * 5000,
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        numbers = np.arange(24, dtype="<f4")
        return [
            saved(numbers.reshape(4, 3, 2)), saved(np.asfortranarray(numbers.reshape(4, 6))), saved(numbers[:0]),
            saved(np.arange(512, dtype="<i2").reshape(4, 4, 4, 8)), saved(np.array(7, "u1")),
            saved(numbers.reshape(4, 6), (2, 0)), saved(np.zeros(4, [("a", "<f4"), ("b", "u1", 3)])),
            saved(np.array(["a", "bc"])), saved(np.zeros((4,) + (1,) * 20, "u1")),
        ]  # fmt: skip

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """The header ends where it says it does, and as much data follows as it says, where that is not much."""
        version = data[6] if data[6:7] in (b"\x01", b"\x02") else 1
        start = 10 if version == 1 else 12
        end = data.find(b"\n", start)
        text = data[start : end if end > 0 else len(data)][:60_000]
        content = data[start + len(text) + 1 :]
        text += b" " * (-(start + len(text) + 1) % 64) + b"\n"
        head = MAGIC + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text
        shape = SHAPE.search(text)
        if shape is not None and dice.random() < 0.8:
            lengths = [int(part[:9]) for part in re.findall(rb"-?\d+", shape[1])]
            itemsize = next((np.dtype(name).itemsize for name in DTYPES if name.encode() in text), 4)
            size = min(max(math.prod(lengths), 0) * itemsize, MOST_DATA)
            content = (content or b"\0") * (size // max(len(content), 1) + 1)
            content = content[:size]
        return head + content

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """With a shape that is known, with one that is not, and rows of it."""
        path = folder / "a.npy"
        path.write_bytes(data)
        for shape, dtype in (((4, 3, 2), "<f4"), ((None,) * 4, "<i2"), ((4, None), "<f4")):
            for selection in (None, (slice(1, 3), slice(0, 2))):
                with refused():
                    read = read_array(path, shape=shape, dtype=dtype, selection=selection, most=1 << 20)
                    expect(read.nbytes <= len(data), "an array larger than its file")
        with refused():
            parse_header(data, "a.npy")
        rows = dice.choice(("first=1,stop=3,of=4", "first=0,stop=4,of=4"))
        transform(data, "a.npy", f"npy-rows:{rows}", folder, dice, lands=True)
