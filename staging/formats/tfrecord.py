"""TFRecord files: records framed by their length and two masked CRC32C values, plain or gzip as a whole.

A record is: length (uint64), masked CRC32C of the length (uint32), payload, masked CRC32C of the payload (uint32),
all little endian, as in TensorFlow's documentation of the format.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Protocol

from staging.atomic import replacing
from staging.checksums import crc32c
from staging.errors import DataError
from staging.formats.compression import (
    Buffer,
    Compression,
    TooLargeError,
    gunzip,
    gzip_bytes,
    largest_gzip,
    refuse_gzip,
)
from staging.formats.reading import have_read
from staging.formats.regular import opened, read_at_most

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: Buffer) -> int:
    """CRC32C of ``data``, rotated right by 15 bits plus a constant, as the format stores it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def read_records(path: Path, compression: Compression, most: int | None = None) -> Iterator[memoryview]:
    """Yield the payload of each record of ``path``, both CRC32C values verified, without copying it.

    A plain file is read record by record, a gzip file as a whole. Raises ``DataError`` with the number of the record
    and its byte offset (in the decompressed data) for a file that is missing, not a regular file, cut short, damaged,
    empty, or of more than ``most`` bytes once decompressed: no more than that is read or held.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        limit = most if most is None or compression == "none" else largest_gzip(most)
        if limit is not None and size > limit:
            raise TooLargeError(path, f"has {size} bytes where at most {limit} are expected")
        if compression == "gzip":
            packed = read_at_most(file, size)
            have_read(file.fileno(), path, 0, packed)
            yield from _records(_Memory(gunzip(packed, path, most)), path)
        else:
            yield from _records(_Plain(file, path, size), path)


def read_record(path: Path, compression: Compression, most: int | None = None) -> memoryview:
    """The payload of the only record of ``path``, read as by ``read_records``. Raises ``DataError`` for a second."""
    records = read_records(path, compression, most)
    first = next(records)
    if (second := next(records, None)) is not None:
        problem = f"has a second record, of {len(second)} bytes, where one is expected"
        raise DataError(path, problem, "split it into files of one record each, or remove it from the set")
    return first


def write_records(path: Path, payloads: Iterable[Buffer], compression: Compression, level: int = 6) -> None:
    """Write ``payloads`` as the records of ``path``, complete or not at all; the same payloads give the same bytes."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        if compression == "gzip":
            file.write(gzip_bytes(b"".join(part for payload in payloads for part in _framed(payload)), level))
        else:
            for payload in payloads:
                file.writelines(_framed(payload))


def _framed(payload: Buffer) -> tuple[Buffer, Buffer, Buffer]:
    length = struct.pack("<Q", len(payload))
    return length + FOOTER.pack(masked_crc32c(length)), payload, FOOTER.pack(masked_crc32c(payload))


class _Source(Protocol):
    size: int

    def take(self, offset: int, length: int) -> memoryview:
        """The bytes from ``offset`` on, fewer than ``length`` only at the end."""
        ...


class _Memory:
    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)
        self.size = len(data)

    def take(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]


class _Plain:
    def __init__(self, file: FileIO, path: Path, size: int) -> None:
        self._file = file
        self._path = path
        self.size = size

    def take(self, offset: int, length: int) -> memoryview:
        data = read_at_most(self._file, length)  # records follow each other, so the file is at ``offset``
        if length > HEADER.size:  # a header is in the same block as what follows
            have_read(self._file.fileno(), self._path, offset, data)
        return data


def _records(source: _Source, path: Path) -> Iterator[memoryview]:
    offset = index = 0
    while offset < source.size:
        payload = _record(source, offset, index, path)
        yield payload
        offset += HEADER.size + len(payload) + FOOTER.size
        index += 1
    if not index:
        raise DataError(path, "is empty", "copy it again, or remove it from the set")


def _record(source: _Source, offset: int, index: int, path: Path) -> memoryview:
    where = f"record {index} at byte {offset}"
    header = source.take(offset, HEADER.size)
    if len(header) < HEADER.size:
        raise DataError(
            path, f"{where} is cut short in its header, {len(header)} of {HEADER.size} bytes are there", AGAIN
        )
    length, stored = HEADER.unpack(header)
    if masked_crc32c(header[:8]) != stored:
        if offset == 0:
            refuse_gzip(header, path)
        raise DataError(path, f"{where} has a length whose CRC32C does not match (damaged, or not a TFRecord)", AGAIN)
    room = source.size - offset - HEADER.size - FOOTER.size
    if length > room:
        raise DataError(path, f"{where} is cut short: it says {length} bytes and {max(room, 0)} are there", AGAIN)
    body = source.take(offset + HEADER.size, length + FOOTER.size)
    payload, footer = body[:length], body[length:]
    if len(footer) < FOOTER.size or masked_crc32c(payload) != FOOTER.unpack(footer)[0]:
        raise DataError(path, f"{where} is damaged: the CRC32C of its {length} bytes does not match", AGAIN)
    return payload


AGAIN = "copy the file again, or remove it from the set"
