"""npy-rows: the rows that numpy would cut out land, however the bytes come; what is no such array is told."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.errors import InputError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.transforms import find_transform

from .transforming import COUNTS, LABEL, cosmoflow, land, problem


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@settings(max_examples=60)
@given(st.data())
def test_rows_are_those_that_numpy_cuts_out(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 9))
    first = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(first + 1, rows))
    rest = data.draw(st.lists(st.integers(0, 5), max_size=3))
    dtype = data.draw(st.sampled_from(["<i2", "<f4", ">f8", "|u1", "?"]))
    array = np.random.default_rng(0).integers(0, 100, (rows, *rest)).astype(dtype)
    folder = tmp_path_factory.mktemp("rows")
    transform = f"npy-rows:first={first},stop={stop},of={rows}"
    (landed,) = land(folder, transform, "a.npy", npy(array), data.draw(st.sampled_from([None, 1, 7, 130])))
    assert (landed.name, landed.source, landed.size) == ("a.npy", "a.npy", (folder / "a.npy").stat().st_size)
    found = np.load(folder / "a.npy")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array[first:stop])


def test_other_names_stay_whole_and_chains_cut_what_they_made(tmp_path: Path) -> None:
    transform = "tfrecord-to-npy+npy-rows:first=2,stop=5,of=6,names=*_data.npy"
    landed = land(tmp_path, transform, "train/u.tfrecord", cosmoflow(tmp_path), 1000)
    assert {each.name for each in landed} == {"train/u_data.npy", "train/u_label.npy"}
    assert {each.source for each in landed} == {"train/u.tfrecord"}
    np.testing.assert_array_equal(np.load(tmp_path / "train/u_data.npy"), COUNTS[2:5])
    np.testing.assert_array_equal(np.load(tmp_path / "train/u_label.npy"), LABEL)


def test_headers_of_version_2(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, COUNTS, version=(2, 0))
    land(tmp_path, "npy-rows:first=0,stop=1,of=6", "a.npy", file.getvalue(), 5)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), COUNTS[:1])


def test_what_does_not_fit_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    transform, whole = "npy-rows:first=0,stop=2,of=6", npy(COUNTS)
    assert problem(tmp_path, transform, "a.npy", b"PK" + whole).startswith("a.npy: is not an npy file")
    assert "is no npy file, or ends within its header" in problem(tmp_path, transform, "a.npy", whole[:40])
    assert "is no npy file, or ends within its header" in problem(tmp_path, transform, "a.npy", b"")
    size = COUNTS.nbytes
    for data in (whole[:-1], whole + b"x"):
        shown = f"holds {size + len(data) - len(whole)} bytes of data where its header says {size}"
        assert shown in problem(tmp_path, transform, "a.npy", data, 999)
    assert "has shape (5, 2) where 6 rows are expected" in problem(tmp_path, transform, "a.npy", npy(np.zeros((5, 2))))
    assert "has shape () where 6 rows are expected" in problem(tmp_path, transform, "a.npy", npy(np.zeros(())))
    assert "is in Fortran order" in problem(tmp_path, transform, "a.npy", npy(np.asfortranarray(np.zeros((6, 2)))))
    objects = npy(np.array([None] * 6))
    assert "a.npy" in problem(tmp_path, transform, "a.npy", objects)


def test_the_space_of_rows() -> None:
    """A third of the array, and room for a header; what stays whole needs what it has."""
    maker = find_transform("npy-rows:first=0,stop=2,of=6,names=data-*").sinks(FileSinkMaker())
    assert maker.estimate("data-1.npy", 600_000) == [("data-1.npy", 200_000 + 65_536)]
    assert maker.estimate("label-1.npy", 600_000) == [("label-1.npy", 600_000)]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("npy-rows", "transform 'npy-rows' option first (unset) must be a whole number"),
        ("npy-rows:first=0,stop=x,of=2", "transform 'npy-rows' option stop (x) must be a whole number"),
        ("npy-rows:first=2,stop=2,of=4", "needs 0 <= first < stop <= of, not first=2,stop=2,of=4"),
        ("npy-rows:first=0,stop=5,of=4", "needs 0 <= first < stop <= of"),
        ("npy-rows:first=0,stop=5,of=4,rows=1", "has no option 'rows'; it has first, stop, of, names"),
    ],
)
def test_options_that_cannot_be_meant(transform: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        find_transform(transform)
    assert message in str(caught.value)
