"""A probe finds the rates that there are, leaves nothing but its result, and a staging is held against it."""

from __future__ import annotations

import gzip
import json
import os
import time
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staging.ledger.durable_batch
import staging.probing.probe_local
import staging.storage.write_ways
from staging.cli import run
from staging.cli_options import add_arguments
from staging.counters import Counters
from staging.errors import DataError, InputError
from staging.options import StageOptions
from staging.probing.bottleneck import probed_shares
from staging.probing.ceilings import Ceilings, Rate, ceilings_for, read_ceilings, write_ceilings
from staging.probing.probe import probe
from staging.ranks.world import Alone, Place
from staging.report import RankReport
from staging.source.sources import FileReader, TreeSource
from staging.stage import stage
from staging.storage.destination_folder import DestinationFolder
from tests.staging.thread_world import run_ranks

RATE = 8e6
FILES = 16
SIZE = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of 1 MiB."""
    root = tmp_path / "source"
    root.mkdir()
    for number in range(FILES):
        (root / f"{number:02d}.bin").write_bytes(np.random.default_rng(number).bytes(SIZE))
    return root


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write little, and don't wait for what others have the disk do."""
    monkeypatch.setattr(staging.probing.probe_local, "TRIAL", 1 << 20)
    monkeypatch.setattr(staging.probing.probe_local, "LARGEST", 4 << 20)
    monkeypatch.setattr(staging.probing.probe_local, "sync_filesystem", lambda *_: None)
    monkeypatch.setattr(staging.ledger.durable_batch, "sync_filesystem", lambda *_: None)


class SlowOs:
    """``os`` whose writes take as long as ``RATE`` bytes per second do."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, descriptor: int, data: memoryview, position: int) -> int:
        time.sleep(len(data) / RATE)
        return os.pwrite(descriptor, data, position)

    def pwritev(self, descriptor: int, data: list[memoryview], position: int, flags: int = 0) -> int:
        time.sleep(sum(map(len, data)) / RATE)
        return os.pwritev(descriptor, data, position, flags)


class ThrottledReader(FileReader):
    """Reads ``RATE`` bytes per second."""

    def read_into(self, entry: int, offset: int, buffer: memoryview) -> None:
        time.sleep(len(buffer) / RATE)
        super().read_into(entry, offset, buffer)


class ThrottledSource(TreeSource):
    """Its readers are slow."""

    def reader(self) -> FileReader:
        return ThrottledReader(self)


def throttled(source: Path) -> ThrottledSource:
    """The files of ``source``, slow."""
    from staging.source.walk import list_tree

    return ThrottledSource(source, list_tree(source, Alone()).listing)


def test_finds_the_rate_of_a_throttled_source(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"), threads=2)
    found = probe(options, Alone(), budget_s=3, source=throttled(source), quiet=True)
    rates = [rate for rate in found.rates if rate.part == "read"]
    assert {(rate.threads, rate.block_bytes) for rate in rates} == {
        (threads, block) for threads in (1, 2, 4, 8) for block in (256 << 10, 1 << 20)
    }
    for rate in rates:
        assert 0.5 * RATE * rate.threads < rate.total < 1.05 * RATE * rate.threads
    best = found.best("read")
    assert best is not None
    assert best.threads == 8


def test_all_ranks_of_all_nodes_read_at_once(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), threads=1)
    found = run_ranks(
        [2, 1], lambda world: probe(options, world, budget_s=2, source=throttled(source), quiet=True)
    )  # fmt: skip
    assert found[0] == found[1] == found[2]
    one = next(rate for rate in found[0].rates if rate.part == "read" and rate.threads == 1)
    assert 0.5 * 2 * RATE < one.per_node[0] < 1.05 * 2 * RATE
    assert 0.5 * RATE < one.per_node[1] < 1.05 * RATE
    exchanged = [rate for rate in found[0].rates if rate.part == "exchange"]
    assert [rate.block_bytes for rate in exchanged] == [256 << 10, 1 << 20, 4 << 20, 8 << 20]
    assert all(min(rate.per_node) > 0 for rate in exchanged)
    for node in range(2):
        assert read_ceilings(tmp_path / f"node{node}") == found[0]


def test_leaves_nothing_but_its_result(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    left = out / ".staging" / "probe.dead"
    left.mkdir(parents=True)
    (left / "0.0.large").write_bytes(b"of a probe that was killed")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()}
    found = probe(StageOptions(source, str(out), threads=2), Alone(), budget_s=0.5, quiet=True)
    assert {str(path.relative_to(out)) for path in out.rglob("*")} == {
        ".staging", ".staging/lock", ".staging/probe.json",
    }  # fmt: skip
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}
    parts = {rate.part for rate in found.rates}
    assert parts == {"stat", "open", "read", "write", "write_flushed", "create", "crc32c"}
    assert {rate.note for rate in found.rates if rate.part == "read"} <= {"cold", "warm", "mixed", "unknown"}
    assert {rate.note for rate in found.rates if rate.part == "stat"} == {"repeated"}
    assert max(map(len, found.table().splitlines())) <= 100
    (machine,) = found.machine
    assert machine["nodes"] == machine["ranks"] == 1
    assert machine["cpus"] >= 1


def test_gunzip_is_measured_where_the_source_is_gzip(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / "source" / f"{number}.gz").write_bytes(gzip.compress(bytes(200_000)))
    found = probe(StageOptions(tmp_path / "source", str(tmp_path / "out")), Alone(), budget_s=0.5, quiet=True)
    rate = found.best("gunzip")
    assert rate is not None
    assert rate.total > 1e6
    assert "gunzip" in found.table()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["read", "write"])
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_the_slow_part_is_the_bound(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, path: Any
) -> None:
    if part == "read":
        monkeypatch.setattr(TreeSource, "reader", ThrottledSource.reader)
    else:
        monkeypatch.setattr(staging.storage.write_ways, "os", SlowOs())
    options = StageOptions(source, str(tmp_path / "out"), path=path, threads=4, verify="none", piece_bytes=SIZE)
    ceilings = probe(options, Alone(), budget_s=1.5, quiet=True)
    report = stage(options, Alone(), quiet=True)
    assert report.ceilings == ceilings
    report.ceilings = None
    assert report.bound().part == part
    assert 0.5 < report.bound().share <= 1.0
    report.ceilings = ceilings
    shares = {share.part: share.share for share in report.shares()}
    assert report.bound().part.startswith(part)
    assert shares.keys() == {"read", "open", "write", "write_flushed", "create"}
    assert all(0 < share < 1.3 for share in shares.values())
    if path == "direct":
        assert report.bound().share > 0.3
    again = report.as_dict()
    assert (again["bound_by"], again["bound_basis"]) == (report.bound().part, "probe")
    assert Ceilings.from_dict(json.loads(json.dumps(again))["ceilings"], "x") == ceilings


def test_json_round_trip_and_what_a_probe_is_for(tmp_path: Path) -> None:
    rates = (Rate("read", 2, 1 << 20, (1.5e9, 0.5e9), "cold"), Rate("stat", 8, 0, (1200.0, 0.0), "fresh"))
    found = Ceilings("/src", "/dst/{node}", ("a", "b"), 4, 9.5, rates, [{"nodes": 2, "cpus": [{"cores": 4}]}])
    (tmp_path / ".staging").mkdir()
    assert read_ceilings(tmp_path) is None
    with DestinationFolder(tmp_path) as folder:
        write_ceilings(found, folder)
    assert read_ceilings(tmp_path) == found
    assert ceilings_for(tmp_path, Path("/src"), 2) == found
    assert ceilings_for(tmp_path, Path("/src"), 3) is None
    assert ceilings_for(tmp_path, Path("/other"), 2) is None
    assert found.rates[0].total == 2e9
    lines = found.table().splitlines()
    assert "2.00 GB/s * cold" in lines[1]
    assert "1200 files/s * fresh" in lines[2]
    assert lines[-1].startswith("2 nodes, 4 ranks, 9.5 s")


def rated(per_node: str, threads: str = "1") -> str:
    """A result for two nodes with one rate."""
    rate = f'{{"part": "read", "threads": {threads}, "block_bytes": 1, "per_node": {per_node}, "note": ""}}'
    return f'{{"schema": 1, "machine": [], "nodes": ["a", "b"], "rates": [{rate}]}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "can't be read as JSON"),
        ("[]", "has schema None where 1 is read"),
        ('{"schema": 1, "nodes": [], "rates": [{}]}', "is not a probe's result (KeyError: 'part')"),
        ("[" * 100_000, "can't be read as JSON"),
        (f'{{"schema": {"[" * 900}{"]" * 900}}}', "has schema [["),
        (rated("[1]"), "rates of 2 nodes are as many numbers from 0 on"),
        (rated("[1, Infinity]"), "rates of 2 nodes are as many numbers from 0 on"),
        (rated("[1, -1]"), "rates of 2 nodes are as many numbers from 0 on"),
        (rated("[1, 1]")[:-1] + f', "machine": {"[" * 900}{"]" * 900}}}', "nested too deeply"),
        (rated("[1, 1]", threads="1e999"), "is not a probe's result (OverflowError"),
    ],
)
def test_a_damaged_result_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / ".staging").mkdir()
    (tmp_path / ".staging" / "probe.json").write_text(text)
    with pytest.raises(DataError) as caught:
        read_ceilings(tmp_path)
    assert words in str(caught.value)
    assert "probe again" in str(caught.value)


def test_a_table_of_forged_words_is_printable(tmp_path: Path) -> None:
    found = Ceilings("/src", "/dst", ("a",), 1, 1.0, (Rate("\x1b[2J", 1, 1, (1.0,), "a\nb\ud800"),))
    assert all(line.isprintable() for line in found.table().split("\n"))


def test_nodes_that_no_probe_measured_have_no_share() -> None:
    rates = tuple(Rate(part, 1, 1, (1e6, 2e6)) for part in ("read", "write", "crc32c"))
    found = Ceilings("/src", "/dst", ("a", "b"), 2, 1.0, rates)
    moved = Counters(bytes_read=10**6, bytes_landed=10**6)
    ranks = [RankReport(node, 0, moved, {"move": 1.0}, 1.0, "cold", "nvme", 1) for node in ("b", "c")]
    shares = probed_shares(ranks, found, "direct", "", "transfer")
    assert {(share.part, share.node) for share in shares} == {("read", ""), ("write", "b"), ("crc32c", "b")}


def test_a_result_that_cannot_be_written(tmp_path: Path) -> None:
    with DestinationFolder(tmp_path) as folder, pytest.raises(DataError, match=r"probe\.json: cannot be written"):
        write_ceilings(Ceilings("", "", ("a",), 1, 0, ()), folder)


def test_what_is_refused_before_anything_is_made(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    with pytest.raises(InputError, match=r"a probe of 0\.1 s is too short .* at least 0\.5"):
        probe(options, Alone(), budget_s=0.1)
    with pytest.raises(InputError, match="holds no file to probe with"):
        probe(replace(options, include=("*.none",)), Alone())
    with pytest.raises(InputError, match="does not exist"):
        probe(replace(options, source=tmp_path / "absent"), Alone())
    assert not (tmp_path / "out").exists()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "precious").write_bytes(b"x")
    with pytest.raises(InputError, match="was not made by staging"):
        probe(replace(options, destination=str(tmp_path / "theirs")), Alone())
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["precious"]


def test_ranks_without_a_lane_have_no_neighbours() -> None:
    from staging.probing.probe import neighbours

    found = run_ranks([2, 1, 1], neighbours)
    assert found == [(2, 3), None, (3, 0), (0, 2)]


def test_names_are_looked_at_once_where_there_are_enough() -> None:
    from staging.probing.probe_sample import Sample
    from staging.probing.probe_source import share_of

    many = Sample(source=None, root="/", names=[str(number) for number in range(1000)])  # type: ignore[arg-type]
    places = [Place(rank, 4, 0, 1, rank, 4, "n") for rank in range(4)]
    shares = [share_of(many, number, 5, place) for number in range(5) for place in places]
    assert {note for _, note in shares} == {"fresh"}
    assert sorted(int(name) for names, _ in shares for name in names) == list(range(1000))
    few = Sample(source=None, root="/", names=["a", "b"])  # type: ignore[arg-type]
    assert share_of(few, 3, 5, places[1]) == (["a", "b"], "repeated")


def command(*words: str) -> int:
    """``python -m staging`` with these words."""
    parser = ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words))


def test_the_command_probes_and_later_reports_compare(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = str(tmp_path / "out"), tmp_path / "probe.json"
    seconds = ("--probe-seconds", "0.5")
    assert command(str(source), out, "--probe", *seconds, "--report", str(file)) == 0
    assert "source read" in capsys.readouterr().out
    assert Ceilings.from_dict(json.loads(file.read_text()), file) == read_ceilings(tmp_path / "out")
    assert not any((tmp_path / "out").glob("*.bin"))
    assert command(str(source), out) == 0
    assert "of the probed ceiling" in capsys.readouterr().out
    assert command(str(source), str(tmp_path / "two"), "--probe-first", *seconds) == 0
    text = capsys.readouterr().out
    assert text.index("source read") < text.index("bound by")
    assert command(str(source), str(tmp_path / "three")) == 0
    assert "--probe-first" in capsys.readouterr().out
    with pytest.raises(InputError, match="--plan-only and --probe exclude one another"):
        command(str(source), out, "--probe", "--plan-only")
