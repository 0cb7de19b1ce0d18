"""Large files are written in the way that a probe found fastest; all ways give the same bytes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from staging.errors import InputError
from staging.options import StageOptions
from staging.probing.ceilings import Ceilings, Rate, read_ceilings, write_ceilings
from staging.probing.probe import probe
from staging.ranks.world import Alone
from staging.report import StagingReport
from staging.stage import stage
from staging.storage import write_ways
from staging.storage.destination_folder import DestinationFolder
from staging.storage.space import filesystem_type
from staging.storage.write_ways import WAYS, choose_way, ways_at
from tests.staging.processes import PLAIN, contents, run

MIB = 1 << 20
MEMORY = Path("/dev/shm")
in_memory = pytest.mark.skipif(not MEMORY.is_dir(), reason="needs /dev/shm")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of several pieces, one of a piece, a small one, and one that begins with a hole."""
    root = tmp_path / "source"
    root.mkdir()
    random = np.random.default_rng(1)
    for name, size in (("large", 20 * MIB + 5), ("piece", MIB), ("small", 1000)):
        (root / name).write_bytes(random.bytes(size))
    (root / "sparse").write_bytes(bytes(3 * MIB) + random.bytes(2 * MIB))
    return root


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory."""
    folder = MEMORY / f"write-ways-{os.getpid()}"
    yield folder
    shutil.rmtree(folder)


def staged(source: Path, destination: Path, **options: object) -> StagingReport:
    """Stage with these options."""
    return stage(StageOptions(source, str(destination), **options), Alone(), quiet=True)  # type: ignore[arg-type]


def needs(way: str, folder: Path) -> None:
    """Skip where a way does not work."""
    if way not in ways_at(folder):
        pytest.skip(f"{filesystem_type(folder)} of this kernel can't be written {way}")


def is_cached(path: Path) -> bool:
    """Whether the first page of a file is in memory; a file of another user's page cache can't be asked."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 4])
def test_each_way_gives_the_same_bytes_and_is_said(source: Path, tmp_path: Path, way: str, threads: int) -> None:
    needs(way, tmp_path)
    report = staged(source, tmp_path / "out", write_way=way, threads=threads, verify="reread")
    assert contents(tmp_path / "out") == contents(source)
    assert f"large files written {way}, flushed" in report.table().replace("\n", " ")
    assert report.as_dict()["ranks"][0]["way"] == way


def test_what_is_written_uncached_leaves_the_memory(source: Path, tmp_path: Path) -> None:
    needs("uncached", tmp_path)
    staged(source, tmp_path / "kept", write_way="buffered")
    staged(source, tmp_path / "gone", write_way="uncached")
    assert is_cached(tmp_path / "kept/large")
    assert not is_cached(tmp_path / "gone/large")
    assert is_cached(tmp_path / "gone/small")


def test_storing_begins_early_after_each_piece(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(write_ways, "ways_at", lambda _: list(WAYS))
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, size, advice: asked.append((start, size)))
    staged(source, tmp_path / "late", write_way="buffered", include=("large",), threads=1, piece_bytes=MIB)
    assert asked == []
    staged(source, tmp_path / "soon", write_way="early", include=("large",), threads=1, piece_bytes=MIB)
    assert asked == [(start * MIB, MIB) for start in range(20)]  # the last bytes are left to the flush


@in_memory
def test_in_memory_there_is_one_way(source: Path, memory: Path) -> None:
    assert ways_at(MEMORY) == ["buffered"]
    assert staged(source, memory).ranks[0].way == "buffered"
    code, _, error = run([*PLAIN, source, memory, "--write-way", "uncached"])
    said = error.strip()
    assert (code, said.count("\n")) == (2, 0)
    assert "--write-way uncached does not work at" in said
    assert "(tmpfs): take buffered, or auto" in said


def test_without_a_probe_the_filesystem_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, way in (("ext4", "early"), ("xfs", "early"), ("lustre", "buffered"), ("nfs", "buffered")):
        monkeypatch.setattr(write_ways, "filesystem_type", lambda _, kind=kind: kind)
        assert choose_way("auto", "", tmp_path) == way


def test_a_way_that_a_probe_found_but_works_no_more_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ways, "ways_at", lambda _: ["buffered"])
    monkeypatch.setattr(write_ways, "filesystem_type", lambda _: "nfs")
    assert choose_way("auto", "uncached", tmp_path) == "buffered"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_to_try_a_way(
    number: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is staged, and nothing has to be written: what a probe found is not needed, a way by name is refused."""
    staged(source, tmp_path / "out")
    rates = (Rate("write_flushed", 4, MIB, (1e9,), "uncached"),)
    known = Ceilings(str(source), str(tmp_path / "out"), (Alone().place.node_name,), 1, 1.0, rates)
    with DestinationFolder(tmp_path / "out") as folder:
        write_ceilings(known, folder)

    def refuse(*words: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(write_ways, "write_at", refuse)
    monkeypatch.setattr(write_ways, "filesystem_type", lambda _: "xfs")
    assert staged(source, tmp_path / "out").ranks[0].way == "early"
    with pytest.raises(InputError) as error:
        staged(source, tmp_path / "out", write_way="uncached")
    books = tmp_path / "out/.staging"
    why = os.strerror(number)
    assert str(error.value) == f"--write-way uncached cannot be tried at {books} ({why}): make room, or take auto"


@pytest.mark.parametrize("fastest", WAYS)
def test_the_fastest_that_a_probe_found_is_taken(source: Path, tmp_path: Path, fastest: str) -> None:
    """The rate that counts is that with the flush; the share of a ceiling is of the way that was taken."""
    needs(fastest, tmp_path)
    rates = [
        Rate(part, 4, MIB, ((1e15 if way == fastest else 1e12) if part == "write_flushed" else 1e13,), way)
        for way in WAYS
        for part in ("write", "write_flushed")
    ]
    staged(source, tmp_path / "out", include=("small",))
    known = Ceilings(str(source), str(tmp_path / "out"), (Alone().place.node_name,), 1, 1.0, tuple(rates))
    with DestinationFolder(tmp_path / "out") as folder:
        write_ceilings(known, folder)
    (tmp_path / "out/small").write_bytes(b"changed")
    report = staged(source, tmp_path / "out", include=("small",))
    assert report.ranks[0].way == fastest
    assert {share.part: share.ceiling for share in report.shares()} == {"write": 1e13, "write_flushed": 1e15}
    asked = next(way for way in WAYS if way != fastest and way in ways_at(tmp_path))
    (tmp_path / "out/small").write_bytes(b"changed")
    report = staged(source, tmp_path / "out", include=("small",), write_way=asked)
    assert report.ranks[0].way == asked
    assert {share.part: share.ceiling for share in report.shares()}["write_flushed"] == 1e12


def test_a_probe_measures_every_way_that_works(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    found = probe(options, Alone(), budget_s=1.0, quiet=True)
    for part in ("write", "write_flushed"):
        assert [rate.note for rate in found.rates if rate.part == part] == ways_at(tmp_path)
    best = found.best("write_flushed")
    assert best is not None
    assert stage(options, Alone(), quiet=True).ranks[0].way == best.note
    assert read_ceilings(tmp_path / "out") == found
    assert json.dumps(found.as_dict())
    assert [path.name for path in (tmp_path / "out/.staging").glob("*way*")] == []
