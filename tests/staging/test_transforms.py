"""Transforms by name, in chains and as functions of applications: what does not fit is told with its file."""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c

from staging.errors import DataError, InputError
from staging.landing.sinks import Landed
from staging.landing.transform import gunzip as gunzip_module
from staging.landing.transform import whole
from staging.landing.transform_exclusions import landed_names
from staging.landing.transforms import find_transform, sink_maker
from tests.staging.transforming import COUNTS, PLAIN, TIME, cosmoflow, files, land, problem


def test_without_a_transform_files_land_as_they_are(tmp_path: Path) -> None:
    assert land(tmp_path, "", "a/b", PLAIN, 1000) == [Landed("a/b", len(PLAIN), crc32c(PLAIN), "a/b", TIME)]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            "unzip",
            "transform 'unzip' is not known; use one of gunzip, hdf5-to-npy, npy-rows, tfrecord-index, "
            "tfrecord-to-npy, untar, or package.module:function",
        ),
        ("gunzip+", "transform '' is not known; use one of "),
        ("tfrecord-index:a=1", "transform 'tfrecord-index' has no option 'a'; it has none"),
        ("gunzip:a=1", "transform 'gunzip' has no option 'a'; it has expansion"),
        ("tfrecord-to-npy:side=1", "transform 'tfrecord-to-npy' has no option 'side'; it has channels, size"),
        ("untar:channels=1", "transform 'untar' has no option 'channels'; it has expansion"),
        ("gunzip:expansion", "transform 'gunzip:expansion' has 'expansion' where option=value is expected"),
        ("hdf5-to-npy:a=x,a=y", "transform 'hdf5-to-npy:a=x,a=y' says option 'a' twice; leave one out"),
        ("gunzip:expansion=0", "transform 'gunzip' option expansion (0) must be a whole number of at least 1"),
        ("hdf5-to-npy:a=x@int3", "transform 'hdf5-to-npy' has no type 'int3' for a; use one of NumPy's"),
        ("no_such_package.x:f", "transform 'no_such_package.x:f': cannot import 'no_such_package.x' (No module named"),
        ("os.path:no_such", "transform 'os.path:no_such': 'os.path' has no function 'no_such'; check its name"),
        (":f", "transform ':f': cannot import '' ("),
    ],
)
def test_what_is_not_there_is_told(transform: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        find_transform(transform)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("transform", "name", "made"),
    [
        ("gunzip", "a/b.gz", ["a/b"]),
        ("gunzip", "a/b.tfrecord", ["a/b.tfrecord"]),
        ("gunzip", "a/.gz", ["a/.gz"]),
        ("tfrecord-index", "b", ["b", "b.idx"]),
        ("gunzip+tfrecord-index", "b.gz", ["b", "b.idx"]),
        ("tfrecord-to-npy", "t/b.tfrecord", ["t/b_data.npy", "t/b_label.npy"]),
        ("tfrecord-to-npy", "t/b.tfrecord.gz", ["t/b_data.npy", "t/b_label.npy"]),
        ("hdf5-to-npy", "t/data-2000-1.h5", ["t/data-2000-1.npy", "t/label-2000-1.npy"]),
        ("hdf5-to-npy:x=x,y=y", "t/c.hdf5", ["t/c_x.npy", "t/c_y.npy"]),
        ("hdf5-to-npy", "stats.h5", ["stats.h5"]),
        ("untar", "a.tgz", []),
        ("untar+gunzip", "a.tar.gz", []),
        ("untar+gunzip", "a.gz", ["a"]),
    ],
)
def test_names_before_anything_is_moved(transform: str, name: str, made: list[str]) -> None:
    assert find_transform(transform).names(name) == made


def test_what_stays_plain_keeps_its_name() -> None:
    made = landed_names("tfrecord-to-npy", ("extra/*", "notes.tfrecord"))
    assert made("train/a.tfrecord") == ["train/a_data.npy", "train/a_label.npy"]
    assert (made("extra/b.tfrecord"), made("notes.tfrecord")) == (["extra/b.tfrecord"], ["notes.tfrecord"])
    assert landed_names("untar")("a.tar") == []
    assert landed_names("")("a.tar") == ["a.tar"]


@pytest.mark.parametrize(
    ("transform", "name", "size", "files"),
    [
        ("gunzip", "a.gz", 4096, {"a": 6 * 4096}),
        ("gunzip:expansion=2", "a.gz", 4096, {"a": 2 * 4096}),
        ("untar", "a.tar", 4096, {"a.tar": 4096}),
        ("untar", "a.tar.xz", 4096, {"a.tar.xz": 6 * 4096}),
        ("untar+gunzip:expansion=3", "a.tgz", 4096, {"a.tgz": 18 * 4096}),
        ("tfrecord-index", "a", 4096 * 10, {"a": 10 * 4096, "a.idx": 11 * 24}),
        ("gunzip+tfrecord-index", "a.gz", 4096, {"a": 6 * 4096, "a.idx": 7 * 24}),
        ("tfrecord-to-npy", "a", 2 * 4 * 128**3 + 200, {"a_data.npy": 2 * 4 * 128**3 + 456, "a_label.npy": 1}),
        ("tfrecord-to-npy", "a", 4096 * 1000, {"a_data.npy": 6 * 4096 * 1000 + 256, "a_label.npy": 1}),
        ("hdf5-to-npy", "data-1.h5", 4096, {"data-1.npy": 4096, "label-1.npy": 1}),
        ("os.path:join", "a", 4096, {"a": 4096}),
    ],
)
def test_the_estimate_of_outputs(transform: str, name: str, size: int, files: dict[str, int]) -> None:
    assert sink_maker(transform).estimate(name, size) == list(files.items())


@pytest.fixture
def application(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Makes a module with a function ``f`` of the given body, and returns how to call it."""
    folder = tmp_path_factory.mktemp("modules")
    monkeypatch.syspath_prepend(folder)

    def make(body: str) -> str:
        module = f"application_{random.randrange(1 << 60)}"
        (folder / f"{module}.py").write_text(f"def f(name, data):\n    {body}\n")
        return f"{module}:f"

    return make


def test_a_function_of_an_application(tmp_path: Path, application: Callable[[str], str]) -> None:
    called = application("import numpy; return [(name + '.n', numpy.frombuffer(data, '<u2')), ('e/' + name, b'')]")
    landed = land(tmp_path, called, "a", PLAIN, 1000)
    assert files(tmp_path) == {"a.n": PLAIN, "e/a": b""}
    assert [(file.name, file.source) for file in landed] == [("a.n", "a"), ("e/a", "a")]
    function = sys.modules[called.partition(":")[0]].f
    assert find_transform(called).names("a") == []
    function.names, function.expansion = lambda name: [name + ".n"], 2.5
    assert find_transform(called).names("a") == ["a.n"]
    assert sink_maker(called).estimate("a", 4096) == [("a.n", 10_240)]


ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "array",
    [ARRAY.T, ARRAY[:, ::2], ARRAY[1, 1], ARRAY.astype(">f4"), np.array([(1, 2)], [("a", "i1"), ("b", ">f8")])],
    ids=["transposed", "every second", "number", "big endian", "structured"],
)
def test_an_array_of_an_application_lands_as_its_bytes_in_order(
    tmp_path: Path, application: Callable[[str], str], array: np.ndarray
) -> None:
    called = application("return [(name, f.array)]")
    find_transform(called)
    sys.modules[called.partition(":")[0]].f.array = array
    land(tmp_path, called, "a", PLAIN)
    assert files(tmp_path) == {"a": array.tobytes()}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "a: cannot be transformed by M (ZeroDivisionError: division by zero); mend one of the two"),
        ("return 5", "a: cannot be transformed by M (TypeError: 'int' object is not iterable); mend one of the two"),
        ("return [('b', 'text')]", "a: cannot be transformed by M (TypeError: memoryview: a bytes-like object"),
        (
            "import numpy; return [('b', numpy.array([name], object))]",
            "a: cannot be transformed by M (TypeError: an arr",
        ),
        ("data[0] = 1", "a: cannot be transformed by M (TypeError: cannot modify read-only memory); mend one"),
        ("return [('../b', b'')]", "a: the file name '../b' leads upwards; rename it, or leave it out"),
        ("return [('b', b'1'), ('b', b'2')]", "a: becomes two files named 'b'; mend the transform"),
        ("from staging.errors import DataError; raise DataError(name, 'is odd', 'x')", "a: is odd; x"),
    ],
)
def test_a_function_that_fails(tmp_path: Path, application: Callable[[str], str], body: str, said: str) -> None:
    called = application(body)
    assert problem(tmp_path, called, "a", PLAIN).replace(called, "M").startswith(said)


def test_a_file_too_large_to_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "HELD_BYTES", 1000)
    said = "has 1001 bytes or more, and this transform holds at most 1000 in memory; split it, leave it out ("
    said += "--exclude), or as it is (--plain NAME; auto for all that end otherwise)"
    with pytest.raises(DataError, match=re.escape(f"a: {said}")):
        land(tmp_path, "tfrecord-to-npy", "a", bytes(1001))
    monkeypatch.setattr(gunzip_module, "WHOLE_BYTES", -1)
    with pytest.raises(DataError, match=re.escape(f"a: {said}")):
        land(tmp_path, "gunzip+tfrecord-to-npy", "a.gz", gzip.compress(bytes(1001)))
    assert files(tmp_path) == {}


def test_a_chain_streams_from_one_into_the_next(tmp_path: Path) -> None:
    data = cosmoflow(tmp_path)
    landed = land(tmp_path, "gunzip+tfrecord-to-npy", "a.tfrecord.gz", gzip.compress(data), 100)
    assert {file.source for file in landed} == {"a.tfrecord.gz"}
    assert np.array_equal(np.load(tmp_path / "a_data.npy"), COUNTS)
