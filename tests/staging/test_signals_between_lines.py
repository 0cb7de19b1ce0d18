"""A signal raises between any two lines of the main thread: nothing is lost, left half, or waited for without end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from staging.ledger import durable_batch
from staging.ledger.journal import Journal, Start
from staging.ledger.jsonl import read_lines
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.ranks.signals import Interrupted, Interrupts
from staging.ranks.world import Alone
from staging.stage import Staging, stage
from staging.threads.channel import Channel, Failure
from staging.threads.worker import Worker
from tests.staging.processes import LIMIT_S, PROGRAMS, contents, ended, make_tree, start


def send() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_tree(tmp_path / "source", 12)
    return tmp_path / "source"


def ends(destination: Path) -> list[tuple[str, str]]:
    """How the stagings of a destination ended, and why."""
    lines = [line for line in read_lines(Journal(destination).path) if line.get("event") == "end"]
    return [(line["outcome"], line["reason"]) for line in lines]


def test_one_that_meets_the_last_flush_loses_no_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = durable_batch.sync_filesystem

    def flush_and_be_asked_to_end(folder: Path, opened: int) -> None:
        flush(folder, opened)
        send()
        time.sleep(0.2)  # in which the main thread hears of it

    monkeypatch.setattr(durable_batch, "sync_filesystem", flush_and_be_asked_to_end)
    with pytest.raises(Interrupted), Interrupts():
        stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True)
    assert contents(tmp_path / "out") == contents(source)
    assert {each.name for each in load_records(tmp_path / "out")} == set(contents(source))
    assert ends(tmp_path / "out") == [("aborted", "signal SIGTERM")]


def test_one_that_meets_the_first_line_of_the_journal_is_written_down(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Journal.start

    def begin_and_be_asked_to_end(journal: Journal, begun: Start) -> None:
        begin(journal, begun)
        send()

    monkeypatch.setattr(Journal, "start", begin_and_be_asked_to_end)
    with pytest.raises(Interrupted), Interrupts():
        stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True)
    assert ends(tmp_path / "out") == [("aborted", "signal SIGTERM")]
    assert Journal(tmp_path / "out").unfinished("any") == []


def test_one_that_meets_the_last_line_of_the_journal_finds_it_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Journal.end

    def be_asked_to_end_first(journal: Journal, begun: Start, *words: str) -> None:
        send()
        time.sleep(0.2)  # in which the main thread hears of it
        end(journal, begun, *words)

    monkeypatch.setattr(Journal, "end", be_asked_to_end_first)
    with pytest.raises(Interrupted), Interrupts():
        stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True)
    assert ends(tmp_path / "out") == [("done", "")]


def test_one_that_meets_a_destructor_ends_a_staging_that_can_be_resumed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops the error there, and the staging went on to its end."""
    move = Staging.move

    class Destroyed:
        def __del__(self) -> None:
            send()

    def destroy_and_move(staging: Staging, landings: Any) -> None:
        Destroyed()
        time.sleep(0.5)
        move(staging, landings)

    with monkeypatch.context() as patched:
        patched.setattr(Staging, "move", destroy_and_move)
        with pytest.raises(Interrupted), Interrupts():
            stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True)
    assert ends(tmp_path / "out") == [("aborted", "signal SIGTERM")]
    stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True)
    assert contents(tmp_path / "out") == contents(source)


@pytest.mark.parametrize("begun", [False, True])
def test_one_that_meets_the_start_of_a_thread(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python gives a thread up whose start a signal meets, unless it had come to its first line."""
    begin: Callable[[threading.Thread], None] = threading.Thread.start
    done: list[int] = []

    def begin_or_not(thread: threading.Thread) -> None:
        if begun:
            begin(thread)
        raise Interrupted(signal.SIGTERM)

    worker = Worker(lambda: (time.sleep(0.3), done.append(1))[1], "work")
    monkeypatch.setattr(threading.Thread, "start", begin_or_not)
    with pytest.raises(Interrupted):
        worker.start()
    before = time.monotonic()
    assert worker.wait(20)
    assert time.monotonic() - before < 10
    assert done == [1] * begun


def test_those_that_meet_a_channel_leave_it_to_others() -> None:
    """Entering a condition, which is a call of Python's, can leave its lock taken."""
    taken = 0

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(300):
            channel: Channel[int] = Channel(4, Failure())
            with contextlib.suppress(Interrupted, RuntimeError):
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                for _ in range(10_000):  # more than it takes; an error that meets a destructor is dropped
                    channel.put(1)
                    channel.get()
            free: list[bool] = []
            other = threading.Thread(target=lambda channel=channel, free=free: free.append(_is_free(channel)))
            other.start()
            other.join()
            taken += not free[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert taken == 0


def _is_free(channel: Channel[int]) -> bool:
    got = channel._lock.acquire(timeout=0.01)
    if got:
        channel._lock.release()
    return got


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("who", [0, 1])
def test_one_to_a_rank_before_the_ranks_watch_each_other_ends_all(
    source: Path, tmp_path: Path, mpiexec: str, who: int
) -> None:
    words = [mpiexec, "-n", 2, sys.executable, PROGRAMS / "signalled_early.py", source, tmp_path / "{node}"]
    began = time.monotonic()
    code, _, error = ended(start([*words, "--simulated-nodes", 2], SIGNALLED=who), 60)
    assert time.monotonic() - began < LIMIT_S + 20
    assert code != 0
    assert error.count("staging: aborted: signal SIGTERM") == (who == 0)


def test_after_a_training_that_names_its_files_no_words_choose_others(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"), include=("train/*",))
    stage(options, Alone(), quiet=True)
    names = sorted(name for name in contents(source) if name.startswith("train/"))
    stage(StageOptions(source, str(tmp_path / "out")), Alone(), names, quiet=True)
    starts: list[dict[str, Any]] = [
        json.loads(line) for line in Journal(tmp_path / "out").path.read_text().splitlines() if '"start"' in line
    ]
    assert [each["selection"] for each in starts] == [["--include=train/*"], None]
    journal = Journal(tmp_path / "out")
    assert (journal.last_selection(), journal.was_by_names()) == ((), True)
