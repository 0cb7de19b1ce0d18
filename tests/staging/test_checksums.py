"""The CRC32C of parts together is that of the whole."""

from __future__ import annotations

import crc32c
from hypothesis import given
from hypothesis import strategies as st

from staging.checksums import combined


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_of_two_parts(first: bytes, second: bytes) -> None:
    found = combined(crc32c.crc32c(first), crc32c.crc32c(second), len(second))
    assert found == crc32c.crc32c(first + second)


def test_of_a_long_second_part() -> None:
    first, second = b"head", bytes(50_000_001)
    found = combined(crc32c.crc32c(first), crc32c.crc32c(second), len(second))
    assert found == crc32c.crc32c(second, crc32c.crc32c(first))


def test_of_the_published_example() -> None:
    """RFC 3720, appendix B.4: 32 bytes of zeros, here as 20 and 12 of them."""
    assert combined(crc32c.crc32c(bytes(20)), crc32c.crc32c(bytes(12)), 12) == 0x8A9136AA


def test_nothing_more_changes_nothing() -> None:
    assert combined(0x1234, 0, 0) == 0x1234
