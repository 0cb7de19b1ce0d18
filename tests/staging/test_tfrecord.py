"""TFRecord framing: published checksums, agreement with the tfrecord package, and every kind of damage."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord.reader import tfrecord_iterator
from tfrecord.writer import TFRecordWriter

from staging.errors import DataError
from staging.formats.compression import Compression
from staging.formats.tfrecord import masked_crc32c, read_records, write_records

PAYLOADS = [b"first payload", b"", b"x" * 300]
BOTH = pytest.mark.parametrize("compression", ["none", "gzip"])


def unmasked(masked: int) -> int:
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17) | (rotated << 15) & 0xFFFFFFFF


def read(path: Path, compression: Compression) -> list[bytes]:
    return [bytes(record) for record in read_records(path, compression)]


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksums_are_those_of_rfc_3720(data: bytes, crc: int) -> None:
    assert unmasked(masked_crc32c(data)) == crc
    assert masked_crc32c(memoryview(data)) == struct.unpack("<I", TFRecordWriter.masked_crc(data))[0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.sampled_from(["none", "gzip"]), st.integers(1, 9))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], compression: Compression, level: int
) -> None:
    path = tmp_path_factory.mktemp("set") / "a.tfrecord"
    write_records(path, payloads, compression, level)
    assert read(path, compression) == payloads


@BOTH
def test_the_tfrecord_package_reads_what_we_write(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, PAYLOADS, compression)
    theirs = tfrecord_iterator(str(path), compression_type=None if compression == "none" else "gzip")
    assert [bytes(record) for record in theirs] == PAYLOADS


def test_we_read_what_the_tfrecord_package_writes_and_write_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    writer = TFRecordWriter(str(path))
    for label in (0.5, -1.0):
        writer.write({"x": (b"\x01\x00" * 9, "byte"), "y": ([label] * 4, "float")})
    writer.close()
    records = read(path, "none")
    assert records == [bytes(record) for record in tfrecord_iterator(str(path))]
    write_records(tmp_path / "b.tfrecord", records, "none")
    assert (tmp_path / "b.tfrecord").read_bytes() == path.read_bytes()
    (tmp_path / "c.tfrecord").write_bytes(gzip.compress(path.read_bytes()))
    assert read(tmp_path / "c.tfrecord", "gzip") == records


def test_the_same_payloads_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_records(tmp_path / name, PAYLOADS, "gzip")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_payloads_are_not_copied_from_the_decompressed_file(tmp_path: Path) -> None:
    write_records(tmp_path / "a", PAYLOADS, "gzip")
    first, _, third = read_records(tmp_path / "a", "gzip")
    assert first.obj is third.obj


def test_a_plain_file_is_read_no_further_than_asked(tmp_path: Path) -> None:
    write_records(tmp_path / "a", PAYLOADS, "none")
    with (tmp_path / "a").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    records = read_records(tmp_path / "a", "none")
    assert bytes(next(records)) == PAYLOADS[0]
    assert bytes(next(records)) == PAYLOADS[1]
    with pytest.raises(DataError, match=r"record 2 at byte 45 is damaged: the CRC32C of its 300 bytes"):
        next(records)


@BOTH
def test_cut_short_at_any_byte(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"only payload"], compression)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"a\.tfrecord: [^\n]*(cut short|is empty|is not gzip)[^\n]*$"):
            read(path, compression)


def test_gzip_of_a_file_that_was_cut_short_before(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"only payload"], "none")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(gzip.compress(whole[:length]))
        with pytest.raises(DataError, match=r"cut short|is empty"):
            read(path, "gzip")


def test_a_flipped_bit_anywhere_in_a_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"only payload"], "none")
    whole = path.read_bytes()
    for index in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[index] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=r"record 0 at byte 0 [^\n]*CRC32C[^\n]*$"):
                read(path, "none")


def test_a_flipped_bit_anywhere_in_a_gzip_file_never_gives_wrong_data(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"only payload"], "gzip")
    whole = path.read_bytes()
    messages = []
    for index in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[index] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert read(path, "gzip") == [b"only payload"]
            except DataError as error:
                messages.append(str(error))
    assert len(messages) > 0.8 * 8 * len(whole), "all but time stamp, system and filling bits"
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages)


@pytest.mark.parametrize("length", [13, 10**6, 2**40, 2**64 - 1])
def test_a_length_beyond_the_file_is_told_before_memory_is_taken(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.tfrecord"
    size = struct.pack("<Q", length)
    body = size + struct.pack("<I", masked_crc32c(size)) + b"only payload" + bytes(4)
    path.write_bytes(body)
    with pytest.raises(DataError, match=rf"record 0 at byte 0 is cut short: it says {length} bytes and 12 are there"):
        read(path, "none")
    path.write_bytes(gzip.compress(body))
    with pytest.raises(DataError, match=rf"it says {length} bytes and 12 are there"):
        read(path, "gzip")


@BOTH
@pytest.mark.parametrize("extra", [b"\0", b"\0" * 16, b"trailing garbage"])
def test_anything_behind_the_last_record(tmp_path: Path, compression: Compression, extra: bytes) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"only payload"], compression)
    path.write_bytes(path.read_bytes() + extra)
    with pytest.raises(DataError, match=r"record 1 at byte 28|bytes after the end of its gzip data"):
        read(path, compression)


def test_wrong_compression_is_told_both_ways(tmp_path: Path) -> None:
    for said, other in (("none", "gzip"), ("gzip", "none")):
        write_records(tmp_path / said, PAYLOADS, said)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=f"compression '{other}' was said; set data.compression {said}"):
            read(tmp_path / said, other)  # type: ignore[arg-type]


def test_another_file_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x89HDF\r\n\x1a\n" * 20)
    with pytest.raises(DataError, match="not a TFRecord"):
        read(tmp_path / "a", "none")
    with pytest.raises(DataError, match=r"b: cannot be read \(No such file or directory\)"):
        read(tmp_path / "b", "none")


@BOTH
def test_a_sample_of_the_published_size(tmp_path: Path, compression: Compression) -> None:
    counts = np.random.default_rng(0).poisson(0.4, 128**3 * 4).astype(np.int16)
    payload = counts.tobytes()
    assert len(payload) == 16_777_216
    write_records(tmp_path / "a", [payload], compression, level=1)
    [record] = read_records(tmp_path / "a", compression)
    assert np.array_equal(np.frombuffer(record, np.int16), counts)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_records(tmp_path / "a", PAYLOADS, "none")
    with pytest.raises(TypeError):
        write_records(tmp_path / "a", [b"good", "not bytes"], "none")  # type: ignore[list-item]
    assert read(tmp_path / "a", "none") == PAYLOADS
    assert len(list(tmp_path.iterdir())) == 1
