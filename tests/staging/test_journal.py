"""The journal: a process that was killed is named by the next run, and one that still runs is not."""

import json
import multiprocessing
import os
import re
import signal
from pathlib import Path

import pytest

from staging.errors import DataError
from staging.ledger.journal import KILLED, Journal
from staging.ranks.world import Place

FORK = multiprocessing.get_context("fork")
PLACE = Place(2, 4, 1, 2, 0, 2, "n1")


def journal(folder: Path) -> Journal:
    (folder / ".staging").mkdir(exist_ok=True)
    return Journal(folder)


def begin_and_wait(folder: Path, ready: "multiprocessing.synchronize.Event") -> None:
    Journal(folder).start("3f2a", PLACE, "hpcbench stage a b")
    ready.set()
    signal.pause()


def test_start_and_end_are_lines_of_text(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    kept.end(kept.start("3f2a", PLACE, "hpcbench stage a b"), "aborted", "no space")
    header, start, end = [json.loads(line) for line in (tmp_path / ".staging/journal.jsonl").read_text().splitlines()]
    assert header == {"schema": 1, "what": "hpcbench staging journal"}
    assert start.items() >= {"event": "start", "id": "3f2a", "node": "n1", "rank": 2, "pid": os.getpid()}.items()
    assert start["command"] == "hpcbench stage a b"
    assert end.items() >= {"event": "end", "id": "3f2a", "outcome": "aborted", "reason": "no space"}.items()
    assert end["time"] >= start["time"]


def test_a_killed_process_is_named_until_it_is_written_down(tmp_path: Path) -> None:
    kept, ready = journal(tmp_path), FORK.Event()
    process = FORK.Process(target=begin_and_wait, args=(tmp_path, ready))
    process.start()
    assert ready.wait(20)
    assert kept.unfinished("n1") == []  # it runs
    assert not kept.is_done()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    [killed] = kept.unfinished("n1")
    assert re.fullmatch(
        rf"staging 3f2a of \d+-\d+-\d+ \d+:\d+:\d+ UTC was killed on node n1: rank 2, pid {process.pid}", str(killed)
    )
    kept.end(killed, KILLED)
    assert kept.unfinished("n1") == []
    assert not kept.is_done()


def test_the_number_of_a_process_that_was_given_again_misleads_nobody(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    kept.start("3f2a", PLACE, "")
    text = kept.path.read_text()
    assert kept.unfinished("n1") == []
    kept.path.write_text(re.sub(r'"born": \d+', '"born": 1', text))
    assert [start.rank for start in kept.unfinished("n1")] == [2]


def test_a_process_of_another_node_counts_as_gone(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    start = kept.start("3f2a", PLACE, "")
    assert kept.unfinished("n2") == [start]


def test_done_means_all_ranks_of_the_last_staging(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    assert kept.is_done()
    old = kept.start("old", PLACE, "")
    assert not kept.is_done()
    kept.end(old, KILLED)
    first = kept.start("new", PLACE, "")
    other = kept.start("new", Place(3, 4, 1, 2, 1, 2, "n1"), "")
    kept.end(first)
    assert not kept.is_done()
    kept.end(other)
    assert kept.is_done()


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    start = kept.start("3f2a", PLACE, "")
    with kept.path.open("a") as file:
        file.write('\n{"event": "start", "id": 3}\n{"event": "end"}\n{"a": 1}\n{"event": "end", "id": "3f2')
    assert kept.unfinished("n2") == [start]
    kept.end(start)
    assert kept.unfinished("n2") == []


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"journal.jsonl: cannot be written \(No such file or directory\)"):
        Journal(tmp_path).start("3f2a", PLACE, "")
