"""HDF5 files that say or grow to more than there is."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from staging.errors import DataError
from staging.formats import hdf5_chunks
from staging.formats.hdf5 import check_whole, read_dataset, write_datasets
from staging.formats.hdf5_chunks import read_by_library, read_chunks
from staging.landing.transform.hdf5_npy import HDF5ToNpy
from staging.source.hdf5_source import HDF5Source
from tests.staging.test_hostile_files import DATA, READERS, SHAPE, bounded, said, zeros

__all__ = ["bounded"]


def test_hdf5_datasets_of_22_gib(tmp_path: Path, bounded: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:  # never written, so that the file is small and every number is the fill value
        file.create_dataset("x", (22 << 29,), "i2")
        file.create_dataset("chunked", (22 << 29,), "i2", chunks=(1 << 20,), compression="gzip")
    assert "has shape (11811160064,) where (16, 16, 16) is expected" in said(READERS["HDF5"], path)
    for key in ("x", "chunked"):
        line = said(lambda path, key=key: read_dataset(path, key, dtype_kind="iuf", most=1024), path)
        assert f"dataset '{key}' of shape (11811160064,) has 23622320128 bytes where at most 1024 are expected" in line
        assert "at most 2147483648 are expected" in said(lambda path, key=key: read_dataset(path, key), path)
    assert "holds 47244640256 bytes in its datasets where at most 1048576 are expected" in said(
        READERS["HDF5 whole"], path
    )


@pytest.mark.parametrize("library", ["libdeflate", "zlib"])
def test_an_hdf5_chunk_that_grows_to_gigabytes(
    tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch, bounded: None
) -> None:
    if library == "zlib":
        monkeypatch.setattr(hdf5_chunks, "libdeflate", None)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", SHAPE, "i2", chunks=SHAPE, compression="gzip")
        stream = zlib.compress(b"")[:2] + zeros(1 << 30)
        dataset.id.write_direct_chunk((0, 0, 0), stream[:60_000])
    assert "dataset 'x' cannot be read (a chunk is not 8192 sound bytes)" in said(READERS["HDF5"], path)
    with h5py.File(path, "r+") as file:
        file["x"].id.write_direct_chunk((0, 0, 0), stream)
    assert "has a chunk of 10" in said(READERS["HDF5"], path)


def test_an_hdf5_chunk_much_larger_than_its_dataset(tmp_path: Path, bounded: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", SHAPE, "i2", chunks=(1 << 10, 1 << 10, 1 << 9), maxshape=(None,) * 3, compression="gzip"
        )
    assert "dataset 'x' of 8192 bytes has chunks of 1073741824 bytes" in said(READERS["HDF5"], path)


@pytest.mark.parametrize("library", ["libdeflate", "zlib"])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
@pytest.mark.parametrize("chunks", [(16, 16, 16), (5, 7, 3), (1, 16, 16)])
@pytest.mark.parametrize("dtype", ["<i2", ">f4", "u1"])
def test_compressed_hdf5_is_what_h5py_reads(
    tmp_path: Path, library: str, options: dict[str, bool], chunks: tuple[int, ...], dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if library == "zlib":
        monkeypatch.setattr(hdf5_chunks, "libdeflate", None)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", SHAPE, dtype, chunks=chunks, compression="gzip", fillvalue=7, **options)
        made[:9] = DATA[:9]  # chunks behind are never written
        expected = made[...]
    for selection in (
        None,
        (slice(3, 11),),
        (slice(None), slice(8, 16), slice(1, 2)),
        (slice(0, 0),),
        (slice(2, 90), 3),
    ):
        found = read_dataset(path, "x", shape=SHAPE, selection=selection)
        assert np.array_equal(found, expected if selection is None else expected[selection])
        assert found.dtype.isnative
    check_whole(path, 1 << 20)


def test_hdf5_filters_that_may_grow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA, compression="lzf")
        file.create_dataset("sums", data=DATA, fletcher32=True, shuffle=True)
    assert "is stored with filters or a type that are not read; write it again with gzip" in said(READERS["HDF5"], path)
    assert np.array_equal(read_dataset(path, "sums", shape=SHAPE), DATA)


def test_hdf5_data_in_other_files_is_refused_without_opening_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "pipe"), "x")
        file["soft"] = h5py.SoftLink("/x")
        file["round"] = h5py.SoftLink("/round")
        file.create_dataset("outside", SHAPE, "i2", external=[(str(tmp_path / "pipe"), 0, DATA.nbytes)])
        layout = h5py.VirtualLayout(SHAPE, "i2")
        layout[...] = h5py.VirtualSource(str(tmp_path / "pipe"), "x", SHAPE)
        file.create_virtual_dataset("virtual", layout)
        file["real/data"] = DATA
        file["alias"] = h5py.SoftLink("real/data")
        file["folder"] = h5py.SoftLink("/real")
    for key in ("x", "soft", "round"):
        assert "is a link to another file" in said(lambda path, key=key: read_dataset(path, key), path)
    for key in ("outside", "virtual"):
        assert f"dataset '{key}' has its data in other files" in said(lambda p, key=key: read_dataset(p, key), path)
    for key in ("alias", "folder/data", "/real/./data"):
        assert np.array_equal(read_dataset(path, key), DATA)


@pytest.mark.parametrize("key", ["outside", "virtual"])
def test_hdf5_data_in_other_files_are_not_staged(tmp_path: Path, key: str) -> None:
    other, path = tmp_path / "other.h5", tmp_path / "a.h5"
    with h5py.File(other, "w") as file:
        file["x"] = DATA
    with h5py.File(path, "w") as file:
        if key == "outside":
            file.create_dataset("outside", SHAPE, "i2", external=[(str(other), 0, DATA.nbytes)])
        else:
            layout = h5py.VirtualLayout(SHAPE, "i2")
            layout[...] = h5py.VirtualSource(str(other), "x", SHAPE)
            file.create_virtual_dataset("virtual", layout)
    assert f"dataset '{key}' has its data in other files; write it" in said(HDF5Source, path)
    content = memoryview(path.read_bytes())
    with pytest.raises(DataError, match=f"dataset '{key}' has its data in other files"):
        HDF5ToNpy({"part": key}).convert("a.h5", content)


@pytest.mark.parametrize("libver", ["earliest", "v110"])
def test_bytes_behind_the_end_of_hdf5(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["x"] = DATA
    check_whole(path, DATA.nbytes)
    with path.open("ab") as file:
        file.write(b"garbage")
    assert "has 7 bytes behind the end of its HDF5 data" in said(READERS["HDF5 whole"], path)
    path.write_bytes(path.read_bytes()[:-600])
    assert "truncated file" in said(READERS["HDF5 whole"], path)


def test_a_dataset_that_no_reader_asks_for_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_datasets(path, {"x": DATA, "y": DATA}, "gzip")
    with h5py.File(path, "r+") as file:
        dataset = file["y"].id
        info = dataset.get_chunk_info(0)
        _, chunk = dataset.read_direct_chunk(info.chunk_offset)
        dataset.write_direct_chunk(info.chunk_offset, chunk[: len(chunk) // 2])
    assert np.array_equal(read_dataset(path, "x", shape=SHAPE), DATA)
    assert "dataset 'y' cannot be read" in said(READERS["HDF5 whole"], path)


class Counted:
    """A dataset that counts what the library is asked for."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset, self.id, self.asked = dataset, self, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name.startswith("get_chunk_info")
        own = getattr(self.dataset, name, None)
        return getattr(self.dataset.id, name) if own is None else own

    def __getitem__(self, part: Any) -> Any:
        self.asked += 1
        return self.dataset[part]


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("selection", [(), (slice(30, 10_000),)])
def test_chunks_that_nobody_wrote_cost_nothing(
    tmp_path: Path, compression: str | None, selection: tuple[slice, ...]
) -> None:
    """A file of kilobytes with four million chunks took a minute; its few stored ones are read, and the rest filled."""
    path, values = tmp_path / "a.h5", np.arange(40 * 3, dtype="f4").reshape(40, 3)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (1 << 16, 3), "f4", chunks=(1, 2), fillvalue=7.0, compression=compression)
        dataset[:40] = values
        dataset[-1] = -1.0
    with h5py.File(path) as file:
        counted: Any = Counted(file["x"])
        if compression is None:
            found = read_by_library(counted, selection)
        else:
            found = read_chunks(path, "x", counted, selection)
        assert counted.asked < 1000
        np.testing.assert_array_equal(found, file["x"][selection])


def test_an_array_that_claims_more_than_is_stored_is_not_staged(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 20, 20), "f4", chunks=(1, 20))[:6] = 1.0
    with pytest.raises(DataError, match=r"a\.h5: dataset 'x' claims 83886080 bytes, of which 480 are stored"):
        HDF5ToNpy({"part": "x"}).convert("a.h5", memoryview(path.read_bytes()))
