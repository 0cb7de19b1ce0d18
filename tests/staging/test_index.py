"""The dataset index: what is written is read, what is damaged or leads astray is refused."""

import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from staging.errors import DataError
from staging.source import index, make_index
from staging.source.index import HEADER, read_index, write_index
from staging.source.listing import INDEX_NAME, UNKNOWN, Listing, Names

UNSORTED = "has names that are not sorted, or not unique"
MAKE = "make it again with `hpcbench data index`"
PART = st.text(st.characters(blacklist_characters="\0/\n\\", blacklist_categories=("Cs",)), min_size=1, max_size=6)
NAME = st.lists(PART.filter(lambda part: not part.startswith(".")), min_size=1, max_size=3).map("/".join)
NUMBERS = st.tuples(
    st.integers(0, 2**57), st.integers(-(2**63), 2**63 - 1), st.one_of(st.just(UNKNOWN), st.integers(0, 2**32 - 1))
)


def listing_of(rows: dict[str, tuple[int, int, int]]) -> Listing:
    """A listing of names with size, time and checksum."""
    names = sorted(rows, key=lambda name: name.encode("utf-8", "surrogateescape"))
    columns = (np.array([rows[name][number] for name in names], np.int64) for number in range(3))
    return Listing(Names.of(names), *columns)


def rows_of(listing: Listing) -> dict[str, tuple[int, int, int]]:
    columns = (listing.sizes.tolist(), listing.mtimes_ns.tolist(), listing.checksums.tolist())
    return dict(zip(listing.names, zip(*columns, strict=True), strict=True))


ROWS = {"a.npy": (3, 1_700_000_000_000_000_000, 0x0A1B2C3D), "train/b.npy": (12345, 5, UNKNOWN)}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "dataset.index"
    write_index(path, listing_of(ROWS))
    return path


def with_end(body: bytes, count: int) -> bytes:
    """An index with an end that fits."""
    return body + b"#end %d %08x\n" % (count, crc32c(body))


def line(name: bytes, size: bytes = b"1", time_ns: bytes = b"2", checksum: bytes = b"-" * 8) -> bytes:
    return b"%19b %20b %b %b\n" % (size, time_ns, checksum, name)


def test_the_text(written: Path) -> None:
    body = (
        "#hpcbench-index 1 size mtime_ns crc32c name\n"
        "                  3  1700000000000000000 0a1b2c3d a.npy\n"
        "              12345                    5 -------- train/b.npy\n"
    )
    assert written.read_text() == body + f"#end 2 {crc32c(body.encode()):08x}\n"
    assert rows_of(read_index(written)) == ROWS


@given(rows=st.dictionaries(NAME, NUMBERS, min_size=1, max_size=30), piece=st.integers(1, 400))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, tuple[int, int, int]], piece: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "dataset.index"
    write_index(path, listing_of(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "PIECE", piece)
        found = read_index(path)
    assert rows_of(found) == rows
    assert [array.dtype for array in (found.sizes, found.mtimes_ns, found.checksums)] == [np.int64] * 3


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    rows = {os.fsdecode(b"\xff.npy"): (1, 2, 3), "\x85\u2028.npy": (1, 2, 3)}
    write_index(tmp_path / "i", listing_of(rows))
    assert rows_of(read_index(tmp_path / "i")) == rows


def test_every_cut_and_every_flipped_bit_is_refused(written: Path) -> None:
    data = written.read_bytes()
    for length in range(len(data)):
        written.write_bytes(data[:length])
        with pytest.raises(DataError):
            read_index(written)
    for position in range(len(data)):
        for bit in (1, 0x20):
            damaged = bytearray(data)
            damaged[position] ^= bit
            written.write_bytes(damaged)
            with pytest.raises(DataError):
                read_index(written)
    written.write_bytes(data + b"x\n")
    with pytest.raises(DataError):
        read_index(written)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"name,size\n", "is not a dataset index; name a file that `hpcbench data index` made"),
        (lambda data: data.replace(b"index 1", b"index 7"), f"has version 7, this program reads 1; {MAKE}"),
        (lambda data: b"#hpcbench-index " + b"7" * 5000 + b" ", "is not a dataset index"),
        (lambda data: data + b"#end " + b"1" * 5000 + b" 00000000\n", "is cut off"),
        (lambda data: data[:-30], f"is cut off: its last line is not the end that it was written with; {MAKE}"),
        (lambda data: data.replace(b"12345", b"12346"), "was altered: its checksum is "),
        (lambda data: with_end(HEADER, 0), f"lists no file; {MAKE}"),
        (lambda data: with_end(HEADER + line(b"a"), 2), f"lists 1 file where its end says 2; {MAKE}"),
        (lambda data: with_end(HEADER + b"1 2 -------- a\n", 1), f"has a line that is too short; {MAKE}"),
        (lambda data: with_end(HEADER + line(b""), 1), f"has a line that is too short; {MAKE}"),
        (lambda data: with_end(HEADER + line(b"a", size=b"-1"), 1), f"has a file of -1 bytes; {MAKE}"),
        (lambda data: with_end(HEADER + line(b"a", b"%d" % 2**61) + line(b"b", b"%d" % (2**62 - 1)), 2),
         "lists files of more than 4611686018427387904 bytes together; check the sizes of the files"),
        (lambda data: with_end(HEADER + line(b"b") + line(b"a"), 2), f"{UNSORTED}; {MAKE}"),
        (lambda data: with_end(HEADER + line(b"a") * 2, 2), f"{UNSORTED}; {MAKE}"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_index(written: Path, change: Callable[[bytes], bytes], said: str) -> None:
    written.write_bytes(change(written.read_bytes()))
    with pytest.raises(DataError) as error:
        read_index(written)
    assert str(error.value).startswith(f"{written}: {said}")


@pytest.mark.parametrize(
    "bad",
    [
        line(b"a", size=b"x"), line(b"a", size=b""), line(b"a", size=b"1 2"), line(b"a", size=b"9" * 19),
        line(b"a", time_ns=b"1.5"), line(b"a", checksum=b"0000000g"), line(b"a", checksum=b"00 0  00"),
        line(b"a", checksum=b"0a1b2c  "), line(b"a", checksum=b"0A1B2C3D"), line(b"a", size=b"01"),
        line(b"a", size=b"1 "),
        line(b"a", size=b"1\0"), line(b"a", size=b"1_0"), line(b"a", size=b"+1"), line(b"a", time_ns=b"-0"),
        line(b"a", time_ns=b"-01"), line(b"a", time_ns=b"0" * 20),
        line(b"a").replace(b" -", b"x-"), line(b"a").replace(b"- ", b"-x"),
    ],
)  # fmt: skip
def test_columns_that_are_no_numbers(written: Path, bad: bytes) -> None:
    written.write_bytes(with_end(HEADER + line(b"0") + bad, 2))
    with pytest.raises(DataError, match="has a line whose columns are not size, time and checksum; make it again"):
        read_index(written)


BAD_NAMES = ["/etc/passwd", "../up", "a/../b", "a/..", ".", "..", "a//b", "a/", "./a", "a/./b", ".staging/m"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_may_lead_out_of_the_destination_is_not_read(written: Path, name: str) -> None:
    written.write_bytes(with_end(HEADER + line(name.encode()) + line(b"z"), 2))
    with pytest.raises(DataError) as error:
        read_index(written)
    assert f"cannot hold the name {name.encode()!r}: absolute, hidden, or with '..'" in str(error.value)


@pytest.mark.parametrize("name", [*BAD_NAMES, "a\nb", ""])
def test_a_name_that_cannot_be_read_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"cannot hold the name .* or a newline; rename or exclude the file"):
        write_index(tmp_path / "i", listing_of({name: (1, 2, 3), "z": (1, 2, 3)}))
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.text("a./\n\0", max_size=4), min_size=1, max_size=4, unique=True))
def test_exactly_the_names_that_lead_nowhere_else_are_taken(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    good = all(
        name and not set(name) & {"\n", "\0"} and all(part and part[0] != "." for part in name.split("/"))
        for name in names
    )
    path = tmp_path_factory.mktemp("index") / "i"
    rows = dict.fromkeys(names, (1, 2, 3))
    if good:
        write_index(path, listing_of(rows))
        assert rows_of(read_index(path)) == rows
    else:
        with pytest.raises(DataError, match="cannot hold the name"):
            write_index(path, listing_of(rows))


def test_a_backslash_in_a_name_is_one_like_any_other_character(tmp_path: Path) -> None:
    names = ["a\\b", "a\\n", "\\"]
    write_index(tmp_path / "i", listing_of(dict.fromkeys(sorted(names), (1, 2, 3))))
    assert list(read_index(tmp_path / "i").names) == sorted(names)


def test_sizes_that_overflow_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lists files of more than 4611686018427387904 bytes together"):
        write_index(tmp_path / "i", listing_of({"a": (2**62, 0, 0), "b": (2**62, 0, 0)}))
    assert not (tmp_path / "i").exists()


def test_a_listing_that_is_not_sorted_is_not_written(tmp_path: Path) -> None:
    zeros = np.zeros(2, np.int64)
    with pytest.raises(DataError, match=UNSORTED):
        write_index(tmp_path / "i", Listing(Names.of("ba"), zeros, zeros, zeros))


def test_nothing_is_overwritten(written: Path) -> None:
    before = written.read_bytes()
    with pytest.raises(DataError, match=r"dataset.index: exists already; remove it, or name another file with --out"):
        write_index(written, listing_of({"c": (1, 2, 3)}))
    assert written.read_bytes() == before


def test_places_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\); name a file"):
        write_index(tmp_path / "gone" / "i", listing_of(ROWS))
    with pytest.raises(DataError, match=r"i: no such index; make one with `hpcbench data index`"):
        read_index(tmp_path / "i")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\); check the file"):
        read_index(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A set of files that are empty, small, and larger than a buffer."""
    root = tmp_path / "set"
    (root / "train").mkdir(parents=True)
    for number, size in enumerate((0, 1, 1000, make_index.BUFFER_BYTES, 2 * make_index.BUFFER_BYTES + 17)):
        (root / "train" / f"{number}.npy").write_bytes(np.random.default_rng(number).bytes(size))
    for number in range(100):
        (root / f"{number:03d}").write_text(str(number))
    return root


@pytest.mark.parametrize("threads", [1, 3, None])
def test_an_index_has_what_the_files_hold(tree: Path, threads: int | None) -> None:
    said = make_index.index_dataset(tree, threads=threads)
    found = read_index(tree / INDEX_NAME)
    assert rows_of(found) == {
        path.relative_to(tree).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns, crc32c(path.read_bytes()))
        for path in tree.rglob("*")
        if path.is_file() and path.name != INDEX_NAME
    }
    assert said == f"{tree / INDEX_NAME}: 105 files, {found.bytes} bytes"
    # the index is no file of the set, so that a second one is the same
    other = tree.with_name("other.index")
    make_index.index_dataset(tree, other, threads)
    assert other.read_bytes() == (tree / INDEX_NAME).read_bytes()


def test_a_single_file_is_counted_as_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert make_index.index_dataset(tmp_path) == f"{tmp_path / INDEX_NAME}: 1 file, 1 byte"


def test_the_checksum_is_the_published_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123456789")  # the check value of CRC-32C, RFC 3720 and the catalogue of Cook
    assert make_index.make_index(tmp_path, 1).checksums.tolist() == [0xE3069283]


def test_a_place_that_is_taken_is_refused_before_all_is_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / INDEX_NAME).touch()
    monkeypatch.setattr(make_index, "make_index", lambda *_: pytest.fail("it was read"))
    with pytest.raises(DataError, match="exists already"):
        make_index.index_dataset(tree)


@pytest.mark.parametrize("change", ["size", "time", "gone"])
def test_a_file_that_changes_while_it_is_indexed(tree: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    real = make_index.list_tree
    victim = tree / "050"

    def then_change(*args: object) -> object:
        walked = real(*args)  # type: ignore[arg-type]
        if change == "size":
            victim.write_text("longer")
        elif change == "time":
            os.utime(victim, ns=(1, 1))
        else:
            victim.unlink()
        return walked

    monkeypatch.setattr(make_index, "list_tree", then_change)
    said = {
        "size": r"050: changed while it was indexed \(2 bytes listed, 6 read\); index again when nothing writes to it",
        "time": r"050: changed while it was indexed \(2 bytes listed, 2 read\)",
        "gone": r"050: cannot be read \(No such file or directory\); check the file, and index again",
    }
    with pytest.raises(DataError, match=said[change]):
        make_index.make_index(tree, 2)


def test_the_command(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tree.with_name("my.index")
    assert main(["data", "index", str(tree), "--out", str(out), "--processes", "2"]) == 0
    printed = capsys.readouterr()
    assert re.fullmatch(rf"{out}: 105 files, \d+ bytes\n", printed.out)
    assert "index: 105/105 files" in printed.err
    assert len(read_index(out)) == 105
    for words, said in {
        (str(tree), "--out", str(out)): "my.index: exists already; remove it",
        (str(tree), "surplus"): "data index: unknown argument 'surplus'; see hpcbench data index --help",
        (str(tree), "--data.root", "x"): "data index takes no dotted settings; leave out --data.root",
        (str(tree / "gone"),): "gone: no such folder",
    }.items():
        assert main(["data", "index", *words]) == 2
        assert said in capsys.readouterr().err


def test_the_memory_for_reading_is_a_few_times_the_file(tmp_path: Path) -> None:
    count = 100_000
    names = Names.of(f"train/sample_{number:08d}.tfrecord" for number in range(count))
    numbers = np.arange(count)
    path = tmp_path / "i"
    write_index(path, Listing(names, numbers, numbers, numbers))
    tracemalloc.start()
    found = read_index(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == count
    assert peak < 60_000_000  # 300 MB for half a million
