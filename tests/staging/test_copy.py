"""Staging copies every file once, resumes, and never harms what it did not write."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from staging import copy
from staging.copy import StagingReport, drop_cache, stage
from staging.errors import DataError
from staging.progress import Progress
from staging.spans import Spans

NAMES = [Path("train") / f"{index:03d}.h5" for index in range(10)] + [Path("stats.h5")]
COPYFILE = shutil.copyfile


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "train").mkdir(parents=True)
    for index, name in enumerate(NAMES):
        (root / name).write_bytes(bytes([index]) * (1000 + index))
        os.utime(root / name, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789 + index))
    return root


def contents(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_every_rank_copies_its_share_and_together_all(source: Path, tmp_path: Path) -> None:
    reports = [stage(source, tmp_path / "node", NAMES, 3, rank, 4) for rank in range(4)]
    assert contents(tmp_path / "node") == contents(source)
    assert [report.files for report in reports] == [3, 3, 3, 2]
    size = sum(len(data) for data in contents(source).values())
    assert sum(report.bytes_landed for report in reports) == sum(report.bytes_read for report in reports) == size
    assert all((tmp_path / "node" / name).stat().st_mtime_ns == (source / name).stat().st_mtime_ns for name in NAMES)


def test_the_report_is_json_and_its_figures_agree(source: Path, tmp_path: Path) -> None:
    spans, barriers = Spans(), Counter[str]()
    with Progress(len(NAMES), "stage", "files", enabled=False) as progress:
        report = stage(
            source, tmp_path / "node", NAMES, 2, spans=spans, progress=progress, barrier=lambda: barriers.update("b")
        )
    fields = json.loads(json.dumps(report.as_dict()))
    assert StagingReport(**fields) == report
    assert fields["destination"] == str(tmp_path / "node")
    assert report.bytes_per_s == pytest.approx(report.bytes_landed / report.seconds)
    assert spans.totals()["staging"] == pytest.approx(report.seconds, rel=0.2)
    assert progress.done == len(NAMES)
    assert barriers["b"] == 1


def test_an_interrupted_run_resumes_with_what_is_missing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = list[Path]()

    def break_down(origin: Path, target: Path) -> None:
        if len(copied) == 4:
            Path(target).write_bytes(b"half a file")
            raise KeyboardInterrupt
        copied.append(origin)
        COPYFILE(origin, target)

    monkeypatch.setattr(shutil, "copyfile", break_down)
    with pytest.raises(KeyboardInterrupt):
        stage(source, tmp_path / "node", NAMES, 1)
    assert len(contents(tmp_path / "node")) == 4
    monkeypatch.setattr(shutil, "copyfile", COPYFILE)
    report = stage(source, tmp_path / "node", NAMES, 1)
    assert (report.files, report.skipped) == (7, 4)
    assert contents(tmp_path / "node") == contents(source)
    again = stage(source, tmp_path / "node", NAMES, 1)
    assert (again.files, again.skipped, again.bytes_read) == (0, 11, 0)


def test_symbolic_links_are_followed(source: Path, tmp_path: Path) -> None:
    (source / "train" / "000.h5").rename(source / "elsewhere")
    (source / "train" / "000.h5").symlink_to("../elsewhere")
    stage(source, tmp_path / "node", NAMES, 1)
    assert not (tmp_path / "node" / NAMES[0]).is_symlink()
    assert (tmp_path / "node" / NAMES[0]).read_bytes() == bytes(1000)


def test_a_file_in_the_way_is_left_alone(source: Path, tmp_path: Path) -> None:
    mine = tmp_path / "node" / NAMES[4]
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(DataError, match=r"004\.h5: is in the way: 4 bytes, not a copy of the 1004 bytes .*; remove it"):
        stage(source, tmp_path / "node", NAMES, 1)
    assert contents(tmp_path / "node") == {NAMES[4]: b"mine"}


def test_a_stale_sample_cannot_join_the_set(source: Path, tmp_path: Path) -> None:
    stale = tmp_path / "node" / "train" / "999.h5"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"old")
    with pytest.raises(DataError, match=r"999\.h5: is in the staging folder but not in the set .*; remove it, or set"):
        stage(source, tmp_path / "node", NAMES, 1)
    assert contents(tmp_path / "node") == {Path("train/999.h5"): b"old"}


def test_part_of_a_set_after_the_whole_is_no_problem(source: Path, tmp_path: Path) -> None:
    stage(source, tmp_path / "node", NAMES, 1)
    assert stage(source, tmp_path / "node", NAMES[:3], 1).skipped == 3


def test_too_little_space_is_told_before_the_first_byte(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "free_bytes", lambda _: 11_000)
    with pytest.raises(
        DataError, match=r"node: has 0\.00 GiB free but staging needs about 0\.00 GiB; free some, or set"
    ):
        stage(source, tmp_path / "node", NAMES, 1)
    assert not (tmp_path / "node").exists()


def test_a_disk_that_fills_up_meanwhile(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(DataError, match=r"cannot be staged \(No space left on device\); set staging\.destination"):
        stage(source, tmp_path / "node", NAMES, 2)
    assert contents(tmp_path / "node") == {}


def test_a_missing_source(source: Path, tmp_path: Path) -> None:
    (source / NAMES[3]).unlink()
    with pytest.raises(DataError, match=r"003\.h5: cannot be staged \(No such file or directory\); check data\.root"):
        stage(source, tmp_path / "node", NAMES, 2)
    assert not (tmp_path / "node").exists()


def test_a_source_that_changes_meanwhile(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(origin: Path, target: Path) -> None:
        COPYFILE(origin, target)
        with Path(origin).open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(shutil, "copyfile", grow)
    with pytest.raises(DataError, match=r"changed while it was copied \(\d+ bytes before, \d+ landed\); stage again"):
        stage(source, tmp_path / "node", NAMES, 1)
    assert contents(tmp_path / "node") == {}


def test_a_destination_that_is_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "node").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"node/train/000\.h5: cannot be looked at \(Not a directory\); check staging"):
        stage(source, tmp_path / "node", NAMES, 1)


def test_drop_cache_counts_the_files_that_it_advised(source: Path) -> None:
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("this system has no posix_fadvise")
    assert drop_cache([source / name for name in NAMES]) == len(NAMES)
    assert drop_cache([source / "missing", source / NAMES[0]]) == 1
    assert contents(source).keys() == set(NAMES)


def test_drop_cache_says_zero_where_the_system_cannot(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    assert drop_cache([source / NAMES[0]]) == 0
