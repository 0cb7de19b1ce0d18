"""Many logs are read by several processes and from the cache, and give the records that one process reads."""

from __future__ import annotations

import ast
import dataclasses
import errno
import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from hpcbench.mlperf import official_folders, read_log
from hpcbench.mlperf import read_runs as reading
from hpcbench.mlperf.find_logs import LogLocation, find_runs
from hpcbench.mlperf.log_cache import READERS, LogCache, cache_file, version_of_readers
from hpcbench.mlperf.official_log import OfficialLog, read_official_log
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.run_record import RunRecord
from staging.errors import InputError

LOGS = Path(__file__).parents[2] / "data" / "logs"


@pytest.fixture
def round_folder(tmp_path: Path) -> Path:
    """Three logs of an entry, an hour old."""
    folder = tmp_path / "v1.0" / "NVIDIA" / "results" / "dgx" / "strong" / "cosmoflow"
    folder.mkdir(parents=True)
    for number in (1, 2, 3):
        text = (LOGS / "v1.0-nvidia-cosmoflow.txt").read_text(encoding="utf-8")
        (folder / f"result_{number}.txt").write_text(text, encoding="utf-8")
    systems = tmp_path / "v1.0" / "NVIDIA" / "systems"
    systems.mkdir()
    shutil.copyfile(LOGS / "v1.0-nvidia-cosmoflow-system.json", systems / "dgx.json")
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    return tmp_path / "v1.0"


@pytest.fixture
def cache(tmp_path: Path) -> LogCache:
    return LogCache(tmp_path / "cache" / "logs.sqlite")


def read_again(
    locations: list[LogLocation], cache: LogCache, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[RunRecord]]:
    """The names of the logs that are read, and the records."""
    read: list[str] = []

    def note(location: LogLocation) -> RunRecord:
        read.append(location.path.name)
        return reading.read_location(location)

    monkeypatch.setattr(reading, "read_run", note)
    return read, read_runs(locations, cache=cache)


def test_processes_read_what_one_reads(round_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locations = find_runs([round_folder])
    alone = read_runs(locations)
    monkeypatch.setattr(reading, "FEWEST_FOR_PROCESSES", 2)
    assert read_runs(locations, processes=2) == alone
    assert len({dataclasses.astuple(record)[0] for record in alone}) == 3


def test_a_log_that_was_read_is_not_read_again(
    round_folder: Path, cache: LogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations = find_runs([round_folder])
    first = read_runs(locations, cache=cache)
    read, again = read_again(locations, cache, monkeypatch)
    assert read == []
    assert again == first
    assert any(record.notes for record in again), "notes about other runs are made anew, once"
    assert sqlite3.connect(cache.file).execute("SELECT COUNT(*) FROM logs").fetchone() == (3,)


def test_a_path_that_is_typed_otherwise_is_the_one_in_the_record(
    round_folder: Path, cache: LogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_runs(find_runs([round_folder]), cache=cache)
    monkeypatch.chdir(round_folder.parent)
    read, again = read_again(find_runs([Path("v1.0")]), cache, monkeypatch)
    assert read == []
    assert again[0].path == "v1.0/NVIDIA/results/dgx/strong/cosmoflow/result_1.txt"


@pytest.mark.parametrize("changed", ["log", "time", "description", "folder", "new code", "other fields", "no JSON"])
def test_what_changed_is_read_again(
    round_folder: Path, cache: LogCache, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    locations = find_runs([round_folder])
    read_runs(locations, cache=cache)
    log = locations[1].path
    status = log.stat()
    expected = [log.name]
    if changed == "log":
        with log.open("a", encoding="utf-8") as stream:
            stream.write("\n")
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif changed == "time":
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    elif changed == "description":
        assert locations[1].description is not None
        os.utime(locations[1].description, (1e9, 1e9))
        expected = [location.path.name for location in locations]
    elif changed == "folder":  # the same log, in a folder of another name, is another log
        log.rename(log.parents[2] / "result_2.txt")
        locations = find_runs([round_folder])
    elif changed == "new code":
        cache = LogCache(cache.file)
        cache.__dict__["version"] = "another"
        expected = [location.path.name for location in locations]
    else:
        record = "{" if changed == "no JSON" else json.dumps({"path": "x"})
        with sqlite3.connect(cache.file) as database:
            database.execute("UPDATE logs SET value = ? WHERE key LIKE '%result_2.txt%'", (record,))
    assert read_again(locations, cache, monkeypatch)[0] == expected


def test_a_log_that_changes_just_now_is_not_kept(
    round_folder: Path, cache: LogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations = find_runs([round_folder])
    locations[0].path.touch()
    read_runs(locations, cache=cache)
    assert read_again(locations, cache, monkeypatch)[0] == ["result_1.txt"]


def test_a_log_that_changes_while_others_are_read_is_not_kept(
    round_folder: Path, cache: LogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not where the change is as old as that of a settled log by the time all have been read."""
    locations = find_runs([round_folder])
    asked = [(location.path, "1.0.0") for location in locations]

    def read(last: Path) -> None:
        if last.name == "result_3.txt":
            first = locations[0].path
            first.write_text(first.read_text(encoding="utf-8") + "\n", encoding="utf-8")
            os.utime(first, (time.time() - 60, time.time() - 60))

    def run(location: LogLocation) -> RunRecord:
        read(location.path)
        return reading.read_location(location)

    def official(log: tuple[Path, str]) -> OfficialLog:
        read(log[0])
        return read_official_log(*log)

    monkeypatch.setattr(reading, "read_run", run)
    monkeypatch.setattr(official_folders, "read_one", official)
    read_runs(locations, cache=cache)
    official_folders.official_logs(asked, cache)
    kept = sqlite3.connect(cache.file).execute("SELECT key FROM logs ORDER BY key").fetchall()
    assert len(kept) == 4
    assert not any("result_1.txt" in key for (key,) in kept)


@pytest.mark.parametrize("wrong", ["no database", "a folder", "a table of something else", "a file where a folder is"])
def test_without_a_cache_logs_are_read(round_folder: Path, tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "cache" / "logs.sqlite"
    if wrong == "a file where a folder is":
        file.parent.write_text("", encoding="utf-8")
    elif wrong == "a folder":
        file.mkdir(parents=True)
    else:
        file.parent.mkdir()
        file.write_bytes(b"no database" * 100)
    if wrong == "a table of something else":
        file.unlink()
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE logs (one TEXT)")
    locations = find_runs([round_folder])
    for _ in range(2):
        assert read_runs(locations, cache=LogCache(file)) == read_runs(locations)


def test_the_cache_is_where_users_have_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "hpcbench" / "logs.sqlite"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_file() == Path.home() / ".cache" / "hpcbench" / "logs.sqlite"


def test_a_user_without_a_home_reads_without_a_cache(monkeypatch: pytest.MonkeyPatch, round_folder: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", no_home)
    locations = find_runs([round_folder])
    for _ in range(2):
        assert read_runs(locations, cache=LogCache(cache_file())) == read_runs(locations)
    assert not cache_file().exists()


def test_the_version_is_that_of_the_code_that_reads() -> None:
    assert version_of_readers() == version_of_readers()
    assert len(version_of_readers()) == 64


def test_the_version_is_that_of_every_module_that_decides_what_a_record_says() -> None:
    """What ``read_log`` imports, but where logs are, which is no part of a record's value."""
    tree = ast.parse(Path(read_log.__file__).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    of_records = {name for name in names if name and name.startswith(("hpcbench.mlperf", "hpcbench.measure"))}
    assert of_records - {"hpcbench.mlperf.find_logs"} <= set(READERS)
    assert "hpcbench.measure.log_rules" in READERS, "the targets of reached_target"


def test_a_folder_that_cannot_be_listed_is_named_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    for name in ("open", "locked"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result_0.txt").touch()
    assert len(find_runs([tmp_path])) == 2
    monkeypatch.setattr(os, "scandir", refuse)  # root may look everywhere
    with pytest.raises(InputError, match=r"locked cannot be read \(Permission denied\); make it readable"):
        find_runs([tmp_path])
