"""Whole-file gzip (RFC 1952) in memory: libdeflate where its package is installed, zlib otherwise."""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Literal

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


def gzip_bytes(data: Buffer, level: int = 6) -> bytes | bytearray:
    """Compress ``data`` to one gzip member without time stamp or name, so that the same data gives the same bytes."""
    if libdeflate is not None:
        return bytearray(libdeflate.gzip_compress(data, level))
    return zlib.compress(data, level, wbits=31)


def gunzip(data: Buffer, path: object) -> bytes | bytearray:
    """Decompress all gzip members in ``data``, the content of ``path``; every member's CRC-32 and size are checked.

    Raises ``DataError`` when ``data`` is not gzip, damaged, cut short, or followed by anything that is not gzip.
    """
    if bytes(data[:2]) != MAGIC:
        raise DataError(
            path, "is not gzip although compression 'gzip' was said", "set data.compression none, or copy it again"
        )
    fast = _one_member(data)
    return _all_members(memoryview(data), path) if fast is None else fast


def refuse_gzip(data: Buffer, path: object) -> None:
    """Raise ``DataError`` when ``data``, the start of a file said to be plain, is gzip."""
    if bytes(data[:2]) == MAGIC:
        raise DataError(path, "is gzip although compression 'none' was said", "set data.compression gzip")


def _one_member(data: Buffer) -> bytearray | None:
    """What libdeflate makes of ``data`` if that is exactly one intact member, else ``None``.

    libdeflate does not say where a member ends, but there its trailer stands, the CRC-32 and size of the content: if
    ``data`` ends with these and its CRC-32 occurs nowhere before, nothing follows the member.
    """
    whole = data if isinstance(data, bytes | bytearray) else bytes(data)
    start, trailer = _header_size(whole), whole[-8:]
    size = int.from_bytes(trailer[4:], "little")
    if libdeflate is None or not start or not 0 < size <= LARGEST_EXPANSION * len(whole):
        return None
    try:
        plain: bytearray = libdeflate.deflate_decompress(memoryview(whole)[start:-8], size)
    except (libdeflate.DeflateError, ValueError, MemoryError):
        return None
    crc = libdeflate.crc32(plain)
    intact = len(plain) == size and crc == int.from_bytes(trailer[:4], "little")
    return plain if intact and not _occurs(crc, memoryview(whole)[:-5]) else None


def _occurs(number: int, data: memoryview) -> bool:
    """Whether four little-endian bytes at any offset of ``data`` are ``number``; twice as fast as ``bytes.find``."""
    shifted = (data[offset : offset + (len(data) - offset) // 4 * 4] for offset in range(4))
    return any(bool((np.frombuffer(part, "<u4") == number).any()) for part in shifted)


def _header_size(data: bytes | bytearray) -> int:
    """Bytes of a header that is plain or holds a file name only, the two usual kinds; 0 for any other."""
    if data[2:3] != DEFLATE or len(data) < SMALLEST:
        return 0
    if data[3] == 0:
        return 10
    return data.find(b"\0", 10) + 1 if data[3] == FILE_NAME else 0


def _all_members(data: memoryview, path: object) -> bytes:
    """Decompress member by member with zlib, which tells where a member ends and roughly where it is damaged."""
    plain: list[bytes] = []
    offset = 0
    while offset < len(data):
        if data[offset : offset + 2] != MAGIC:
            extra = len(data) - offset
            raise DataError(path, f"has {extra} bytes after the end of its gzip data at byte {offset}", "copy it again")
        offset = _one_member_exact(data, offset, plain, path)
    return b"".join(plain)


def _one_member_exact(data: memoryview, offset: int, plain: list[bytes], path: object) -> int:
    """Append what the member at ``offset`` holds to ``plain`` and return the offset of its end."""
    member = zlib.decompressobj(wbits=31)
    while not member.eof:
        piece = data[offset : offset + PIECE]
        if not piece:
            raise DataError(path, f"is gzip data cut short at byte {len(data)}", "copy it again")
        try:
            plain.append(member.decompress(piece))
        except zlib.error as error:
            end = offset + len(piece)
            raise DataError(
                path, f"has damaged gzip data between bytes {offset} and {end} ({error})", "copy it again"
            ) from None
        offset += len(piece)
    return offset - len(member.unused_data)
