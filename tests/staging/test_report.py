"""The report names what bound a staging, by the ceilings of a probe or by who was busy, and fits 100 columns."""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staging.ledger.durable_batch
from staging.counters import Counters
from staging.landing.file_sink import FileSinkMaker
from staging.landing.sinks import Landed
from staging.options import StageOptions
from staging.probing.bottleneck import busy_shares, probed_shares
from staging.probing.ceilings import Ceilings, Rate
from staging.ranks.world import Alone
from staging.report import RankReport, StagingReport
from staging.source.sources import FileReader
from staging.stage import stage
from staging.storage.destination_folder import DestinationFolder
from tests.staging.thread_world import ThreadWorld, run_ranks

GB = 10**9
CHECKSUMS = "staging.landing.file_sink.checksums"


def rank(node: str = "a", wait: float = 0.0, move: float = 2.0, threads: int = 4, **counters: Any) -> RankReport:
    """A rank that listed for 0.5 s, moved, flushed for 1 s and waited."""
    phases = {"list": 0.5, "move": move, "commit": 1.0, "wait": wait}
    return RankReport(node, 0, Counters(**counters), phases, sum(phases.values()), "cold", "nvme", threads)


def report(*ranks: RankReport, ceilings: Ceilings | None = None, **settings: Any) -> StagingReport:
    """A staging of these ranks."""
    how = {"placement": "replicate", "path": "direct", "transform": "", "verify": "none"} | settings
    return StagingReport("/src", "/dst", flushed=True, ranks=list(ranks), ceilings=ceilings, **how)


def ceilings(*rates: tuple[str, tuple[float, ...]], nodes: tuple[str, ...] = ("a",)) -> Ceilings:
    """What a probe may have found."""
    return Ceilings("/src", "/dst", nodes, len(nodes), 10, tuple(Rate(part, 4, 0, values) for part, values in rates))


def test_shares_of_probed_ceilings_are_rate_over_rate() -> None:
    one = rank(bytes_read=4 * GB, files_read=200, bytes_landed=6 * GB, files_landed=100)
    probed = ceilings(
        ("read", (4e9,)), ("read", (1e9,)), ("open", (1000.0,)), ("write", (4e9,)), ("write_flushed", (2.5e9,)),
        ("create", (500.0,)), ("crc32c", (12e9,)), ("gunzip", (6e9,)),
    )  # fmt: skip
    shares = {share.part: share.share for share in probed_shares([one], probed, "direct", "gunzip", "transfer")}
    assert shares == pytest.approx({
        "read": 2 / 4, "open": 100 / 1000, "write": 3 / 4, "write_flushed": 2 / 2.5, "create": 50 / 500,
        "crc32c": 3 / 12, "gunzip": 3 / 6,
    })  # fmt: skip
    assert next(iter(shares)) == "write_flushed"
    plain = {share.part for share in probed_shares([one], probed, "direct", "", "none")}
    assert not plain & {"crc32c", "gunzip"}


def test_the_source_counts_in_all_and_the_rest_on_the_node_that_decides() -> None:
    """The slowest; in an exchange, where nodes wait for one another, the one that is nearest to its ceiling."""
    ranks = [rank("a", move=4.0, bytes_read=4 * GB, bytes_landed=4 * GB),
             rank("b", move=2.0, wait=2.0, bytes_read=4 * GB, bytes_landed=4 * GB)]  # fmt: skip
    probed = ceilings(("read", (2e9, 2e9)), ("write", (4e9, 2.5e9)), nodes=("a", "b"))
    read, write = probed_shares(ranks, probed, "direct", "", "none")
    assert (read.part, read.node, read.share) == ("read", "", pytest.approx(8 / 4 / 4))
    assert (write.part, write.node, write.share) == ("write", "a", pytest.approx(1 / 4))
    write, read = probed_shares(ranks, probed, "exchange", "", "none")
    assert (read.part, read.node, read.share) == ("read", "", pytest.approx(8 / 4 / 4))
    assert (write.part, write.node, write.share) == ("write", "b", pytest.approx(2 / 2.5))


def test_what_keeps_a_fast_node_busy_does_not_bind_a_slow_one() -> None:
    """One node reads for 8 s of 9.5. Another one writes for 4 s, 42 % of the time, but nobody waits for that."""
    ranks = [rank("slow", move=8.0, read_s=8.0, write_s=1.0, write_stalled_s=7.0),
             rank("fast", move=4.0, wait=4.0, read_s=0.5, read_stalled_s=3.5, write_s=4.0)]  # fmt: skip
    shares = {share.part: share.share for share in busy_shares(ranks, "direct")}
    assert shares == pytest.approx({"read": 8 / 9.5, "write": 1 / 9.5, "commit": 1 / 9.5, "list": 0.5 / 9.5})


def test_exchange_is_held_against_the_larger_direction_and_checksums_count_each_way() -> None:
    one = rank(bytes_read=2 * GB, bytes_sent=2 * GB, bytes_received=6 * GB, bytes_landed=8 * GB)
    probed = ceilings(("exchange", (4e9,)), ("crc32c", (16e9,)))
    shares = {share.part: share.share for share in probed_shares([one], probed, "exchange", "", "transfer")}
    assert shares == pytest.approx({"exchange": 3 / 4, "crc32c": 8 / 16})


def test_without_a_probe_the_whole_time_counts() -> None:
    one = rank(move=2.0, read_s=8.0, write_s=2.0, write_stalled_s=6.0)
    shares = {share.part: share.share for share in busy_shares([one], "direct")}
    assert shares == pytest.approx({"read": 2 / 3.5, "commit": 1 / 3.5, "write": 0.5 / 3.5, "list": 0.5 / 3.5})


def test_small_files_share_a_thread_and_idle_threads_dilute_nothing() -> None:
    inline = {share.part: share.share for share in busy_shares([rank(read_s=6.0, write_s=2.0)], "direct")}
    assert inline["read"] == pytest.approx(0.75 * 2 / 3.5)
    assert inline["write"] == pytest.approx(0.25 * 2 / 3.5)
    lonely = busy_shares([rank(read_s=1.9, read_stalled_s=0.1, write_s=0.2, write_stalled_s=1.8)], "direct")
    assert lonely[0].part == "read"
    assert lonely[0].share == pytest.approx(0.95 * 2 / 3.5)


def test_waiting_for_a_slower_partner_is_not_the_exchange() -> None:
    ranks = [
        rank("a", read_s=1.9, exchange_s=0.2, bytes_sent=1),
        rank("b", read_s=0.1, exchange_s=1.9, bytes_sent=1),
        rank("c", move=0.0),
    ]
    shares = {share.part: share.share for share in busy_shares(ranks, "exchange")}
    assert shares["read"] > shares["exchange"] == pytest.approx(0.2 / 3.5)


def test_writers_of_the_exchange_are_as_many_as_nodes_that_read() -> None:
    ranks = [rank(node, threads=8, write_s=3.6) for node in ("a", "b")]
    write = next(share for share in busy_shares(ranks, "exchange") if share.part == "write")
    assert write.share == pytest.approx(1.8 / 3.5)


@pytest.mark.parametrize(("ceiling", "told"), [(4e9, False), (1.9e9, False), (1e9, True)])
def test_a_probe_that_saw_too_little_is_told(ceiling: float, told: bool) -> None:
    found = report(rank(bytes_landed=4 * GB), ceilings=ceilings(("write", (ceiling,))))
    assert "bound by local write: 2.00 GB/s of " in found.bound_sentence()
    assert ("the probe saw too little, repeat it for longer" in found.bound_sentence()) is told


def test_what_was_there_already_is_told() -> None:
    assert ", wait 0.00 s); slowest node a" in report(rank(files_landed=3)).sentence()
    found = report(rank("a", files_present=40), rank("b", files_present=7))
    assert ", wait 0.00 s), 47 were there already; slowest node" in found.sentence()


def test_slowest_and_median_are_named_by_their_own_time() -> None:
    found = report(rank("a", wait=3.0), rank("b", move=5.0), rank("c", wait=1.0, move=4.0))
    slowest, median = found.slowest_and_median()
    assert (slowest.name, slowest.seconds) == ("b", 6.5)
    assert (median.name, median.seconds) == ("c", 5.5)
    assert "slowest node b 6.50 s, median node c 5.50 s" in found.sentence()
    assert (found.as_dict()["median_node"], found.as_dict()["slowest_node"]) == ("c", "b")


@pytest.mark.parametrize("nodes", [1, 5, 300])
@pytest.mark.parametrize("probed", [False, True])
def test_the_table_fits_100_columns(nodes: int, probed: bool) -> None:
    names = tuple(f"a-node-with-quite-a-long-name-{number:04d}" for number in range(nodes))
    parts = ("read", "open", "write", "write_flushed", "create", "crc32c")
    found = ceilings(*((part, (1e9,) * nodes) for part in parts), nodes=names) if probed else None
    counters = {"bytes_read": GB, "files_read": 9, "bytes_landed": GB, "files_landed": 9, "read_s": 1.0}
    lines = report(*(rank(name, **counters) for name in names), ceilings=found, verify="reread").table().splitlines()
    assert max(map(len, lines)) <= 100
    said = " ".join(lines)
    assert ("bound by" in said) is probed
    assert ("--probe" in said) is not probed
    assert "500.00 MB/s" in lines[1]
    assert len(lines) < 14


def test_nothing_moved() -> None:
    still = report(rank(move=0.0))
    assert still.bound().part == "commit"
    probed = report(rank(move=0.0), ceilings=ceilings(("read", (1e9,))))
    assert probed.bound().part == "nothing"
    assert "nothing moved" in probed.table()
    assert probed.as_dict()["shares"] == []


def test_the_flush_and_the_checksums_are_part_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_bytes(bytes(1000))
    for name, seconds in (("staging.ledger.durable_batch.sync_filesystem", 0.2), (CHECKSUMS, 0.3)):
        delay(monkeypatch, name, seconds)
    (found,) = stage(StageOptions(tmp_path / "source", str(tmp_path / "out")), Alone(), quiet=True).ranks
    assert found.phases_s["commit"] > 0.2
    assert found.counters.write_s > 0.3
    assert found.phases_s["move"] > 0.3
    assert found.seconds == pytest.approx(sum(found.phases_s.values()), rel=0.01)


@pytest.mark.parametrize("files", [1, 12])
def test_the_slow_reader_is_named_however_few_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    (tmp_path / "source").mkdir()
    for number in range(files):
        (tmp_path / "source" / str(number)).write_bytes(bytes(2 << 20))
    monkeypatch.setattr(staging.ledger.durable_batch, "sync_filesystem", lambda *_: None)
    slow(monkeypatch, FileReader, "read_into", 0.15)
    found = stage(StageOptions(tmp_path / "source", str(tmp_path / "out"), piece_bytes=1 << 20), Alone(), quiet=True)
    assert found.bound().part == "read"
    assert 0.5 < found.bound().share <= 1


def test_one_nodes_slow_writer_is_named_and_not_the_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    for number in range(10):
        (tmp_path / "source" / str(number)).write_bytes(np.random.default_rng(number).bytes(50_000))
    real = FileSinkMaker.write_whole

    def write(self: FileSinkMaker, destination: DestinationFolder, *words: Any) -> Landed:
        time.sleep(0.03 if destination.path.name == "node0" else 0)
        return real(self, destination, *words)

    monkeypatch.setattr(FileSinkMaker, "write_whole", write)
    monkeypatch.setattr(staging.ledger.durable_batch, "sync_filesystem", lambda *_: None)
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), path="exchange", piece_bytes=50_000)

    def one(world: ThreadWorld) -> StagingReport:
        return stage(options, world, quiet=True)

    assert run_ranks([1, 1], one)[0].bound().part == "write"


def delay(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
    """Let a function take longer."""
    real: Callable[..., Any] = pkgutil.resolve_name(name)

    def late(*words: Any) -> Any:
        time.sleep(seconds)
        return real(*words)

    monkeypatch.setattr(name, late)


def slow(monkeypatch: pytest.MonkeyPatch, cls: type, method: str, seconds: float) -> None:
    """Make a method take ``seconds`` longer."""
    real = getattr(cls, method)

    def slower(self: Any, *words: Any) -> Any:
        time.sleep(seconds)
        return real(self, *words)

    monkeypatch.setattr(cls, method, slower)
