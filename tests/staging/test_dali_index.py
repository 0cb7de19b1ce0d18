"""The index of a TFRecord agrees with the one of the tfrecord package's tool, and every damage is told."""

import gzip
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord.tools.tfrecord2idx import create_index

from staging.errors import DataError
from staging.formats.tfrecord import masked_crc32c, write_records
from staging.landing.transform.dali_index import RecordScanner, index_text, scan_records
from staging.landing.transforms import sink_maker
from tests.staging.opened import opened

TIME = 1_500_000_000_000_000_000


def tfrecord(folder: Path, payloads: list[bytes]) -> bytes:
    write_records(folder / "records", payloads, "none")
    return (folder / "records").read_bytes()


def land(folder: Path, transform: str, name: str, data: bytes, piece: int = 10_000) -> list[tuple[str, str]]:
    sink = sink_maker(transform)(opened(folder), name, len(data), TIME)
    try:
        for start in range(0, len(data), piece):
            sink.write(memoryview(data)[start : start + piece])
        return [(landed.name, landed.source) for landed in sink.close()]
    except BaseException:
        sink.abandon()
        raise


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=6), st.integers(1, 300), st.booleans())
def test_the_index_is_that_of_another_tool(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], piece: int, packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("set")
    data = tfrecord(folder, payloads)
    create_index(str(folder / "records"), str(folder / "expected"))
    sent = gzip.compress(data) if packed else data
    name = "t/a.gz" if packed else "t/a"
    landed = land(folder, "gunzip+tfrecord-index" if packed else "tfrecord-index", name, sent, piece)
    assert landed == [("t/a", name), ("t/a.idx", name)]
    assert (folder / "t/a").read_bytes() == data
    assert (folder / "t/a.idx").read_bytes() == (folder / "expected").read_bytes()


def test_the_lines_of_an_index() -> None:
    assert index_text([(0, 29), (29, 16)]) == b"0 29\n29 16\n"


def test_cut_short_at_any_byte_and_a_flipped_bit_anywhere(tmp_path: Path) -> None:
    data = tfrecord(tmp_path, [b"first", b"second payload"])
    ends = {0, 21}
    for length in set(range(len(data))) - ends:
        with pytest.raises(DataError, match=rf"a: record {int(length > 21)} at byte {21 * (length > 21)} is cut short"):
            scan_records("a", memoryview(data)[:length])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataError, match=r"a: record [01] at byte (0|21) [^\n]*CRC32C[^\n]*$"):
            scan_records("a", memoryview(damaged))


def test_damage_leaves_nothing_behind(tmp_path: Path) -> None:
    data = tfrecord(tmp_path, [b"first", b"second payload"])
    with pytest.raises(DataError, match=r"record 1 at byte 21 is cut short; copy the file again, or remove it"):
        land(tmp_path / "to", "tfrecord-index", "a", data[:-1])
    assert list((tmp_path / "to").iterdir()) == []


def test_gzip_is_refused_with_the_chain_to_use(tmp_path: Path) -> None:
    data = gzip.compress(tfrecord(tmp_path, [b"first"]))
    with pytest.raises(DataError) as error:
        land(tmp_path / "to", "tfrecord-index", "a", data)
    assert str(error.value) == "a: is gzip, and an index needs plain records; use gunzip+tfrecord-index"


def test_other_files_and_empty_ones() -> None:
    with pytest.raises(
        DataError, match=r"a: record 0 at byte 0 has a length whose CRC32C does not match \(damaged, or"
    ):
        scan_records("a", memoryview(bytes(100)))
    with pytest.raises(DataError, match="a: is empty; copy the file again"):
        scan_records("a", memoryview(b""))


def test_a_length_of_exabytes_takes_no_memory() -> None:
    size = struct.pack("<Q", 1 << 62)
    scanner = RecordScanner("a")
    scanner.feed(memoryview(size + struct.pack("<I", masked_crc32c(size)) + b"payload"))
    with pytest.raises(DataError, match="a: record 0 at byte 0 is cut short"):
        scanner.finish()
