"""Rows of an HDF5 file, read as npy entries: any split gives the bytes of numpy.save, and what does not fit is told."""

import errno
import io
import os
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.errors import DataError, InputError
from staging.formats import hdf5_chunks
from staging.options import StageOptions
from staging.source import hdf5_source
from staging.source.hdf5_source import HDF5Source
from staging.source.listing import UNKNOWN
from tests.staging.test_stage import stage_all

DATA = np.random.default_rng(0).normal(size=(37, 5, 3)).astype(np.float32)
LABEL = np.arange(37, dtype=np.int16)
FORMS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (5, 2, 3)},
    "large chunks": {"chunks": (20, 5, 3)},
    "compressed": {"chunks": (4, 5, 3), "compression": "gzip"},
    "compressed and shuffled": {"chunks": (4, 2, 3), "compression": "gzip", "shuffle": True},
    "compressed otherwise": {"chunks": (4, 2, 3), "compression": "lzf"},
    "big endian, compressed": {"dtype": ">f4", "chunks": (3, 5, 3), "compression": "gzip"},
    "checked": {"chunks": (1, 5, 3), "fletcher32": True},
    "big endian": {"dtype": ">f4"},
    "big endian in chunks": {"dtype": ">f4", "chunks": (3, 5, 3)},
}


def written(path: Path, data: np.ndarray = DATA, label: np.ndarray = LABEL, **form: Any) -> Path:
    options = {key: value for key, value in form.items() if key == "userblock_size"}
    with h5py.File(path, "w", **options) as file:
        file.create_dataset("data", data=data, **{key: value for key, value in form.items() if key not in options})
        file.create_dataset("label", data=label)
    return path


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def read(source: HDF5Source, entry: int, cuts: list[int] | None = None) -> bytes:
    reader, size = source.reader(), int(source.listing.sizes[entry])
    buffer = bytearray(size)
    places = sorted({0, size, *(cut % (size + 1) for cut in cuts or [])})
    for start, stop in pairwise(places):
        reader.read_into(entry, start, memoryview(buffer)[start:stop])
    reader.finish(entry)
    reader.close()
    return bytes(buffer)


@pytest.fixture(scope="module", params=FORMS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HDF5Source:
    return HDF5Source(written(tmp_path_factory.mktemp("set") / "train.h5", **FORMS[request.param]))


def test_the_listing(source: HDF5Source) -> None:
    listing = source.listing
    names = list(listing.names)
    assert names[:4] == ["00000000_data.npy", "00000000_label.npy", "00000001_data.npy", "00000001_label.npy"]
    assert len(names) == len(listing) == 74
    assert names == sorted(names)
    assert listing.sizes.tolist()[:2] == [len(saved(DATA[0])), len(saved(LABEL[0]))]
    assert set(listing.mtimes_ns.tolist()) == {source.path.stat().st_mtime_ns}
    assert set(listing.checksums.tolist()) == {UNKNOWN}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 73), st.lists(st.integers(0, 10**6), max_size=6))
def test_any_split_gives_the_bytes_of_numpy_save(source: HDF5Source, entry: int, cuts: list[int]) -> None:
    array = np.asarray((LABEL if entry % 2 else DATA)[entry // 2])
    assert read(source, entry, cuts) == saved(array)


def test_one_reader_reads_all_rows_in_any_order(source: HDF5Source) -> None:
    reader = source.reader()
    for entry in [*range(74), *range(73, -1, -1)]:
        buffer = bytearray(int(source.listing.sizes[entry]))
        reader.read_into(entry, 0, memoryview(buffer))
        array = np.load(io.BytesIO(bytes(buffer)))
        assert np.array_equal(array, (LABEL if entry % 2 else DATA)[entry // 2])
        assert array.dtype == (LABEL if entry % 2 else DATA).dtype
    reader.close()


def test_a_contiguous_dataset_is_read_exactly_once(tmp_path: Path) -> None:
    source = HDF5Source(written(tmp_path / "a.h5"), ["data"])
    reader = source.reader()
    before = int(Path("/proc/self/io").read_text().split()[1])
    for entry in range(37):
        reader.read_into(entry, 0, memoryview(bytearray(int(source.listing.sizes[entry]))))
    after = int(Path("/proc/self/io").read_text().split()[1])
    own = after - before
    assert reader.counters.bytes_read == DATA.nbytes
    assert DATA.nbytes <= own < DATA.nbytes + 500, "the count itself is read from a file too"


@pytest.mark.parametrize("form", ["compressed", "compressed and shuffled"])
def test_neighbouring_rows_of_chunks_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    source = HDF5Source(written(tmp_path / "a.h5", **FORMS[form]), ["data"])
    decoded, inflate = [], hdf5_chunks._inflate
    monkeypatch.setattr(hdf5_chunks, "_inflate", lambda data, size: (decoded.append(len(data)), inflate(data, size))[1])
    reader = source.reader()
    for entry in range(37):
        reader.read_into(entry, 0, memoryview(bytearray(int(source.listing.sizes[entry]))))
        reader.finish(entry)
    assert len(decoded) == 10 * (3 if "shuffled" in form else 1), "one chunk has four rows, or parts of these"
    assert reader.counters.bytes_read == sum(decoded)
    assert reader.counters.files_read == 1, "the rows are in one file"
    reader.close()


def test_rows_count_as_the_bytes_that_they_take_in_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.h5", np.zeros((64, 1000), np.float32), np.arange(64), compression="gzip", chunks=(4, 1000)
    )
    options = StageOptions(path, str(tmp_path / "{node}"), "shard")
    totals = stage_all([1, 1], options).totals
    with h5py.File(path) as file:
        stored = file["data"].id.get_storage_size()
    assert stored < 3000
    assert 64 * 8 + stored <= totals.bytes_read <= 64 * 8 + 2 * stored, "a chunk with rows of two nodes is read by both"


@pytest.mark.parametrize(("chunk_rows", "block_rows", "read"), [(4, 16, [43, 43, 14]), (40, 16, [100, 100, 100])])
def test_a_chunk_that_is_larger_than_a_block_counts_for_each_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int, block_rows: int, read: list[int]
) -> None:
    monkeypatch.setattr(hdf5_source, "_block_rows", lambda *_: block_rows)
    source = HDF5Source(written(tmp_path / "a.h5", chunks=(min(chunk_rows, 37), 5, 3), compression="gzip"), ["data"])
    column = source.columns[0]
    column.stored_bytes = 100
    assert [column.stored(first) for first in (0, 16, 32)] == read


@pytest.mark.parametrize(
    ("chunk_rows", "row_bytes", "rows"),
    [(1, 0, 16), (1, 4, 16), (5, 4, 15), (16, 4, 16), (1000, 4, 1000), (1, 4 << 20, 8), (3, 4 << 20, 6),
     (1, 64 << 20, 1), (8, 32 << 20, 8), (16, 32 << 20, 1)],
)  # fmt: skip
def test_rows_read_at_a_time(chunk_rows: int, row_bytes: int, rows: int) -> None:
    assert hdf5_source._block_rows(chunk_rows, row_bytes) == rows


def test_a_file_with_a_user_block(tmp_path: Path) -> None:
    source = HDF5Source(written(tmp_path / "a.h5", userblock_size=1024))
    assert source.columns[0].offset is not None
    assert read(source, 6) == saved(DATA[3])


def test_a_dataset_never_written_is_its_fill_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (4, 3), "f4", fillvalue=2.5)
    assert read(HDF5Source(tmp_path / "a.h5"), 2) == saved(np.full(3, 2.5, np.float32))


def test_groups_and_a_choice_of_datasets(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["climate/data"], file["climate/labels_0"], file["other"] = DATA, LABEL, np.arange(5)
    source = HDF5Source(tmp_path / "a.h5", ["/climate/labels_0", "climate/data"])
    assert list(source.listing.names)[:2] == ["00000000_data.npy", "00000000_labels_0.npy"]
    assert read(source, 2) == saved(DATA[1])


@pytest.mark.parametrize("kind", ["?", "u1", "<f2", "<f8", "<i8", "<c8"])
@pytest.mark.parametrize("shape", [(3,), (3, 0), (3, 2)])
def test_kinds_of_numbers(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(kind)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = array
    source = HDF5Source(tmp_path / "a.h5")
    for row in range(3):
        assert read(source, row) == saved(np.asarray(array[row]))


def refused(path: Path, datasets: list[str] | None = None) -> str:
    with pytest.raises(InputError) as error:
        HDF5Source(path, datasets)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["data"], file["label"], file["short"] = DATA, LABEL, LABEL[:5]
        file["group/data"], file["scalar"], file["empty"] = DATA, 3, np.empty((0, 2))
        file["compound"] = np.zeros(37, [("a", "i4"), ("b", "f4")])
        file["words"] = np.array([b"word"] * 37)
        file.create_dataset("ragged", (37,), h5py.vlen_dtype(np.int32))
        file["null"] = h5py.Empty("f4")
    assert refused(path, ["no"]).startswith("has no dataset 'no', it has 'compound', 'data', ")
    assert refused(path, ["group"]).startswith("has no dataset 'group'")
    assert refused(path, ["data", "short"]) == (
        "has datasets of different first axes: '/data' 37, '/short' 5; name those of one length"
    )
    assert refused(path, ["data", "group/data"]) == (
        "datasets '/data' and '/group/data' have the same last name; name one of them"
    )
    assert refused(path, ["compound"]).endswith("not plain numbers; name others")
    assert refused(path, ["ragged"]) == "dataset 'ragged' is object, not plain numbers; name others"
    assert refused(path, ["words"]) == "dataset 'words' is |S4, not plain numbers; name others"
    assert refused(path, ["scalar"]) == "dataset 'scalar' has no axis of samples; name others"
    assert refused(path, ["null"]) == "dataset 'null' has no axis of samples; name others"
    assert refused(path, ["empty"]) == "has no rows; check the source"
    assert refused(path, ["data", "/data"]) == f"datasets data, data of {path} name one twice; leave it out"
    assert "not plain numbers" in refused(path), "all datasets, unless some are named"


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("shape", "words"), [
    ((2, 2**20, 2**20), r"dataset 'data' has rows of 4398046511104 bytes, at most 8589934592 are read; store it with"),
    ((2**40, 4), r"dataset 'data' claims 17592186044416 bytes, of which 0 are stored; check the source"),
])  # fmt: skip
def test_a_dataset_that_claims_more_than_there_is_is_refused(
    tmp_path: Path, shape: tuple[int, ...], words: str, chunked: bool
) -> None:
    """A file of a few kilobytes; to list or read it would take all memory."""
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        chunks = {"chunks": (1, *[min(each, 64) for each in shape[1:]]), "compression": "gzip"} if chunked else {}
        file.create_dataset("data", shape, "f4", **chunks)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=words):
        HDF5Source(path)


def test_rows_that_compress_well_are_read(tmp_path: Path) -> None:
    path = tmp_path / "zeros.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=np.zeros((4, 2**20), "f4"), chunks=(1, 2**20), compression="gzip")
    assert len(HDF5Source(path).listing) == 4


def test_what_is_not_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    assert refused(path) == "does not exist; check the source"
    path.write_bytes(b"no HDF5" * 1000)
    assert refused(path).startswith("cannot be read as HDF5 (")
    whole = written(tmp_path / "b.h5").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refused(path).startswith("cannot be read as HDF5 (")
    with h5py.File(path, "w"):
        pass
    assert refused(path) == "has no rows; check the source"


def test_a_file_that_changes_is_told(tmp_path: Path) -> None:
    source = HDF5Source(written(tmp_path / "a.h5"))
    reader = source.reader()
    os.utime(source.path, ns=(0, 1))
    changed = r"a\.h5: changed while it was staged; stage again when nothing writes to it"
    with pytest.raises(DataError, match=changed):
        reader.finish(0)
    with pytest.raises(DataError, match=changed):
        source.reader()
    reader.close()
    source.path.unlink()
    with pytest.raises(DataError, match=r"a\.h5: cannot be read \(No such file or directory\); check its permissions"):
        source.reader()


def test_a_file_cut_short_while_it_is_read(tmp_path: Path) -> None:
    source = HDF5Source(written(tmp_path / "a.h5"), ["data"])
    reader = source.reader()
    os.truncate(source.path, 2100)
    with pytest.raises(DataError, match=r"a\.h5: dataset '/data' is cut short; copy it again"):
        reader.read_into(36, 0, memoryview(bytearray(int(source.listing.sizes[36]))))
    reader.close()


def test_damage_in_chunks_is_told(tmp_path: Path) -> None:
    source = HDF5Source(written(tmp_path / "a.h5", chunks=(5, 5, 3), compression="gzip", fletcher32=True), ["data"])
    with h5py.File(source.path) as file:
        place = file["data"].id.get_chunk_info(2).byte_offset
    with source.path.open("r+b") as raw:
        raw.seek(place + 20)
        raw.write(b"\xff\xff\xff\xff")
    os.utime(source.path, ns=(source.mtime_ns, source.mtime_ns))
    reader = source.reader()

    def read_all() -> None:
        for entry in range(37):
            reader.read_into(entry, 0, memoryview(bytearray(int(source.listing.sizes[entry]))))

    with pytest.raises(DataError, match=r"a\.h5: dataset '/data' cannot be read from row \d+ on \("):
        read_all()
    reader.close()


def test_a_chunk_that_grows_beyond_its_rows_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("data", (4, 16, 16), "i2", chunks=(4, 16, 16), compression="gzip")
        dataset.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(32 << 20), 9))
    with pytest.raises(DataError, match=r"dataset '/data' cannot be read \(a chunk is not 2048 sound bytes\)"):
        read(HDF5Source(path), 0)


def test_more_than_the_bytes_of_an_entry(source: HDF5Source) -> None:
    reader = source.reader()
    with pytest.raises(DataError, match=r"row 1 of '/data' has only 60 bytes"):
        reader.read_into(2, 0, memoryview(bytearray(int(source.listing.sizes[2]) + 1)))
    reader.close()


def test_errors_of_the_system_are_told_after_some_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from staging.source import retry

    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.001)
    source = HDF5Source(written(tmp_path / "a.h5"), retries=2)
    reader = source.reader()

    def preadv(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(DataError, match=r"dataset '/data' cannot be read \(Input/output error\); copy it again"):
        reader.read_into(0, 0, memoryview(bytearray(int(source.listing.sizes[0]))))
    assert reader.counters.retries == 2
    reader.close()


def test_a_handle_that_is_stale_after_the_last_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = HDF5Source(written(tmp_path / "a.h5")).reader()

    def stale(*_: object) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr("staging.source.hdf5_source.os.fstat", stale)
    with pytest.raises(DataError, match=r"a\.h5: cannot be read \(Stale file handle\); stage again when nothing repl"):
        reader.finish(0)
    monkeypatch.undo()
    reader.close()
