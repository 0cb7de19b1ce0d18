"""Whole-file gzip (RFC 1952) in memory: libdeflate if its package is installed, zlib otherwise."""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Any, Literal

import numpy as np

from staging.errors import DataError

libdeflate: ModuleType | None
try:
    import deflate as libdeflate
except ImportError:  # zlib does the same, about three times slower
    libdeflate = None

Buffer = bytes | bytearray | memoryview
Compression = Literal["none", "gzip"]

MAGIC = b"\x1f\x8b"
DEFLATE = b"\x08"  # the one method that gzip has
FILE_NAME = 8
SMALLEST = 18  # bytes of header and trailer
LARGEST_EXPANSION = 1032  # a deflate stream holds at most 258 bytes per 2 bits
PIECE = 1 << 16
SPARE_MEMBERS = 16
"""Empty members that a file may have beyond its number of members with content. Block-wise gzip ends with one."""


def gzip_bytes(data: Buffer, level: int = 6) -> bytes | bytearray:
    """Compress ``data`` to one gzip member without time stamp or name, so that the same data give the same bytes."""
    if libdeflate is not None:
        return bytearray(libdeflate.gzip_compress(data, level))
    return zlib.compress(data, level, wbits=31)


class TooLargeError(DataError):
    """A file holds more than a reader takes."""

    def __init__(self, path: object, problem: str, change: str = "") -> None:
        super().__init__(path, problem, change or "set the data sizes to the file's, or remove it from the set")


def gunzip(data: Buffer, path: object, most: int | None = None) -> bytes | bytearray:
    """Decompress all gzip members in ``data``, the content of ``path``; every member's CRC-32 and size are checked.

    Raises ``DataError`` when ``data`` is not gzip, damaged, cut short, or followed by anything that is not gzip, and
    ``TooLargeError`` as soon as the output has grown beyond ``most`` bytes, whatever the trailer says.
    """
    if bytes(data[:2]) != MAGIC:
        raise DataError(
            path, "is not gzip although compression 'gzip' was said", "set data.compression none, or copy it again"
        )
    fast = _one_member(data, most)
    return _all_members(memoryview(data), path, most) if fast is None else fast


def largest_gzip(plain: int) -> int:
    """The most bytes that ``plain`` bytes take as gzip: stored uncompressed, in blocks, after a header with a name."""
    return plain + plain // 1000 + PIECE


def refuse_gzip(data: Buffer, path: object) -> None:
    """Raise ``DataError`` when ``data``, the start of a file said to be plain, is gzip."""
    if bytes(data[:2]) == MAGIC:
        raise DataError(path, "is gzip although compression 'none' was said", "set data.compression gzip")


def _one_member(data: Buffer, most: int | None) -> bytearray | None:
    """What libdeflate makes of ``data`` if that is exactly one intact member, else ``None``.

    libdeflate checks the trailer that follows the deflate stream, but does not say where that is. If ``data`` ends with
    the CRC-32 and size of the content, and this CRC-32 occurs nowhere before, the trailer is the end of ``data``.
    """
    whole = memoryview(data)
    trailer = whole[-8:]
    size = int.from_bytes(trailer[4:], "little")
    largest = LARGEST_EXPANSION * len(whole) if most is None else min(most, LARGEST_EXPANSION * len(whole))
    if libdeflate is None or not _has_usual_header(whole) or not 0 < size <= largest:
        return None
    try:
        plain: bytearray = libdeflate.gzip_decompress(whole, size)
    except (libdeflate.DeflateError, ValueError, MemoryError):
        return None
    crc = libdeflate.crc32(plain)
    intact = len(plain) == size and crc == int.from_bytes(trailer[:4], "little")
    return plain if intact and not _occurs(crc, whole[:-5]) else None


def _occurs(number: int, data: memoryview) -> bool:
    """Whether four little-endian bytes at any offset of ``data`` are ``number``; twice as fast as ``bytes.find``."""
    shifted = (data[offset : offset + (len(data) - offset) // 4 * 4] for offset in range(4))
    return any(bool((np.frombuffer(part, "<u4") == number).any()) for part in shifted)


def _has_usual_header(data: memoryview) -> bool:
    """Whether a header is plain or holds only a file name. libdeflate does not check the checksum of other headers."""
    return len(data) >= SMALLEST and data[2:3] == DEFLATE and data[3] in (0, FILE_NAME)


def _all_members(data: memoryview, path: object, most: int | None) -> bytes:
    """Decompress member by member with zlib, which says where a member ends and roughly where it is damaged."""
    plain = _Plain(path, most)
    offset, spare = 0, SPARE_MEMBERS
    while offset < len(data):
        if data[offset : offset + 2] != MAGIC:
            extra = len(data) - offset
            raise DataError(path, f"has {extra} bytes after the end of its gzip data at byte {offset}", "copy it again")
        before = plain.bytes
        offset = _one_member_exact(data, offset, plain)
        spare += 1 if plain.bytes > before else -1
        if spare < 0:
            raise DataError(path, f"has many empty gzip members, the last before byte {offset}", "copy it again")
    return b"".join(plain.pieces)


class _Plain:
    """What has been decompressed of a file, at most ``most`` bytes."""

    def __init__(self, path: object, most: int | None) -> None:
        self.path = path
        self.pieces: list[bytes] = []
        self._most = most
        self.bytes = 0

    def take(self, member: Any, piece: memoryview) -> None:
        """Decompress a piece, but to no more than one byte beyond the limit."""
        room = 0 if self._most is None else self._most - self.bytes + 1  # 0: as much as there is
        self.pieces.append(member.decompress(piece, room))
        self.bytes += len(self.pieces[-1])
        if self._most is not None and self.bytes > self._most:
            raise TooLargeError(self.path, f"is gzip that grows beyond {self._most} bytes, the most that are expected")


def _one_member_exact(data: memoryview, offset: int, plain: _Plain) -> int:
    """Append what the member at ``offset`` holds to ``plain`` and return the offset of its end."""
    member = zlib.decompressobj(wbits=31)
    while not member.eof:
        piece = data[offset : offset + PIECE]
        if not piece:
            raise DataError(plain.path, f"is gzip data cut short at byte {len(data)}", "copy it again")
        try:
            plain.take(member, piece)
        except zlib.error as error:
            place = f"between bytes {offset} and {offset + len(piece)}"
            raise DataError(plain.path, f"has damaged gzip data {place} ({error})", "copy it again") from None
        offset += len(piece)
    return offset - len(member.unused_data)
