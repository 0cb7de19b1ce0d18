"""Files that lie about their size, or are none: refused in one line, at once, and without the memory they ask for."""

from __future__ import annotations

import gzip
import os
import resource
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from staging.errors import DataError
from staging.formats import compression
from staging.formats.compression import gunzip, gzip_bytes
from staging.formats.example import MOST_FIELDS, decode_example
from staging.formats.hdf5 import check_whole, describe, read_dataset
from staging.formats.npy import npy_header, read_array, write_array
from staging.formats.regular import opened, refuse_special
from staging.formats.tfrecord import masked_crc32c, read_record, read_records, write_records

DATA = np.arange(4096, dtype=np.int16).reshape(16, 16, 16)
SHAPE = DATA.shape
ROOM = 256 << 20
"""Address space that a reader has on top of what Python and its libraries take."""

READERS: dict[str, Callable[[Path], object]] = {
    "plain TFRecord": lambda path: read_record(path, "none", 1 << 20),
    "gzip TFRecord": lambda path: read_record(path, "gzip", 1 << 20),
    "npy": lambda path: read_array(path, shape=SHAPE, dtype=np.int16),
    "HDF5": lambda path: read_dataset(path, "x", shape=SHAPE, dtype_kind="i"),
    "HDF5 whole": lambda path: check_whole(path, 1 << 20),
    "HDF5 described": describe,
    "regular": refuse_special,
}
every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def said(read: Callable[[Path], object], path: Path) -> str:
    """The one line that a reader refuses ``path`` with."""
    with pytest.raises(DataError) as error:
        read(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.fixture
def bounded() -> Iterator[None]:
    """While a test runs, this process can take no more than ``ROOM`` bytes of further address space."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@every_reader
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    assert said(read, tmp_path / "pipe") == "is a pipe, not a file; remove it"
    assert said(read, tmp_path / "link") == "is a pipe, not a file; remove it"


@every_reader
def test_a_socket_a_device_and_a_folder_are_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert said(read, tmp_path / "s") == "is a socket, not a file; remove it"
    assert said(read, Path("/dev/zero")) == "is a character device, not a file; remove it"
    assert said(read, tmp_path) == "is a folder, not a file; remove it"
    assert "No such file" in said(read, tmp_path / "none")


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", DATA)
    (tmp_path / "b.npy").symlink_to(tmp_path / "a.npy")
    assert np.array_equal(read_array(tmp_path / "b.npy", shape=SHAPE, dtype=np.int16), DATA)
    with opened(tmp_path / "b.npy") as file:
        assert os.get_blocking(file.fileno())


def zeros(size: int) -> bytes:
    """A deflate stream that grows to ``size`` zeros, about a thousandth of that itself, without its end."""
    packer = zlib.compressobj(9, wbits=-15)
    return (packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)) * (size >> 24)


def bomb(size: int, says: int) -> bytes:
    """One gzip member of ``size`` zeros whose trailer ``says`` another size."""
    return gzip.compress(b"")[:10] + zeros(size) + b"\x03\0" + struct.pack("<II", 0, says)


@pytest.fixture(scope="module")
def twelve_gigabytes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 GB of zeros as 12 MB of gzip; its trailer says that they are a sample of the published size."""
    path = tmp_path_factory.mktemp("bomb") / "a.tfrecord"
    path.write_bytes(bomb(12 << 30, says=2 * 128**3 * 4))
    assert 10_000_000 < path.stat().st_size < 14_000_000
    return path


@pytest.mark.parametrize("library", ["libdeflate", "zlib"])
def test_gzip_of_12_mb_that_grows_to_12_gb(
    twelve_gigabytes: Path, library: str, monkeypatch: pytest.MonkeyPatch, bounded: None
) -> None:
    if library == "zlib":
        monkeypatch.setattr(compression, "libdeflate", None)
    sample = 2 * 128**3 * 4
    message = said(lambda path: read_record(path, "gzip", sample), twelve_gigabytes)
    assert message.startswith(f"is gzip that grows beyond {sample} bytes, the most that are expected")
    # a file that could not hold so few bytes is not even read
    message = said(lambda path: read_record(path, "gzip", 1 << 20), twelve_gigabytes)
    assert "bytes where at most 1115" in message


def test_a_trailer_that_says_too_little(bounded: None) -> None:
    with pytest.raises(DataError, match="grows beyond 2000 bytes"):
        gunzip(bomb(1 << 30, says=1000), "x", 2000)
    with pytest.raises(DataError, match="grows beyond 2000 bytes"):
        gunzip(gzip.compress(b"one") + bomb(1 << 30, says=1000), "x", 2000)


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_gzip_of_no_more_than_the_bound_is_whole(size: int) -> None:
    data = os.urandom(size)
    assert gunzip(gzip_bytes(data), "x", 1000) == data
    assert gunzip(gzip.compress(data) + gzip.compress(b""), "x", 1000) == data
    if size:
        with pytest.raises(DataError, match=f"grows beyond {size - 1} bytes"):
            gunzip(gzip_bytes(data), "x", size - 1)


def record(payload: bytes, length: int | None = None) -> bytes:
    """A framed record, which may say another length; both checksums are right."""
    head = struct.pack("<Q", len(payload) if length is None else length)
    crcs = struct.pack("<I", masked_crc32c(head)), struct.pack("<I", masked_crc32c(payload))
    return head + crcs[0] + payload + crcs[1]


@pytest.mark.parametrize("packed", ["none", "gzip"])
def test_a_record_of_an_exabyte_and_a_second_record(
    tmp_path: Path, packed: compression.Compression, bounded: None
) -> None:
    path = tmp_path / "a.tfrecord"

    def write(data: bytes) -> Path:
        path.write_bytes(data if packed == "none" else gzip.compress(data))
        return path

    def read(path: Path) -> object:
        return read_record(path, packed, 1 << 16)

    assert bytes(read_record(write(record(b"one")), packed, 1 << 16)) == b"one"
    assert f"it says {1 << 60} bytes and 3 are there" in said(read, write(record(b"one", 1 << 60)))
    assert "has a second record, of 3 bytes, where one is expected" in said(
        read, write(record(b"one") + record(b"two"))
    )
    assert "record 1 at byte 19" in said(read, write(record(b"one") + b"garbage"))
    assert len(list(read_records(write(record(b"one") + record(b"two")), packed))) == 2


def test_a_plain_record_larger_than_a_sample_is_not_read(tmp_path: Path, bounded: None) -> None:
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        file.write(record(b"")[:12])
        file.truncate(22 << 30)
    assert "has 23622320128 bytes where at most 65536 are expected" in said(
        lambda p: read_record(p, "none", 1 << 16), path
    )


@pytest.mark.slow
def test_millions_of_fields_in_an_example() -> None:
    nothing = b"\x0a\x00"  # field 1 of no bytes
    with pytest.raises(DataError, match=f"it has more than {MOST_FIELDS} fields"):
        decode_example(nothing * (MOST_FIELDS + 1), "x")
    # a hundred thousand lists in one feature took a time that grows with their square
    lists = nothing * (1 << 17)
    feature = b"\x12" + varint(len(lists)) + lists
    entry = b"\x0a\x01x" + feature
    features = b"\x0a" + varint(len(entry)) + entry
    assert decode_example(b"\x0a" + varint(len(features)) + features) == {"x": []}


def varint(number: int) -> bytes:
    """As protocol buffers write it."""
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def test_an_npy_header_that_says_22_gib(tmp_path: Path, bounded: None) -> None:
    path = tmp_path / "a.npy"
    header = npy_header((22 << 29,), np.int16)
    path.write_bytes(header + b"few")
    assert "has shape (11811160064,)" in said(READERS["npy"], path)
    open_shape = lambda path: read_array(path, shape=(None,), dtype=np.int16)  # noqa: E731
    assert "holds 3 bytes of data where its header says 23622320128" in said(open_shape, path)
    with path.open("r+b") as file:  # a hole: it is there, and takes no disk
        file.truncate(len(header) + (22 << 30))
    assert "holds 23622320128 bytes, and at most 2147483648 are read" in said(open_shape, path)


def test_an_npy_header_without_end(tmp_path: Path, bounded: None) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100)
        file.truncate(4 << 30)
    assert "is not an npy file" in said(READERS["npy"], path)


def test_an_npy_file_longer_than_its_header_says(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", DATA)
    with (tmp_path / "a.npy").open("ab") as file:
        file.write(b"!")
    assert "holds 8193 bytes of data where its header says 8192" in said(READERS["npy"], tmp_path / "a.npy")


def test_pax_attributes_of_a_million_bytes_take_no_time() -> None:
    """A megabyte of six-byte records was copied once for each of them: two seconds for every member."""
    script = (
        "import io, tarfile, sys\n"
        "from staging.formats.tar import TarParser\n"
        "data = b'6 a=b\\n' * 170_000\n"
        "head = tarfile.TarInfo('x'); head.type, head.size = tarfile.XHDTYPE, len(data)\n"
        "parser = TarParser('set', None)\n"
        "for _ in range(6): parser.feed(memoryview(head.tobuf() + data + bytes(-len(data) % 512)))\n"
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (5, 5))  # noqa: E731
    subprocess.run([sys.executable, "-c", script], check=True, preexec_fn=limit)


def test_writing_and_reading_of_sound_files_is_as_it_was(tmp_path: Path) -> None:
    write_records(tmp_path / "a", [DATA.tobytes()], "gzip")
    assert bytes(read_record(tmp_path / "a", "gzip", DATA.nbytes + 16)) == DATA.tobytes()
    with pytest.raises(DataError, match=f"grows beyond {DATA.nbytes + 15} bytes"):
        read_record(tmp_path / "a", "gzip", DATA.nbytes + 15)
