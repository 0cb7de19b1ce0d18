"""Transforms: what they make is read by independent readers, chains stream, what does not fit is told with its file."""

import gzip
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord.writer import TFRecordWriter

from staging.errors import DataError, InputError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.plain import landed_names
from staging.landing.sinks import Landed
from staging.landing.transform import gunzip as gunzip_module
from staging.landing.transform import whole
from staging.landing.transforms import find_transform, sink_maker

TIME = 1_500_000_000_000_000_000
PLAIN = bytes(range(256)) * 300
COUNTS = np.random.default_rng(0).poisson(0.4, (6, 6, 6, 4)).astype(np.int16)
LABEL = np.array([0.5, -0.25, 1, -1], np.float32)


def land(folder: Path, transform: str, name: str, data: bytes, piece: int | None = None) -> list[Landed]:
    """Send ``data`` through ``transform`` below ``folder``, in pieces whose buffer is used again."""
    sink = sink_maker(transform)(folder, name, len(data), TIME)
    try:
        size = piece or max(len(data), 1)
        for start in range(0, len(data), size):
            buffer = bytearray(data[start : start + size])
            sink.write(memoryview(buffer))
            buffer[:] = b"\xee" * len(buffer)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def problem(folder: Path, transform: str, name: str, data: bytes, piece: int | None = None) -> str:
    with pytest.raises(DataError) as error:
        land(folder, transform, name, data, piece)
    assert files(folder) == {}, "nothing stays behind"
    assert "\n" not in str(error.value)
    return str(error.value)


def cosmoflow(folder: Path, counts: np.ndarray = COUNTS, records: int = 1) -> bytes:
    writer = TFRecordWriter(str(folder / "sample"))
    for _ in range(records):
        writer.write({"x": (counts.tobytes(), "byte"), "y": (LABEL.tolist(), "float")})
    writer.close()
    data = (folder / "sample").read_bytes()
    (folder / "sample").unlink()
    return data


def hdf5(folder: Path, arrays: dict[str, Any], **form: Any) -> bytes:
    with h5py.File(folder / "sample", "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array, **form)
    data = (folder / "sample").read_bytes()
    (folder / "sample").unlink()
    return data


# names


def test_without_a_transform_files_land_as_they_are(tmp_path: Path) -> None:
    assert land(tmp_path, "", "a/b", PLAIN, 1000) == [Landed("a/b", len(PLAIN), crc32c(PLAIN), "a/b", TIME)]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            "unzip",
            "transform 'unzip' is not known; use one of gunzip, hdf5-to-npy, tfrecord-index, tfrecord-to-npy, untar, "
            "or package.module:function",
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
    ("transform", "name", "size", "space"),
    [
        ("gunzip", "a.gz", 4096, 6 * 4096),
        ("gunzip:expansion=2", "a.gz", 4096, 2 * 4096),
        ("untar", "a.tar", 4096, 4096),
        ("untar", "a.tar.xz", 4096, 6 * 4096),
        ("untar+gunzip:expansion=3", "a.tgz", 4096, 18 * 4096),
        ("tfrecord-index", "a", 4096 * 10, 11 * 4096),
        ("tfrecord-to-npy", "a", 2 * 4 * 128**3 + 200, 2 * 4 * 128**3 + 4096),
        ("tfrecord-to-npy", "a", 4096 * 1000, 6 * 4096 * 1000),
        ("hdf5-to-npy", "a", 4096, 4096),
        ("os.path:join", "a", 4096, 4096),
    ],
)
def test_the_estimate_of_space(transform: str, name: str, size: int, space: int) -> None:
    assert sink_maker(transform).space(name, size) == space


# gunzip


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
        "b: is not gzip; leave it out (--exclude), or stage it without gunzip"
    )
    assert problem(tmp_path, "gunzip", "b", b"") == (
        "b: is not gzip; leave it out (--exclude), or stage it without gunzip"
    )
    assert (
        problem(tmp_path, "gunzip", "b", data[:-3])
        == f"b: is gzip data cut short at byte {len(data) - 3}; copy it again"
    )


def test_gunzip_in_pieces_says_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gunzip_module, "WHOLE_BYTES", -1)
    data = gzip.compress(PLAIN, mtime=0)
    assert problem(tmp_path, "gunzip", "b", PLAIN) == (
        "b: is not gzip; leave it out (--exclude), or stage without decompressing"
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

    def counting(destination: Path, name: str, size: int, mtime_ns: int) -> Any:
        sink = real(destination, name, size, mtime_ns)
        write = sink.write

        class Counting:
            close, abandon = sink.close, sink.abandon

            def write(self, data: memoryview) -> None:
                sizes.append(len(data))
                write(data)

        return Counting()

    monkeypatch.setattr(gunzip_module, "PLAIN_BYTES", 1 << 20)
    counting.space = real.space  # type: ignore[attr-defined]
    data = gzip.compress(bytes(50 << 20))
    sink = find_transform("gunzip").sinks(counting)(tmp_path, "a.gz", len(data), TIME)  # type: ignore[arg-type]
    sink.write(memoryview(data))
    assert sink.close()[0].size == 50 << 20
    assert max(sizes) <= 1032 << 14


# npy


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("piece", [None, 777])
def test_a_cosmoflow_record_becomes_two_arrays(tmp_path: Path, packed: bool, piece: int | None) -> None:
    data = cosmoflow(tmp_path)
    landed = land(tmp_path, "tfrecord-to-npy", "t/a.tfrecord", gzip.compress(data) if packed else data, piece)
    assert {file.name for file in landed} == {"t/a_data.npy", "t/a_label.npy"}
    assert {file.source for file in landed} == {"t/a.tfrecord"}
    counts, label = np.load(tmp_path / "t/a_data.npy"), np.load(tmp_path / "t/a_label.npy")
    assert np.array_equal(counts, COUNTS)
    assert counts.dtype == np.int16
    assert np.array_equal(label, LABEL)
    assert label.dtype == np.float32
    for name, array in (("data", COUNTS), ("label", LABEL)):
        np.save(tmp_path / "expected.npy", array)
        assert (tmp_path / f"t/a_{name}.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_channels_and_size_that_are_not_the_published_ones(tmp_path: Path) -> None:
    counts = COUNTS[..., :1]
    land(tmp_path, "tfrecord-to-npy:channels=1,size=6", "a.tfrecord", cosmoflow(tmp_path, counts))
    assert np.array_equal(np.load(tmp_path / "a_data.npy"), counts)


@pytest.mark.parametrize(
    ("transform", "shape"), [("tfrecord-to-npy", (6, 6, 6, 1)), ("tfrecord-to-npy:size=5", (6, 6, 6, 4))]
)
def test_a_record_of_another_shape(tmp_path: Path, transform: str, shape: tuple[int, ...]) -> None:
    data = cosmoflow(tmp_path, COUNTS[..., : shape[-1]])
    size = 2 * int(np.prod(shape))
    side = 5 if "size" in transform else 4
    needed = 2 * 4 * side**3
    assert problem(tmp_path, transform, "a", data) == (
        f"a: feature 'x' has {size} bytes and int16 ({side}, {side}, {side}, 4) has {needed}; "
        "set tfrecord-to-npy:channels=C,size=S to the file's"
    )


def record(folder: Path, features: dict[str, Any]) -> bytes:
    writer = TFRecordWriter(str(folder / "sample"))
    writer.write(features)
    writer.close()
    data = (folder / "sample").read_bytes()
    (folder / "sample").unlink()
    return data


def test_a_record_of_other_features(tmp_path: Path) -> None:
    x, y = (COUNTS.tobytes(), "byte"), (LABEL.tolist(), "float")
    check = "; check that it is a CosmoFlow TFRecord"
    for features, said in [
        ({"y": y}, "has no feature 'x' of one string of bytes"),
        ({"x": y, "y": y}, "has no feature 'x' of one string of bytes"),
        ({"x": x}, "has no feature 'y' of float32"),
        ({"x": x, "y": ([1, 2], "int")}, "has no feature 'y' of float32"),
    ]:
        assert problem(tmp_path, "tfrecord-to-npy", "a", record(tmp_path, features)) == f"a: {said}{check}"
    two = cosmoflow(tmp_path, records=2)
    assert problem(tmp_path, "tfrecord-to-npy", "a", two) == f"a: holds 2 records where one is expected{check}"


def test_damage_to_a_record_is_told(tmp_path: Path) -> None:
    data = bytearray(cosmoflow(tmp_path))
    data[100] ^= 1
    assert "a: record 0 at byte 0 is damaged" in problem(tmp_path, "tfrecord-to-npy", "a", bytes(data))
    assert "a: is empty" in problem(tmp_path, "tfrecord-to-npy", "a", b"")


FIELDS = np.random.default_rng(1).normal(size=(6, 8, 16)).astype(np.float32)
CLASSES = np.random.default_rng(2).integers(0, 3, (6, 8))


@pytest.mark.parametrize(
    "form", [{}, {"chunks": True, "compression": "gzip"}, {"chunks": True, "shuffle": True}], ids=str
)
@pytest.mark.parametrize("dtypes", [("<f4", "<i8"), (">f4", ">i2"), ("<f8", "<f4"), ("<f4", "u1")])
def test_a_deepcam_file_becomes_its_npy_form(tmp_path: Path, form: dict[str, Any], dtypes: tuple[str, str]) -> None:
    arrays = {"climate/data": FIELDS.astype(dtypes[0]), "climate/labels_0": CLASSES.astype(dtypes[1]), "extra": [1]}
    landed = land(tmp_path, "hdf5-to-npy", "train/data-1.h5", hdf5(tmp_path, arrays, **form), 5000)
    assert [file.name for file in landed] == ["train/data-1.npy", "train/label-1.npy"]
    for name, array in (("data", FIELDS), ("label", CLASSES.astype(np.uint8))):
        np.save(tmp_path / "expected.npy", array)
        assert (tmp_path / f"train/{name}-1.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_other_datasets_keep_their_type(tmp_path: Path) -> None:
    data = hdf5(tmp_path, {"x": COUNTS, "deep/y": LABEL, "flag": np.array([True, False]), "one": 3.5})
    land(tmp_path, "hdf5-to-npy:a=x,b=deep/y,c=flag,d=one", "s.h5", data)
    for name, array in (("a", COUNTS), ("b", LABEL), ("c", np.array([True, False])), ("d", np.float64(3.5))):
        found = np.load(tmp_path / f"s_{name}.npy")
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)


def test_a_file_without_samples_lands_as_it_is(tmp_path: Path) -> None:
    data = hdf5(tmp_path, {"climate/minval": LABEL})
    land(tmp_path, "hdf5-to-npy", "stats.h5", data)
    assert files(tmp_path) == {"stats.h5": data}
    land(tmp_path, "hdf5-to-npy:x=x,keep=*.txt", "README.txt", PLAIN)
    assert (tmp_path / "README.txt").read_bytes() == PLAIN


def test_hdf5_that_does_not_fit(tmp_path: Path) -> None:
    word = np.array([b"word"])
    data = hdf5(tmp_path, {"climate/data": FIELDS, "climate/labels_0": CLASSES * 100, "w": word, "nan": [0, np.nan]})
    row, column = (int(i) for i in np.argwhere(CLASSES == 3 - 1)[0])
    for transform, said in [
        ("hdf5-to-npy:a=no", "has no dataset 'no'; set hdf5-to-npy:part=dataset to the file's, or leave it out"),
        ("hdf5-to-npy:a=climate", "has no dataset 'climate'; set"),
        ("hdf5-to-npy:a=w", "dataset 'w' is |S4, not numbers; leave it out"),
        (
            "hdf5-to-npy:a=climate/labels_0@int8",
            f"dataset 'climate/labels_0' has 200 at ({row}, {column}), which int8 ",
        ),
        ("hdf5-to-npy:a=nan@int16", "dataset 'nan' has nan at (1,), which int16 does not hold; set another type in "),
    ]:
        assert problem(tmp_path, transform, "a.h5", data).startswith(f"a.h5: {said}")
    for broken in (PLAIN, b"", data[: len(data) // 2]):
        found = problem(tmp_path, "hdf5-to-npy", "a.h5", broken)
        assert found.startswith("a.h5: is not a sound HDF5 file (")


def test_many_threads_read_hdf5_at_a_time_and_mix_nothing_up(tmp_path: Path) -> None:
    contents = [hdf5(tmp_path, {"x": np.full((50, 50), number)}, chunks=(10, 10)) for number in range(6)]

    def work(number: int) -> None:
        for _ in range(10):
            land(tmp_path, "hdf5-to-npy:a=x", f"{number}.h5", contents[number])

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        assert (np.load(tmp_path / f"{number}_a.npy") == number).all()


# applications


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
    assert sink_maker(called).space("a", 4096) == 3 * 4096


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "a: cannot be transformed by M (ZeroDivisionError: division by zero); mend one of the two"),
        ("return 5", "a: cannot be transformed by M (TypeError: 'int' object is not iterable); mend one of the two"),
        ("return [('b', 'text')]", "a: cannot be transformed by M (TypeError: memoryview: a bytes-like object"),
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
    said = "has 1001 bytes or more, and this transform holds at most 1000 in memory; stage it without"
    with pytest.raises(DataError, match=f"a: {said}"):
        land(tmp_path, "tfrecord-to-npy", "a", bytes(1001))
    monkeypatch.setattr(gunzip_module, "WHOLE_BYTES", -1)
    with pytest.raises(DataError, match=f"a: {said}"):
        land(tmp_path, "gunzip+tfrecord-to-npy", "a.gz", gzip.compress(bytes(1001)))
    assert files(tmp_path) == {}


def test_a_chain_streams_from_one_into_the_next(tmp_path: Path) -> None:
    data = cosmoflow(tmp_path)
    landed = land(tmp_path, "gunzip+tfrecord-to-npy", "a.tfrecord.gz", gzip.compress(data), 100)
    assert {file.source for file in landed} == {"a.tfrecord.gz"}
    assert np.array_equal(np.load(tmp_path / "a_data.npy"), COUNTS)
