"""The journal: a process that was killed is named by the next run, and one that still runs is not."""

import json
import multiprocessing
import os
import re
import signal
from pathlib import Path

import pytest

from staging.errors import DataError
from staging.ledger.journal import KILLED, Journal, Start
from staging.ranks.world import Place
from tests.staging.begun import begin

FORK = multiprocessing.get_context("fork")
PLACE = Place(2, 4, 1, 2, 0, 2, "n1")


def journal(folder: Path) -> Journal:
    (folder / ".staging").mkdir(exist_ok=True)
    return Journal(folder)


def begin_and_wait(folder: Path, ready: "multiprocessing.synchronize.Event") -> None:
    begin(Journal(folder), "3f2a", PLACE, "hpcbench stage a b")
    ready.set()
    signal.pause()


def test_start_and_end_are_lines_of_text(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    kept.end(begin(kept, "3f2a", PLACE, "hpcbench stage a b"), "aborted", "no space")
    lines = (tmp_path / ".staging/journal.jsonl").read_text().splitlines()
    header, start, end = [json.loads(line) for line in lines if line]
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
    begin(kept, "3f2a", PLACE, "")
    text = kept.path.read_text()
    assert kept.unfinished("n1") == []
    kept.path.write_text(re.sub(r'"born": \d+', '"born": 1', text))
    assert [start.rank for start in kept.unfinished("n1")] == [2]


def test_a_process_of_another_node_counts_as_gone(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    start = begin(kept, "3f2a", PLACE, "")
    assert kept.unfinished("n2") == [start]


def test_done_means_all_ranks_of_the_last_staging(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    assert kept.is_done()
    old = begin(kept, "old", PLACE, "")
    assert not kept.is_done()
    kept.end(old, KILLED)
    first = begin(kept, "new", PLACE, "")
    other = begin(kept, "new", Place(3, 4, 1, 2, 1, 2, "n1"), "")
    kept.end(first)
    assert not kept.is_done()
    kept.end(other)
    assert kept.is_done()


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    start = begin(kept, "3f2a", PLACE, "")
    with kept.path.open("a") as file:
        file.write('\n{"event": "start", "id": 3}\n{"event": "end"}\n{"a": 1}\n{"event": "end", "id": "3f2')
    assert kept.unfinished("n2") == [start]
    kept.end(start)
    assert kept.unfinished("n2") == []


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"journal.jsonl: cannot be written \(No such file or directory\)"):
        begin(Journal(tmp_path), "3f2a", PLACE, "")


def line(**changes: object) -> str:
    start = {
        "event": "start",
        "id": "3f2a",
        "time": 1.7e9,
        "node": "n2",
        "rank": 0,
        "pid": 1,
        "born": 5,
        "command": "c",
    }
    return json.dumps(start | changes)


@pytest.mark.parametrize("key", ["rank", "pid", "born", "time"])
@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e999", '"9"', "null", "[]"])
def test_a_line_with_a_number_that_is_none_is_no_start(tmp_path: Path, key: str, value: str) -> None:
    book = journal(tmp_path)
    book.path.write_text(line(**{key: "VALUE"}).replace('"VALUE"', value) + "\n" + line(id="other"))
    unfinished = book.unfinished("n1")
    assert [start.id for start in unfinished if start.id != "3f2a"] == ["other"]
    assert len(unfinished) == (2 if value == '"9"' else 1)
    book.path.write_text(json.dumps({"event": "end", "id": "a", "rank": 0, "pid": 0, "outcome": "done"}).replace(
        '"pid": 0', f'"pid": {value}'))  # fmt: skip
    assert book.is_done()


@pytest.mark.parametrize("time", [-1, 253402300800, 1e300])
def test_a_start_beyond_the_calendar_is_none(tmp_path: Path, time: float) -> None:
    book = journal(tmp_path)
    book.path.write_text(line(time=time))
    assert book.unfinished("n1") == []


def test_who_was_killed_is_told_in_one_line(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.path.write_text(line(node="n2\n\x1b[2J\ud800", time=253402300799))
    (start,) = book.unfinished("n1")
    assert str(start) == (
        "staging 3f2a of 9999-12-31 23:59:59 UTC was killed on node n2 \\x1b[2J\\ud800: rank 0, pid 1"
    )


def test_the_last_staging_from_a_source_says_what_it_chose(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    assert kept.last_selection() == ()
    for words in (["--hidden"], ["--include", "a b"], None):  # the last brings nothing from the source
        kept.end(begin(kept, "3f2a", PLACE, "hpcbench stage a b", words))
    assert kept.last_selection() == ("--include", "a b")
    assert not kept.was_by_names()
    kept.start(Start.of_this_process("3f2b", PLACE, "hpcbench train", by_names=True))
    assert (kept.was_by_names(), kept.last_selection()) == (True, ())
