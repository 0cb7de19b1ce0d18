"""``gunzip`` against Python's own: whole, in pieces and in chains of members; damage is told with its place."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.errors import DataError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.sinks import Landed
from staging.landing.transform import gunzip as gunzip_module
from staging.landing.transforms import find_transform
from staging.storage.destination_folder import DestinationFolder
from tests.staging.opened import opened
from tests.staging.transforming import PLAIN, TIME, files, land, problem


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=3), st.integers(1, 500), st.booleans())
def test_gunzip_agrees_with_pythons_gzip(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], piece: int, stream: bool
) -> None:
    folder = tmp_path_factory.mktemp("to")
    data = b"".join(gzip.compress(part) for part in parts)
    plain = gzip.decompress(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gunzip_module, "WHOLE_BYTES", 0 if stream else 1 << 20)
        landed = land(folder, "gunzip", "x/a.gz", data, piece)
    assert landed == [Landed("x/a", len(plain), crc32c(plain), "x/a.gz", TIME)]
    assert files(folder) == {"x/a": plain}
    assert (folder / "x/a").stat().st_mtime_ns == TIME


@pytest.fixture(params=["whole", "pieces", "large content"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pieces":
        monkeypatch.setattr(gunzip_module, "WHOLE_BYTES", 0)
    elif request.param == "large content":
        monkeypatch.setattr(gunzip_module, "PLAIN_BYTES", 10)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("members", [1, 3])
def test_what_grows_beyond_the_largest_file_of_a_set_does_not_land(tmp_path: Path, members: int) -> None:
    data = members * gzip.compress(bytes(3 << 20))
    size = members * (3 << 20)
    for largest in (size - 1, size):
        sink = find_transform("gunzip").sinks(FileSinkMaker(largest=largest))(opened(tmp_path), "a.gz", len(data), TIME)
        if largest == size:
            sink.write(memoryview(data))
            assert [landed.size for landed in sink.close()] == [size]
            continue
        with pytest.raises(DataError, match=f"^a.gz: grows beyond {largest} bytes, the most that a file of this set"):
            sink.write(memoryview(data))
        sink.abandon()
        assert files(tmp_path) == {}, "nothing stays behind"
    copied = FileSinkMaker(largest=10)(opened(tmp_path), "as it is", 11, TIME)
    copied.write(memoryview(bytes(11)))
    assert copied.close()[0].size == 11, "a file that no transform makes has the size of its source"


@pytest.mark.usefixtures("_each_way")
def test_every_damage_to_gzip_is_told(tmp_path: Path) -> None:
    data = gzip.compress(random.Random(0).randbytes(200), mtime=0)
    for length in range(1, len(data)):
        assert "a.gz: is " in problem(tmp_path, "gunzip", "a.gz", data[:length], 50)
    for index in (5, -1, -5):
        bad = bytearray(data)
        bad[index] ^= 1
        if index == 5:
            land(tmp_path / "time", "gunzip", "a.gz", bytes(bad))
            (tmp_path / "time/a").unlink()
        else:
            assert "a.gz: has damaged gzip data" in problem(tmp_path, "gunzip", "a.gz", bytes(bad), 50)
    assert "after the end of its gzip data at byte" in problem(tmp_path, "gunzip", "a.gz", data + b"extra bytes", 50)
    assert problem(tmp_path, "gunzip", "b", PLAIN, 50).startswith("b: is not gzip")


def test_gunzip_says_what_to_change(tmp_path: Path) -> None:
    data = gzip.compress(PLAIN, mtime=0)
    assert problem(tmp_path, "gunzip", "b", PLAIN) == (
        "b: is not gzip; leave it out (--exclude), or as it is (--plain NAME; auto for all that end otherwise)"
    )
    assert problem(tmp_path, "gunzip", "b", b"") == (
        "b: is not gzip; leave it out (--exclude), or as it is (--plain NAME; auto for all that end otherwise)"
    )
    assert (
        problem(tmp_path, "gunzip", "b", data[:-3])
        == f"b: is gzip data cut short at byte {len(data) - 3}; copy it again"
    )


def test_gunzip_in_pieces_says_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gunzip_module, "WHOLE_BYTES", -1)
    data = gzip.compress(PLAIN, mtime=0)
    assert problem(tmp_path, "gunzip", "b", PLAIN) == (
        "b: is not gzip; leave it out (--exclude), or as it is (--plain NAME; auto for all that end otherwise)"
    )
    assert problem(tmp_path, "gunzip", "b", b"") == "b: is gzip data cut short at byte 0; copy it again"
    assert (
        problem(tmp_path, "gunzip", "b", data[:-3])
        == f"b: is gzip data cut short at byte {len(data) - 3}; copy it again"
    )
    assert problem(tmp_path, "gunzip", "b", data + b"\0" * 9) == (
        f"b: has other bytes after the end of its gzip data at byte {len(data)}; copy it again"
    )
    bad = data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]
    assert problem(tmp_path, "gunzip", "b", bad) == (
        "b: has damaged gzip data behind byte 0 (Error -3 while decompressing data: incorrect data check); "
        "copy it again"
    )


def test_a_gzip_of_a_large_content_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = FileSinkMaker()

    def counting(destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Any:
        sink = real(destination, name, size, mtime_ns, source)
        write = sink.write

        class Counting:
            close, abandon = sink.close, sink.abandon

            def write(self, data: memoryview) -> None:
                sizes.append(len(data))
                write(data)

        return Counting()

    monkeypatch.setattr(gunzip_module, "PLAIN_BYTES", 1 << 20)
    counting.estimate = real.estimate  # type: ignore[attr-defined]
    data = gzip.compress(bytes(50 << 20))
    sink = find_transform("gunzip").sinks(counting)(opened(tmp_path), "a.gz", len(data), TIME)  # type: ignore[arg-type]
    sink.write(memoryview(data))
    assert sink.close()[0].size == 50 << 20
    assert max(sizes) <= 1032 << 14
