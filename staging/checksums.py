"""CRC32C of whole files, of each prefix of whole blocks, and of files whose parts were summed separately.

With the CRC32C of the bytes before a run of blocks and of the bytes up to its end, that run can be checked alone.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache

from fastcrc.crc32 import iscsi

crc32c = iscsi
"""The CRC32C of a buffer, ``crc32c(data, of_what_came_before)``; other threads can run during the call.

Catalogues of CRCs name it after iSCSI (RFC 3720), which uses it.
"""
BLOCK_BYTES = 1 << 18
"""Small, since a reader of a part also reads the rest of its first and last block; 256 KiB stay in a core's cache."""
POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, with the highest power in the lowest bit, as in RFC 3720, appendix B.4."""
ONE = 1 << 31
"""The polynomial 1 in that bit order."""


def inner_blocks(size: int) -> int:
    """Number of block borders within a file of ``size`` bytes, and of values in its ``RunningChecksum.blocks``."""
    return max(size - 1, 0) // BLOCK_BYTES


class RunningChecksum:
    """The CRC32C of bytes that arrive in pieces of any size."""

    __slots__ = ("_values", "crc", "size")

    def __init__(self) -> None:
        self.crc = 0
        """CRC32C of all bytes so far."""
        self.size = 0
        """Bytes so far."""
        self._values = array("I")

    def update(self, data: memoryview) -> None:
        """Take the next bytes."""
        done = 0
        while done < len(data):
            piece = data[done : done + BLOCK_BYTES - self.size % BLOCK_BYTES]
            self.crc = crc32c(piece, self.crc)
            self.size += len(piece)
            done += len(piece)
            if self.size % BLOCK_BYTES == 0:
                self._values.append(self.crc)

    @property
    def blocks(self) -> bytes:
        """The CRC32C of the first block, of the first two, and so on, without that of the whole file.

        Four bytes each, big endian.
        """
        return _packed(self._values[: inner_blocks(self.size)])


def checksums(data: memoryview) -> tuple[int, bytes]:
    """The CRC32C of the bytes of a whole file, and its ``RunningChecksum.blocks``."""
    if len(data) <= BLOCK_BYTES:
        return crc32c(data), b""
    running = RunningChecksum()
    running.update(data)
    return running.crc, running.blocks


def checksums_of_parts(parts: Iterable[tuple[int, int]]) -> tuple[int, bytes]:
    """What ``checksums`` returns for a whole file, from the size in bytes and the CRC32C of each part, in order.

    A part may begin and end anywhere, but must not have a block border inside it.
    """
    crc = size = 0
    values = array("I")
    for nbytes, checksum in parts:
        crc, size = combined(crc, checksum, nbytes), size + nbytes
        if size % BLOCK_BYTES == 0:
            values.append(crc)
    return crc, _packed(values[: inner_blocks(size)])


def combined(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two neighbouring parts together, from that of each and the length of the second.

    Checksums are remainders of division by a polynomial over GF(2): the first is multiplied by x to the power of the
    number of bits after it.
    """
    if second_bytes == BLOCK_BYTES:
        zero, one, two, three = _block_tables()
        shifted = zero[first & 255] ^ one[first >> 8 & 255] ^ two[first >> 16 & 255] ^ three[first >> 24]
        return shifted ^ second
    return _product(first, _power(8 * second_bytes)) ^ second


def _packed(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def _product(one: int, other: int) -> int:
    """The product of two polynomials, modulo ``POLYNOMIAL``."""
    product = 0
    while one:
        if one & ONE:
            product ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (POLYNOMIAL if other & 1 else 0)
    return product


@lru_cache(maxsize=1024)
def _power(exponent: int) -> int:
    """x to the power of ``exponent``, modulo ``POLYNOMIAL``."""
    power, square = ONE, ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


@lru_cache(maxsize=1)
def _block_tables() -> list[list[int]]:
    """For each byte of a checksum, lowest first, a table of what it becomes when a block follows."""
    power = _power(8 * BLOCK_BYTES)
    return [[_product(value << shift, power) for value in range(256)] for shift in (0, 8, 16, 24)]
