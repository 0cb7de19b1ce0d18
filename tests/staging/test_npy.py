"""npy files: agreement with numpy, nothing is unpickled, and the header is believed only as far as the file goes."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from staging.errors import DataError
from staging.formats.npy import npy_header, read_array, write_array

COUNTS = np.arange(48, dtype=np.int16).reshape(2, 3, 8)


def problem(path: Path) -> str:
    with pytest.raises(DataError) as error:
        read_array(path, shape=(2, 3, 8), dtype=np.int16)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([np.float32, np.int16, np.int64]).flatmap(
        lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    )
)
def test_agrees_with_numpy_both_ways(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("set") / "a.npy"
    write_array(path, array)
    assert np.array_equal(np.load(path), array, equal_nan=array.dtype.kind == "f")
    np.save(path, array)
    found = read_array(path, shape=array.shape, dtype=array.dtype)
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
    assert found.flags.writeable


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3, 8), (128, 128, 128, 4)])
@pytest.mark.parametrize("dtype", ["<i2", "<f4", "<f8", "|u1"])
def test_a_header_for_bytes_that_are_written_elsewhere(shape: tuple[int, ...], dtype: str) -> None:
    file = io.BytesIO()
    np.save(file, np.empty(shape, dtype))
    assert npy_header(shape, dtype) == file.getvalue()[: len(file.getvalue()) - np.empty(shape, dtype).nbytes]


def test_any_order_in_memory_is_written_in_c_order(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", np.asfortranarray(COUNTS))
    assert np.array_equal(read_array(tmp_path / "a.npy", shape=(2, None, 8), dtype="<i2"), COUNTS)


def test_the_same_array_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        write_array(tmp_path / name, COUNTS)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    trap = np.empty((2, 3, 8), object)
    trap[...] = Trap()
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    assert "holds object where int16 is expected" in problem(tmp_path / "a.npy")
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_array(tmp_path / "b.npy", trap)
    assert not (tmp_path / "b.npy").exists()


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (COUNTS.astype(np.float32), "holds float32 where int16 is expected; check data.format, or write it again"),
        (COUNTS[:, :2], "has shape (2, 2, 8) where (2, 3, 8) is expected; set the data sizes to the file's"),
        (COUNTS[0], "has shape (3, 8) where (2, 3, 8) is expected; set the data sizes to the file's"),
        (np.asfortranarray(COUNTS), "is in Fortran order; write it again in C order"),
    ],
)
def test_another_form(tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "a.npy", array)
    assert problem(tmp_path / "a.npy") == said


def test_missing_file(tmp_path: Path) -> None:
    assert problem(tmp_path / "a.npy").startswith("cannot be read (No such file or directory)")


def test_cut_short_at_any_byte_and_trailing_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    write_array(path, COUNTS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert "is not an npy file" in problem(path) or "where its header says 96" in problem(path)
    path.write_bytes(whole + b"\0")
    assert problem(path).startswith("holds 97 bytes of data where its header says 96")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_header_is_one_line_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = io.BytesIO()
    np.save(file, COUNTS)
    damaged = bytearray(file.getvalue())
    damaged[data.draw(st.integers(0, 127))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    path.write_bytes(damaged)
    try:
        found = read_array(path, shape=(2, 3, 8), dtype=np.int16)
    except DataError as error:
        message = str(error)
    else:
        message = ""
        assert np.array_equal(found, COUNTS)
    assert "\n" not in message


def test_a_shape_of_many_terabytes_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    write_array(path, COUNTS)
    path.write_bytes(path.read_bytes().replace(b"8), }            ", b"9999999999999), }"))
    with pytest.raises(DataError, match=r"holds 96 bytes of data where its header says 119999999999988"):
        read_array(path, shape=(2, 3, None), dtype=np.int16)


def test_an_unknown_version(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x03\x00" + bytes(200))
    assert problem(tmp_path / "a.npy") == (
        "is an npy file of version (3, 0), not 1.0 or 2.0; write it again with numpy.save"
    )
