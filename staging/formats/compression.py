"""Whole-file gzip (RFC 1952) in memory: libdeflate where its package is installed, zlib otherwise."""

from __future__ import annotations

import struct
import zlib
from types import ModuleType
from typing import Literal

from staging.errors import DataError

libdeflate: ModuleType | None
try:
    import deflate as libdeflate
except ImportError:  # zlib does the same, about three times slower
    libdeflate = None

Buffer = bytes | bytearray | memoryview
Compression = Literal["none", "gzip"]

MAGIC = b"\x1f\x8b"
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
    """What libdeflate makes of ``data`` if that is exactly one intact member, else ``None``."""
    size = int.from_bytes(data[-4:], "little")
    if libdeflate is None or not 0 < size <= LARGEST_EXPANSION * len(data):
        return None
    try:
        plain = bytearray(0)
        plain = libdeflate.gzip_decompress(data, size)
    except (libdeflate.DeflateError, ValueError, MemoryError):
        return None
    # libdeflate stops after the first member and does not say where: its trailer must be at the end and only there
    trailer = struct.pack("<II", libdeflate.crc32(plain), len(plain) & 0xFFFFFFFF)
    whole = data if isinstance(data, bytes | bytearray) else bytes(data)
    return plain if whole.find(trailer) == len(whole) - len(trailer) else None


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
