"""HDF5: round trips, only the selection is read, the same bytes twice, and each problem in one line."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from staging.errors import DataError
from staging.formats.hdf5 import describe, read_dataset, write_datasets
from tests.staging.fuzz.child import Memory

DATA = np.arange(60, dtype=np.float32).reshape(3, 5, 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in the form of a DeepCAM sample, very small."""
    write_datasets(tmp_path / "a.h5", {"climate/data": DATA, "climate/labels_0": DATA[..., 0]})
    return tmp_path / "a.h5"


def problem(path: Path) -> str:
    with pytest.raises(DataError) as error:
        read_dataset(path, "climate/data", shape=(3, 5, 4), dtype_kind="f")
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value).removeprefix(f"{path}: ")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([np.float32, np.int16, np.int64, np.uint8]).flatmap(
        lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, max_side=5))
    ),
    st.sampled_from([None, "gzip"]),
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, compression: None) -> None:
    path = tmp_path_factory.mktemp("set") / "a.h5"
    write_datasets(path, {"group/name": array}, compression)
    found = read_dataset(path, "group/name", shape=array.shape, dtype_kind=array.dtype.kind)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


def test_h5py_reads_contiguous_data_of_the_published_form(path: Path) -> None:
    with h5py.File(path) as file:
        assert file["climate/data"].dtype == np.dtype("<f4")
        assert file["climate/data"].chunks is None
        assert file["climate/data"].compression is None
        assert np.array_equal(file["climate/data"], DATA)


def test_the_same_arrays_give_the_same_bytes(path: Path) -> None:
    first = path.read_bytes()
    time.sleep(1.1)
    write_datasets(path, {"climate/labels_0": DATA[..., 0], "climate/data": DATA})
    assert path.read_bytes() == first


def test_a_selection_reads_only_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "universe.hdf5"
    write_datasets(path, {"full": np.zeros((64, 64, 64, 4), np.int16)})
    script = (
        "import sys; from pathlib import Path; from staging.formats.hdf5 import read_dataset\n"
        "def count(): return int(open('/proc/self/io').read().split('rchar: ')[1].split()[0])\n"
        "read_dataset(Path(sys.argv[1]), 'full', selection=(0, 0))\n"
        "before = count()\n"
        "read_dataset(Path(sys.argv[1]), 'full', shape=(64, 64, 64, 4), selection=(slice(0, 16), slice(None)))\n"
        "print(count() - before)"
    )
    if not Path("/proc/self/io").exists():
        pytest.skip("needs /proc/self/io to count the bytes that were read")
    read = int(subprocess.run([sys.executable, "-c", script, path], check=True, capture_output=True).stdout)
    quarter = 16 * 64 * 64 * 4 * 2
    assert quarter <= read < quarter + 64 * 1024


def test_a_selection_has_the_selected_values(path: Path) -> None:
    assert np.array_equal(
        read_dataset(path, "climate/data", selection=(slice(1, 3), slice(None), [0, 2])), DATA[1:3][..., [0, 2]]
    )


def test_foreign_byte_order_becomes_the_machines(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = DATA.astype(">f4")
    found = read_dataset(tmp_path / "a.h5", "x")
    assert found.dtype.isnative
    assert np.array_equal(found, DATA)


def test_any_length_of_an_axis(path: Path) -> None:
    assert read_dataset(path, "climate/data", shape=(None, 5, None)).shape == (3, 5, 4)


def test_describe_lists_every_dataset(path: Path) -> None:
    assert describe(path) == {"climate/data": ((3, 5, 4), "float32"), "climate/labels_0": ((3, 5), "float32")}


def test_missing_file(tmp_path: Path) -> None:
    assert (
        problem(tmp_path / "a.h5") == "cannot be read (No such file or directory); check the path and its permissions"
    )


def test_missing_key_names_what_is_there(tmp_path: Path) -> None:
    write_datasets(tmp_path / "a.h5", {"climate/datum": DATA})
    assert problem(tmp_path / "a.h5") == (
        "has no dataset 'climate/data', it has 'climate/datum'; check data.format and data.root"
    )


def test_a_group_where_a_dataset_is_expected(tmp_path: Path) -> None:
    write_datasets(tmp_path / "a.h5", {"climate/data/x": DATA})
    assert "has no dataset 'climate/data', it has 'climate/data/x'" in problem(tmp_path / "a.h5")


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 3), (5, 3, 4)])
def test_wrong_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_datasets(tmp_path / "a.h5", {"climate/data": np.zeros(shape, np.float32)})
    assert f"has shape {shape} where (3, 5, 4) is expected; set the data sizes" in problem(tmp_path / "a.h5")


def test_wrong_type(tmp_path: Path) -> None:
    write_datasets(tmp_path / "a.h5", {"climate/data": DATA.astype(np.int16)})
    assert "dataset 'climate/data' is int16 where floating point is expected" in problem(tmp_path / "a.h5")


def test_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"\x93NUMPY" + bytes(500))
    assert problem(tmp_path / "a.h5") == "is not an HDF5 file; check data.format, or copy it again"


def test_cut_short_at_any_byte(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert problem(path).endswith("copy it again, or remove it from the set") or length < 8
    assert "truncated file" in problem(path)


def test_damage_to_the_structure_is_one_line_or_does_not_change_the_form(path: Path) -> None:
    whole = path.read_bytes()
    for index in range(0, len(whole) - DATA.nbytes, 11):
        damaged = bytearray(whole)
        damaged[index] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = read_dataset(path, "climate/data", shape=(3, 5, 4), dtype_kind="f")
        except DataError as error:
            message = str(error)
        else:
            message = ""
            assert found.shape == (3, 5, 4)
        assert "\n" not in message


def test_damaged_compressed_data(tmp_path: Path) -> None:
    write_datasets(tmp_path / "a.h5", {"climate/data": DATA}, "gzip")
    whole = bytearray((tmp_path / "a.h5").read_bytes())
    start = whole.index(b"\x78\x5e")
    whole[start + 10 : start + 30] = bytes(20)
    (tmp_path / "a.h5").write_bytes(whole)
    assert "dataset 'climate/data' cannot be read" in problem(tmp_path / "a.h5")


def limit_file_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


@pytest.mark.parametrize("numbers", [24_500, 1_000_000])
def test_a_full_disk_is_an_os_error_and_leaves_nothing_behind(tmp_path: Path, numbers: int) -> None:
    script = (
        "import sys, numpy as np; from pathlib import Path; from staging.formats.hdf5 import write_datasets\n"
        "try: write_datasets(Path(sys.argv[1]), {'a': np.ones(int(sys.argv[2]), np.float32), 'b': np.ones(300)})\n"
        "except OSError as error: print(error.errno, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.h5", str(numbers)],
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=limit_file_size,
    )
    assert done.stdout.startswith("27 [Errno 27] File too large")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_many_small_chunks_are_read_a_few_at_a_time(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=3, max_side=9))
    chunks = tuple(data.draw(st.integers(1, side)) for side in shape)
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    bounds = [data.draw(st.tuples(st.integers(0, side), st.integers(0, side))) for side in shape]
    steps = data.draw(st.sampled_from([1, 1, 1, 2]))
    selection = tuple(slice(min(pair), max(pair), steps) for pair in bounds[: data.draw(st.integers(0, len(shape)))])
    path = tmp_path_factory.mktemp("chunks") / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=array, chunks=chunks, fletcher32=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("staging.formats.hdf5_chunks.MOST_CHUNKS", data.draw(st.integers(1, 8)))
        found = read_dataset(path, "x", selection=selection)
    np.testing.assert_array_equal(found, array[selection])


def test_the_memory_of_a_read_does_not_grow_with_the_number_of_chunks(tmp_path: Path) -> None:
    """A file of some kilobytes may say that it has 65,542 chunks of 80 bytes, for each of which HDF5 takes 4 KB."""
    path, memory = tmp_path / "a.h5", Memory()
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", (65_542, 5, 4), "<f4", chunks=(1, 5, 4), fletcher32=True)
    assert path.stat().st_size < 5000
    read_dataset(path, "x", selection=(slice(0, 10),))  # what the library takes once
    memory.reset()
    before = memory.now()
    assert read_dataset(path, "x").nbytes == 5_243_360
    assert memory.peak() - before < 5_243_360 + (32 << 20)


@pytest.mark.parametrize("user_block", [0, 512])
@pytest.mark.parametrize("chunks", [None, (5,)])
def test_values_never_written_are_the_fill_value(tmp_path: Path, user_block: int, chunks: tuple[int] | None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", userblock_size=user_block) as file:
        gzip = None if chunks is None else "gzip"
        file.create_dataset("unwritten", (20,), "<i2", fillvalue=7, chunks=chunks, compression=gzip)
        file["written"] = DATA
    assert read_dataset(path, "unwritten").tolist() == [7] * 20
    assert read_dataset(path, "unwritten", selection=(slice(3, 6),)).tolist() == [7] * 3
    assert np.array_equal(read_dataset(path, "written"), DATA)
