"""Two entries of a source never land as one file: whatever makes the names, whoever brings them, and whenever."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staging.errors import InputError
from staging.ledger.journal import Journal
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.report import StagingReport
from staging.stage import stage
from tests.staging.processes import contents
from tests.staging.thread_world import run_ranks

TIME_S = 1_700_000_000


def put(path: Path, data: bytes, time_s: int = TIME_S) -> None:
    """Write a file whose time is ``time_s``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time_s, time_s))


def pack(path: Path, members: dict[str, bytes], time_s: int = TIME_S) -> None:
    """Write an archive whose time is ``time_s``."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    put(path, file.getvalue(), time_s)


def stage_all(ranks: list[int], options: StageOptions) -> StagingReport:
    """Stage on threads that stand for ranks on nodes."""
    return run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]


def refused(ranks: list[int], options: StageOptions, first: str, second: str, name: str) -> None:
    """A staging ends with an error that names both entries and the file, and is not done."""
    with pytest.raises(InputError, match=r": would become ") as error:
        stage_all(ranks, options)
    said = str(error.value)
    assert first in said
    assert second in said
    assert f": would become {name}, and so would " in said
    assert said.endswith("; exclude one of them, or rename what it becomes")
    assert not all(
        Journal(Path(options.destination.format(node=f"node{node}"))).is_done() for node in range(len(ranks))
    )


PLACEMENTS: list[tuple[list[int], Any]] = [([1], "replicate"), ([2], "replicate"), ([2, 1], "replicate"),
                                           ([1, 1], "shard"), ([2, 2], "shard")]  # fmt: skip


@pytest.mark.parametrize(("ranks", "placement"), PLACEMENTS)
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_a_member_and_a_file(tmp_path: Path, ranks: list[int], placement: Any, path: Any) -> None:
    pack(tmp_path / "source/x.tar", {"b.txt": b"packed"})
    put(tmp_path / "source/b.txt", b"plain")
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), placement, path, transform="untar")
    refused(ranks, options, "b.txt", "x.tar", "b.txt")


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "placement"), PLACEMENTS)
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_members_of_two_archives(tmp_path: Path, ranks: list[int], placement: Any, path: Any) -> None:
    pack(tmp_path / "source/a.tar", {"own": b"1", "same.txt": b"of a"})
    pack(tmp_path / "source/b.tar", {"same.txt": b"of b"})
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), placement, path, transform="untar")
    refused(ranks, options, "a.tar", "b.tar", "same.txt")
    refused(ranks, options, "a.tar", "b.tar", "same.txt")  # also if run again
    pack(tmp_path / "source/b.tar", {"other.txt": b"of b"}, TIME_S + 1)
    stage_all(ranks, replace(options, update=True, drop_vanished=True))
    found = [contents(tmp_path / f"node{node}") for node in range(len(ranks))]
    assert {name: data for part in found for name, data in part.items()} == {
        "own": b"1", "same.txt": b"of a", "other.txt": b"of b"
    }  # fmt: skip


def test_an_archive_that_comes_later(tmp_path: Path) -> None:
    options = StageOptions(tmp_path / "source", str(tmp_path / "node0"), transform="untar")
    pack(tmp_path / "source/a.tar", {"same.txt": b"of a"})
    stage(options, Alone(), quiet=True)
    pack(tmp_path / "source/b.tar", {"same.txt": b"of b"})
    refused([1], options, "a.tar", "b.tar", "same.txt")
    (tmp_path / "source/a.tar").unlink()
    pack(tmp_path / "source/b.tar", {"same.txt": b"of b"})
    stage(replace(options, update=True), Alone(), quiet=True)
    assert contents(tmp_path / "node0") == {"same.txt": b"of b"}


def test_a_member_that_moved_to_another_archive(tmp_path: Path) -> None:
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="untar", update=True)
    pack(tmp_path / "source/a.tar", {"a": b"1", "x": b"of a"})
    pack(tmp_path / "source/b.tar", {"b": b"2"})
    stage(options, Alone(), quiet=True)
    pack(tmp_path / "source/a.tar", {"a": b"1"}, TIME_S + 1)
    pack(tmp_path / "source/b.tar", {"b": b"2", "x": b"of b"}, TIME_S + 1)
    assert stage(options, Alone(), quiet=True).totals.files_vanished == 0
    assert contents(tmp_path / "out") == {"a": b"1", "b": b"2", "x": b"of b"}
    assert stage(options, Alone(), quiet=True).totals.files_landed == 0


@pytest.mark.parametrize("ranks", [[1], [2]])
def test_what_a_function_makes(tmp_path: Path, ranks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "to_out.py").write_text("def f(name, data):\n    return [(name[:-2] + '.out', bytes(data))]\n")
    monkeypatch.syspath_prepend(tmp_path)
    put(tmp_path / "source/q.a", b"1")
    put(tmp_path / "source/q.b", b"2")
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), transform="to_out:f")
    refused(ranks, options, "q.a", "q.b", "q.out")


@pytest.mark.parametrize("ranks", [[1], [2]])
def test_members_that_the_next_transform_makes_one(tmp_path: Path, ranks: list[int]) -> None:
    pack(tmp_path / "source/s.tar", {"a.gz": gzip.compress(b"1")})
    pack(tmp_path / "source/t.tar", {"a": gzip.compress(b"2")})
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), transform="untar+gunzip")
    refused(ranks, options, "s.tar", "t.tar", "a")


def test_within_one_archive_too(tmp_path: Path) -> None:
    pack(tmp_path / "source/s.tar", {"a.gz": gzip.compress(b"1"), "a": gzip.compress(b"2")})
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="untar+gunzip")
    with pytest.raises(InputError, match=r"s\.tar: becomes two files named 'a'"):
        stage(options, Alone(), quiet=True)


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    put(tmp_path / "source/a.gz", gzip.compress(b"1"))
    put(tmp_path / "source/a/deep/b.gz", gzip.compress(b"2"))
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="gunzip")
    with pytest.raises(InputError, match=r"a\.gz: would land as a, and a/deep/b\.gz below that, as a/deep/b; exclude"):
        stage(options, Alone(), quiet=True)
    assert not (tmp_path / "out").exists() or not contents(tmp_path / "out")
