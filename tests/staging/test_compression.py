"""Gzip in memory agrees with Python's own gzip, and never returns wrong data."""

import gzip
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.errors import DataError
from staging.formats import compression
from staging.formats.compression import gunzip, gzip_bytes, refuse_gzip

PLAIN = b"counts of particles " * 40 + bytes(range(256))


@pytest.fixture(params=["libdeflate", "zlib"], autouse=True)
def _both_libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "zlib":
        monkeypatch.setattr(compression, "libdeflate", None)
    else:
        assert compression.libdeflate is not None


@given(st.binary(max_size=5000), st.integers(1, 9))
def test_agrees_with_pythons_gzip_both_ways(data: bytes, level: int) -> None:
    assert gzip.decompress(gzip_bytes(data, level)) == data
    assert gunzip(gzip.compress(data, level), "x") == data
    assert gunzip(memoryview(gzip_bytes(data, level)), "x") == data


def test_the_same_data_gives_the_same_bytes_without_time_or_name() -> None:
    first = gzip_bytes(PLAIN)
    time.sleep(1.1)
    assert gzip_bytes(PLAIN) == first
    assert first[3] == 0, "no name, comment or extra field"
    assert first[4:8] == b"\0\0\0\0", "no time"


def test_a_header_with_name_and_time_is_read() -> None:
    named = b"\x1f\x8b\x08\x08\x01\x02\x03\x04\x00\x03name\x00" + gzip_bytes(PLAIN)[10:]
    assert gunzip(named, "x") == PLAIN


@pytest.mark.parametrize("parts", [(PLAIN, b"tail"), (PLAIN, PLAIN), (b"", PLAIN), (PLAIN, b""), (b"a", b"b", b"c")])
def test_every_member_of_a_file_is_decompressed(parts: tuple[bytes, ...]) -> None:
    data = b"".join(gzip.compress(part, mtime=0) for part in parts)
    assert gunzip(data, "x") == b"".join(parts) == gzip.decompress(data)


def test_cut_short_at_any_byte_is_told_with_its_length() -> None:
    data = gzip.compress(PLAIN, mtime=0)
    for length in range(2, len(data)):
        with pytest.raises(DataError, match=rf"set: is gzip data cut short at byte {length}; copy it again"):
            gunzip(data[:length], "set")


def test_a_flipped_bit_is_told_unless_the_content_is_still_right() -> None:
    data = gzip.compress(PLAIN, mtime=0)
    silent, messages = set(), list[str]()
    for index in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[index] ^= 1 << bit
            try:
                assert gunzip(damaged, "set") == PLAIN
                silent.add(index)
            except DataError as error:
                messages.append(str(error))
    header = {3, 4, 5, 6, 7, 8, 9}  # a flag for text, time stamp, system: nothing that decides the content
    assert header <= silent
    assert len(silent - header) < 6, "filling bits and unused code lengths only"
    assert all(message.startswith("set: ") and "\n" not in message for message in messages)


@pytest.mark.parametrize("extra", [b"\0", b"\0" * 8, b"junk", b"\xff" * 4, PLAIN])
def test_anything_behind_the_data_is_told_with_its_place(extra: bytes) -> None:
    data = gzip.compress(PLAIN, mtime=0)
    with pytest.raises(DataError, match=rf"has {len(extra)} bytes after the end of its gzip data at byte {len(data)}"):
        gunzip(data + extra, "x")


@pytest.mark.parametrize("extra", [b"\0", b"x" * 8, bytes(100), PLAIN])
@pytest.mark.parametrize("header", [b"", b"name\0"])
def test_bytes_between_the_data_and_the_trailer_are_told(extra: bytes, header: bytes) -> None:
    data = gzip.compress(PLAIN, mtime=0)
    start = data[:3] + (b"\x08" if header else b"\0") + data[4:10] + header
    assert gunzip(start + data[10:], "x") == PLAIN
    stuffed = start + data[10:-8] + extra + data[-8:]
    with pytest.raises((gzip.BadGzipFile, zlib.error)):
        gzip.decompress(stuffed)
    with pytest.raises(DataError, match="damaged gzip data"):
        gunzip(stuffed, "x")


def test_a_trailer_before_bytes_and_another_trailer_is_told() -> None:
    data = gzip.compress(PLAIN, mtime=0)
    with pytest.raises(DataError, match="has 16 bytes after the end"):
        gunzip(data + b"x" * 8 + data[-8:], "x")


def test_of_two_members_of_one_size_both_are_read() -> None:
    other = bytes(reversed(PLAIN))
    assert gunzip(gzip.compress(PLAIN) + gzip.compress(other), "x") == PLAIN + other


def test_empty_members_are_few_or_between_others() -> None:
    """Block-wise gzip ends with an empty member, and files of it may follow each other."""
    full, empty = gzip.compress(PLAIN, mtime=0), gzip.compress(b"", mtime=0)
    assert gunzip((full + empty) * 40, "x") == PLAIN * 40
    assert gunzip(full + empty * 16, "x") == PLAIN
    with pytest.raises(DataError, match="set: has many empty gzip members, the last before byte"):
        gunzip(full + empty * 2000, "set")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """One or two members, with bytes changed, left out, put in or said twice anywhere."""
    data = b"".join(gzip.compress(part, mtime=0) for part in draw(st.lists(st.binary(max_size=60), max_size=2)))
    data = data or gzip.compress(b"content", mtime=0)
    for _ in range(draw(st.integers(1, 3))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(0, 20))
        put = draw(st.one_of(st.binary(max_size=12), st.just(data[max(0, place - 8) : place]), st.just(data[-8:])))
        data = data[:place] + put + data[place + length * draw(st.integers(0, 1)) :]
    return data


@pytest.mark.slow
@settings(max_examples=400)
@given(damaged())
def test_what_pythons_gzip_refuses_is_refused_and_what_is_read_is_the_same(data: bytes) -> None:
    """Python's lets zeros follow the last member and does not check the checksum of a header; neither is taken here."""
    try:
        plain = gunzip(data, "x")
    except DataError:
        return
    assert plain == gzip.decompress(data)


def test_damage_names_the_bytes_it_lies_between() -> None:
    stored = bytearray(gzip.compress(bytes(200_000), 0, mtime=0))
    stored[150_000] ^= 1
    with pytest.raises(DataError, match=r"damaged gzip data between bytes \d+ and 200\d+ .*incorrect data check"):
        gunzip(stored, "x")


@pytest.mark.parametrize("data", [b"", b"\x1f", PLAIN])
def test_plain_where_gzip_was_said(data: bytes) -> None:
    with pytest.raises(DataError) as error:
        gunzip(data, "set")
    assert str(error.value) == (
        "set: is not gzip although compression 'gzip' was said; set data.compression none, or copy it again"
    )


def test_gzip_where_plain_was_said() -> None:
    refuse_gzip(PLAIN, "set")
    with pytest.raises(DataError) as error:
        refuse_gzip(gzip_bytes(PLAIN), "set")
    assert str(error.value) == "set: is gzip although compression 'none' was said; set data.compression gzip"


def test_a_size_in_the_trailer_is_not_trusted() -> None:
    data = gzip.compress(PLAIN, mtime=0)[:-4] + b"\xff\xff\xff\xff"
    with pytest.raises(DataError, match="incorrect length check"):
        gunzip(data, "x")


@settings(max_examples=30)
@given(st.binary(min_size=1, max_size=300))
def test_a_member_whose_trailer_occurs_earlier_in_the_file_is_still_whole(data: bytes) -> None:
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    named = b"\x1f\x8b\x08\x04\0\0\0\0\0\x03\x08\x00" + trailer + bytes(gzip_bytes(data)[10:])
    assert gunzip(named, "x") == data == gzip.decompress(named)
