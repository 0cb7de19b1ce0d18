"""Decompresses gzip, xz and bzip2 in pieces into another sink; memory stays at a few MiB for any file size."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from staging.errors import DataError
from staging.landing.sinks import Landed, Sink
from staging.landing.transform.options import LEAVE

INPUT_BYTES = 1 << 14  # deflate makes at most 1032 times as much of it
OUTPUT_BYTES = 1 << 20
XZ_BYTES = 96 << 20
"""Memory for a dictionary, which a header may claim to take 4 GiB; that of ``xz -9`` takes 65 MiB."""
AGAIN = "copy it again"

Decoder = Any
"""``zlib``'s, ``lzma``'s or ``bz2``'s object for one member."""

DECODERS: dict[str, Callable[[], Decoder]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_BYTES),
    "bzip2": bz2.BZ2Decompressor,
}
MAGIC = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\0", "bzip2": b"BZh"}
DAMAGE = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


class DecompressSink:
    """Decompresses all members of an entry into ``inner``, their checksums verified by the library.

    Raises ``DataError`` naming ``name`` and a byte offset if the data are not of ``kind``, damaged, cut short, or
    followed by something else.
    """

    def __init__(self, kind: str, name: str, inner: Sink) -> None:
        self._kind, self._name, self._inner = kind, name, inner
        self._decoder: Decoder | None = None
        self._members = 0
        self._offset = 0

    def write(self, data: memoryview) -> None:
        """Decompress ``data`` and pass on the output."""
        for start in range(0, len(data), INPUT_BYTES):
            rest = data[start : start + INPUT_BYTES]
            while len(rest):
                rest = self._decode(rest)

    def close(self) -> list[Landed]:
        """Close ``inner``, if the last member is complete."""
        if self._decoder is not None or not self._members:
            raise DataError(self._name, f"is {self._kind} data cut short at byte {self._offset}", AGAIN)
        return self._inner.close()

    def abandon(self) -> None:
        """Abandon ``inner``."""
        self._inner.abandon()

    def _decode(self, data: memoryview) -> memoryview:
        """Feed ``data`` to the member it belongs to, and return what follows the end of that member."""
        if self._decoder is None:
            self._refuse_other(data)
        decoder = self._decoder = self._decoder or DECODERS[self._kind]()
        try:
            for plain in _plain(decoder, data):
                self._inner.write(memoryview(plain))
        except DAMAGE as error:
            problem = f"has damaged {self._kind} data behind byte {self._offset} ({error})"
            raise DataError(self._name, problem, AGAIN) from None
        if not decoder.eof:
            self._offset += len(data)
            return data[:0]
        rest = data[len(data) - len(decoder.unused_data) :]
        self._offset += len(data) - len(rest)
        self._decoder = None
        self._members += 1
        return rest

    def _refuse_other(self, data: memoryview) -> None:
        magic = MAGIC[self._kind][: len(data)]
        if data[: len(magic)] == magic:
            return
        if not self._members:
            raise DataError(self._name, f"is not {self._kind}", LEAVE)
        problem = f"has other bytes after the end of its {self._kind} data at byte {self._offset}"
        raise DataError(self._name, problem, AGAIN)


def _plain(decoder: Decoder, data: memoryview) -> Iterator[bytes]:
    if not hasattr(decoder, "needs_input"):
        yield decoder.decompress(data)
        return
    yield decoder.decompress(data, OUTPUT_BYTES)
    while not decoder.eof and not decoder.needs_input:
        yield decoder.decompress(b"", OUTPUT_BYTES)
