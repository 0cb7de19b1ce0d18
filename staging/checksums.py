"""CRC32C of bytes that were summed in parts."""

from __future__ import annotations

from functools import lru_cache

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, the highest power in the lowest bit, as in RFC 3720, appendix B.4."""
ONE = 1 << 31
"""The polynomial 1 in that order of bits."""


def combined(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two neighbouring parts together, by that of each and the length of the second.

    Checksums are remainders of division by a polynomial over GF(2): the first is multiplied by x to the number of bits
    behind it.
    """
    return _product(first, _power(8 * second_bytes)) ^ second


def _product(one: int, other: int) -> int:
    """Of two polynomials, modulo ``POLYNOMIAL``."""
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
