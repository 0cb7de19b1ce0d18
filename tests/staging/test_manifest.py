"""The manifest names whole files only, whoever is killed when, and loses nothing that was named."""

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger.durable_batch import DurableBatch
from staging.ledger.jsonl import append_lines, is_there, read_lines, start_file
from staging.ledger.manifest import Manifest, has_manifest, load_records, manifest_path, staged_names
from staging.ledger.records import Records
from staging.source.listing import Listing, Names
from tests.staging.opened import opened

IDENTITY = {"source": "/data/set", "placement": "shard", "seed": 0}
FORK = multiprocessing.get_context("fork")


def landed(name: str, size: int = 3, source: str | None = None, mtime_ns: int = 7) -> Landed:
    return Landed(name, size, 11, source or name, mtime_ns)


def land(folder: Path, name: str, content: bytes) -> Landed:
    """Put a file under its name as a sink does."""
    temporary = folder / f".{name}.part"
    temporary.write_bytes(content)
    temporary.rename(folder / name)
    return Landed(name, len(content), crc32c.crc32c(content), name, 0)


def kill_after(seconds: float, work: Callable[[], None]) -> None:
    process: BaseProcess = FORK.Process(target=work)
    process.start()
    time.sleep(seconds)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_it_is_a_text_file_with_a_header_and_a_line_per_file(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path / "new", IDENTITY)
    manifest.append([landed("train/a.npy"), landed("train/b.npy")])
    lines = [line for line in (tmp_path / "new/.staging/manifest.jsonl").read_text().splitlines() if line]
    assert json.loads(lines[0]) == {"schema": 1, "what": "hpcbench staging manifest", "identity": IDENTITY}
    assert json.loads(lines[1]) == {
        "name": "train/a.npy",
        "size": 3,
        "crc32c": 11,
        "source": "train/a.npy",
        "mtime_ns": 7,
    }
    assert len(lines) == 3


@pytest.mark.parametrize("junk", [b"\0" * 300, b"\xff" * 7, b"}", b"{", b'"', b"0", b" ", b'{"name": "b", "si'])
def test_what_a_crash_leaves_behind_durable_lines_is_no_part_of_them(tmp_path: Path, junk: bytes) -> None:
    """A write that was not waited for may be there as zeros, or as what had been on the disk before."""
    path = manifest_path(tmp_path)
    for durable in ([], [landed("a")], [landed("a"), landed("b")]):
        manifest = Manifest.open(tmp_path, IDENTITY)
        if durable:
            manifest.append(durable)
        with path.open("ab") as file:
            file.write(junk)
        assert set(Manifest.open(tmp_path, IDENTITY).records().position) == {file.name for file in durable}
        manifest.append([landed("later")])
        assert set(load_records(tmp_path).position) == {file.name for file in durable} | {"later"}
        path.unlink()


@given(st.dictionaries(st.text(st.characters(exclude_characters="\0"), min_size=1), st.integers(0, 2**62), max_size=9))
@settings(max_examples=30, deadline=None)
def test_what_is_appended_is_read_and_the_last_word_holds(
    tmp_path_factory: pytest.TempPathFactory, sizes: dict[str, int]
) -> None:
    manifest = Manifest.open(tmp_path_factory.mktemp("set"), IDENTITY)
    manifest.append([landed(name, 1, "old.tar") for name in sizes])
    files = [landed(name, size) for name, size in sizes.items()]
    manifest.append(files)
    records = Manifest.open(manifest.destination, IDENTITY).records()
    assert list(records) == files
    assert len(records) == len(files)
    assert [records[name].size for name in sizes if name in records] == list(sizes.values())


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.npy")
    manifest = Manifest.open(tmp_path, {"source": name})
    manifest.append([landed(name)])
    assert list(Manifest.open(tmp_path, {"source": name}).records()) == [landed(name)]


def test_cut_anywhere_it_names_what_was_whole_and_takes_more(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    manifest.append([landed("a"), landed("b", source="x{}[],\"'")])
    whole = manifest.path.read_bytes()
    for cut in range(len(whole) + 1):
        manifest.path.write_bytes(whole[:cut])
        again = Manifest.open(tmp_path, IDENTITY)
        again.append([landed("c")])
        _, _, *ends = [end for end in range(len(whole)) if whole[end : end + 1] == b"\n"]  # of the header, twice
        expected = [name for name, end in zip("ab", ends, strict=True) if end <= cut] + ["c"]
        assert [file.name for file in again.records()] == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        "3",
        "null",
        "\xff",
        '{"name": 3, "size": 1, "crc32c": 1, "source": "a", "mtime_ns": 1}',
        '{"name": "a", "size": "x", "crc32c": 1, "source": "a", "mtime_ns": 1}',
        '{"name": "a", "size": null, "crc32c": 1, "source": "a", "mtime_ns": 1}',
        '{"name": "a", "size": 1, "crc32c": 1, "source": 4, "mtime_ns": 1}',
        '{"name": "a", "size": 1e3, "crc32c": 1, "source": "a", "mtime_ns": 1}',
        '{"name": "a", "size": 9223372036854775808, "crc32c": 1, "source": "a", "mtime_ns": 1}',
    ],
)
def test_foreign_lines_are_skipped(tmp_path: Path, line: str) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    with manifest.path.open("ab") as file:
        file.write(b"\n" + line.encode("latin-1"))
    manifest.append([landed("b")])
    assert [file.name for file in manifest.records()] == ["b"]


def test_another_identity_is_named(tmp_path: Path) -> None:
    Manifest.open(tmp_path, IDENTITY)
    with pytest.raises(DataError) as error:
        Manifest.open(tmp_path, IDENTITY | {"seed": 1})
    assert str(error.value) == (
        f"{tmp_path}: holds a staging with seed 0, not 1; give --seed 0, "
        f"remove it with `hpcbench stage --clean {tmp_path}`, or choose another destination"
    )
    with pytest.raises(DataError, match='holds a staging with transform null, not "gunzip";'):
        Manifest.open(tmp_path, IDENTITY | {"transform": "gunzip"})


def test_another_schema_is_named(tmp_path: Path) -> None:
    manifest_path(tmp_path).parent.mkdir()
    manifest_path(tmp_path).write_text('{"schema": 2, "identity": {}}')
    for use in (lambda: Manifest.open(tmp_path, {}), lambda: load_records(tmp_path)):
        with pytest.raises(DataError, match="has schema 2 where this version reads 1; use the version that wrote it"):
            use()


NESTED = f"{'[' * 900}{']' * 900}"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (f'{{"schema": {NESTED}}}', "has schema of kind list where"),
        (f'{{"schema": 1, "identity": {{"source": {NESTED}}}}}', "holds a staging with source "),
        (f'{{"schema": 1, "identity": {{"{"k" * 9000}": "{"v" * 9000}"}}}}', "holds a staging with kkk"),
    ],
)
def test_a_header_of_nested_or_endless_values_is_told_in_one_line(tmp_path: Path, header: str, said: str) -> None:
    manifest_path(tmp_path).parent.mkdir()
    manifest_path(tmp_path).write_text(header)
    with pytest.raises(DataError) as error:
        Manifest.open(tmp_path, {})
    assert said in str(error.value)
    assert len(str(error.value)) < 2000


def test_a_destination_without_a_manifest_or_with_one_without_header(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no staging manifest \(.staging/manifest.jsonl\); name a folder that"):
        load_records(tmp_path)
    manifest_path(tmp_path).parent.mkdir()
    for left in ("", '{"schema"'):  # by a kill before the header was written
        manifest_path(tmp_path).write_text(left)
        assert not has_manifest(tmp_path)
        with pytest.raises(DataError, match="has no staging manifest"):
            load_records(tmp_path)
    manifest_path(tmp_path).write_text('{"schema"\n{"name": "a", "size": 3}')
    with pytest.raises(DataError, match="has no header, which said of what source the files are; remove what it"):
        load_records(tmp_path)
    assert len(load_records(tmp_path, headed=False)) == 0


def test_a_place_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file: cannot be written \(Not a directory\); choose another destination"):
        Manifest.open(tmp_path / "file", IDENTITY)
    manifest_path(tmp_path).mkdir(parents=True)
    with pytest.raises(DataError, match=r"manifest.jsonl: is a folder, not a file; remove it"):
        Manifest.open(tmp_path, IDENTITY)
    with pytest.raises(DataError, match=r"manifest.jsonl: is a folder, not a file; remove it"):
        Manifest(tmp_path).append([landed("a")])


def test_an_unreadable_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Manifest.open(tmp_path, IDENTITY)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("staging.ledger.jsonl.os.lstat", refuse)
        with pytest.raises(DataError, match=r"cannot be read \(Permission denied\); check its permissions"):
            is_there(manifest_path(tmp_path))
    monkeypatch.setattr("staging.ledger.jsonl.open_book", refuse)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\); check its permissions"):
        load_records(tmp_path)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    monkeypatch.setattr("staging.ledger.jsonl.open_book", lambda path, flags: os.open("/dev/full", flags))
    with pytest.raises(DataError, match=r"book: cannot be written \(No space left on device\); free space"):
        append_lines(tmp_path / "book", ["{}"])


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        manifest = Manifest.open(tmp_path, IDENTITY)
        for turn in range(60):
            manifest.append([landed(f"{rank}/{turn}/{number}" + "x" * 200) for number in range(20)])

    processes = [FORK.Process(target=work, args=(rank,)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(list(read_lines(manifest_path(tmp_path)))) == 3 * 60 * 20
    assert len(Manifest.open(tmp_path, IDENTITY).records()) == 3 * 60 * 20
    assert manifest_path(tmp_path).read_text().count("schema") == 1


def test_openers_at_once_agree_on_one_header(tmp_path: Path) -> None:
    with_barrier = threading.Barrier(8)

    def work(number: int) -> None:
        with_barrier.wait()
        found.append(start_file(tmp_path / "m", {"number": number})["number"])

    found: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.slow
def test_killed_while_it_lands_files_it_never_names_one_that_is_not_whole(tmp_path: Path) -> None:
    def work() -> None:
        manifest = Manifest.open(tmp_path, IDENTITY)
        batch = DurableBatch(manifest, tmp_path, files=5)
        while True:
            name = f"{random.randrange(400)}.npy"
            batch.add([land(tmp_path, name, name.encode() * 1000)])

    for turn in range(15):
        kill_after(random.uniform(0.005, 0.05 + turn / 40), work)  # busy machines take longer to begin
        for file in Records.read(manifest_path(tmp_path)) if manifest_path(tmp_path).exists() else ():
            content = (tmp_path / file.name).read_bytes()
            assert (len(content), crc32c.crc32c(content)) == (file.size, file.checksum)
    assert len(load_records(tmp_path)) > 0


@pytest.mark.slow
def test_killed_while_it_appends_much_the_next_append_is_whole(tmp_path: Path) -> None:
    files = [landed(f"{number:05}" + "x" * 100) for number in range(20_000)]

    def work() -> None:
        manifest = Manifest.open(tmp_path, IDENTITY)
        while True:
            manifest.append(files)

    names = {file.name for file in files}
    for turn in range(6):
        kill_after(random.uniform(0.05, 0.3), work)
        manifest = Manifest.open(tmp_path, IDENTITY)
        manifest.append([landed(f"mark {turn}")])
        records = manifest.records()
        assert f"mark {turn}" in records
        assert {file.name for file in records if not file.name.startswith("mark")} <= names
        assert all(file.size == 3 and file.checksum == 11 for file in records)


def listing(names: list[str], mtimes_ns: list[int]) -> Listing:
    return Listing(Names.of(names), np.full(len(names), 3), np.array(mtimes_ns), np.full(len(names), -1))


def test_complete_is_what_is_named_with_its_time_and_lies_there_whole(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    names = ["absent", "changed", "good", "short", "touched", "unnamed"]
    for name in names[1:]:
        (tmp_path / name).write_bytes(b"ab" if name == "short" else b"abc")
        os.utime(tmp_path / name, ns=(7, 8 if name == "touched" else 7))
    manifest.append([landed(name) for name in names[:-1]])
    entries = listing(names, [7, 8, 7, 7, 7, 7])
    found = manifest.records().complete(entries, np.arange(6), opened(tmp_path))
    assert [name for name, is_complete in zip(names, found, strict=True) if is_complete] == ["good"]
    assert manifest.records().complete(entries, np.array([5, 2]), opened(tmp_path)).tolist() == [False, True]


def test_an_archive_is_complete_when_all_its_members_are(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    members = [landed(name, source="one.tar") for name in ("a", "b")]
    for member in members:
        (tmp_path / member.name).write_bytes(b"abc")
        os.utime(tmp_path / member.name, ns=(7, 7))
    manifest.append([*members, landed("c", source="two.tar")])
    entries = listing(["one.tar", "two.tar"], [7, 7])
    assert manifest.records().complete(entries, np.arange(2), opened(tmp_path)).tolist() == [True, False]
    whole = manifest.path.read_bytes()
    manifest.path.write_bytes(whole[: whole.index(b'{"name": "b"') + 20])  # a kill tore the line of the second member
    assert manifest.records().complete(entries, np.arange(2), opened(tmp_path)).tolist() == [False, False]


def test_names_of_a_staged_folder(tmp_path: Path) -> None:
    Manifest.open(tmp_path, IDENTITY).append([landed("train/a", 5), landed("train/deep/b"), landed("train2/c")])
    assert [staged_names(tmp_path / name) for name in ("train", "train/deep")] == [{"a": 5}, {"b": 3}]
    assert staged_names(tmp_path) == staged_names(tmp_path / "elsewhere") == {}
    assert staged_names(tmp_path.parent) is None


@pytest.mark.slow
def test_half_a_million_records_are_read_in_seconds(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    manifest.append([landed(f"train/sample_{number:07}.tfrecord", 10**8) for number in range(500_000)])
    start = time.process_time()
    assert len(manifest.records()) == 500_000
    assert time.process_time() - start < 4
