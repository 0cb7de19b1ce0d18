"""Stagings killed or signalled at any instant leave nothing half, and the next one goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from staging.ranks.signals import REPEATED_S
from tests.staging.faults.midway import PIECE, exchange, expect_copy, expect_sound, midway, report
from tests.staging.processes import (
    LIMIT_S,
    PACED,
    PLAIN,
    ended,
    journal,
    landed,
    make_tree,
    named,
    outcomes,
    run,
    said,
    start,
    unfinished,
    wait_until,
)


@pytest.mark.parametrize(
    "rounds",
    [4, pytest.param(18, marks=pytest.mark.slow), pytest.param(400, marks=[pytest.mark.slow, pytest.mark.long])],
)
def test_killed_at_any_instant_and_run_again(tmp_path: Path, rounds: int) -> None:
    source, destination = tmp_path / "source", tmp_path / "out"
    dice = random.Random(rounds)
    make_tree(source, 300)
    command = [*PACED, source, destination, *PIECE, "--threads", 1]
    killed, heard = [], ""
    for turn in range(rounds):
        make_tree(source, 30, first=300 + 30 * turn)
        if waits := (None, journal, named)[turn % 3]:  # for nothing, for its start, for files that have landed
            before = len(waits(destination))
        process = start(command, PACE_S=0.05, PACE_FILES=3)  # half a second for the thirty new files
        if waits:
            wait_until(lambda waits=waits, before=before: len(waits(destination)) > before)
        time.sleep(dice.uniform(0, 0.6))
        process.kill()
        code, _, error = ended(process)
        heard += error
        if code == -signal.SIGKILL and process.pid in outcomes(destination):
            killed.append(process.pid)
        expect_sound(destination, source)
    assert killed, heard
    code, _, error = run([*command, "--report", tmp_path / "report.json"])
    assert code == 0, error
    expect_copy(destination, source)
    found = outcomes(destination)
    assert all(found[pid] in ("killed", "done") for pid in killed)
    for pid in killed:
        assert found[pid] == "done" or f"pid {pid}; continuing from what it left" in heard + error
    assert report(tmp_path / "report.json")["files_present"] > 0


@pytest.mark.slow
@pytest.mark.mpi
def test_a_rank_killed_at_any_instant_of_an_exchange(tmp_path: Path, mpiexec: str) -> None:
    source = tmp_path / "source"
    dice = random.Random(5)
    make_tree(source, 200)
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    command = [mpiexec, "-n", 2, *PACED, source, tmp_path / "{node}", "--simulated-nodes", 2, "--path", "exchange"]
    command += PIECE
    for turn in range(3):
        make_tree(source, 20, first=200 + 20 * turn)
        victim = nodes[turn % 2]
        before = len(journal(victim))
        process = start(command, PACE_S=0.03)
        wait_until(lambda victim=victim, before=before: len(journal(victim)) > before)
        time.sleep(dice.uniform(0.0, 0.4))
        pid = [line["pid"] for line in journal(victim) if line.get("event") == "start"][-1]
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        code, _, error = ended(process)
        assert time.monotonic() - began < LIMIT_S
        assert code != 0
        assert len(said(error)) <= 1  # mpiexec may kill the other rank before it has spoken
        for node in nodes:
            expect_sound(node, source)
    code, _, error = run([*command, "--report", tmp_path / "report.json"])
    assert code == 0, error
    assert f"rank {nodes.index(victim)}, pid {pid}; continuing from what it left" in error
    for node in nodes:
        expect_copy(node, source)
        assert "" not in outcomes(node).values()
    assert report(tmp_path / "report.json")["files_present"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_midway(source: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = midway(source, tmp_path / "out")
    deadline = time.monotonic() + REPEATED_S / 2  # who goes on for longer does not want to wait
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(number)  # some launchers send it twice, and the second may meet the last line of all
        time.sleep(0.0005)
    code, _, error = ended(process, LIMIT_S)
    assert code == 128 + number, error
    assert said(error) == [f"staging: aborted: signal {number.name}; run it again to continue"]
    assert "Traceback" not in error
    end = journal(tmp_path / "out")[-1]
    assert (end["outcome"], end["reason"]) == ("aborted", f"signal {number.name}")
    assert unfinished(tmp_path / "out") == []
    there = landed(tmp_path / "out")
    assert 0 < len(there) < 300
    assert set(there) == set(named(tmp_path / "out"))
    code, _, error = run([*PLAIN, source, tmp_path / "out", "--report", tmp_path / "report.json"])
    assert code == 0
    assert "killed" not in error
    expect_copy(tmp_path / "out", source)
    assert report(tmp_path / "report.json")["files_present"] == len(there)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("who", [0, 1])
def test_a_signal_to_one_rank_ends_all(source: Path, tmp_path: Path, mpiexec: str, who: int) -> None:
    process = start(exchange(mpiexec, source, tmp_path), PACE_S=0.05)
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    wait_until(lambda: all(named(node) for node in nodes))
    pid = next(line["pid"] for line in journal(nodes[who]) if line.get("event") == "start")
    os.kill(pid, signal.SIGTERM)
    code, _, error = ended(process, LIMIT_S)
    assert code == 128 + signal.SIGTERM
    assert said(error) == [f"staging: aborted: rank {who} on node{who}: Interrupted: signal SIGTERM"]
    for node in nodes:
        end = journal(node)[-1]
        assert end["outcome"] == "aborted"
        assert "signal SIGTERM" in end["reason"]
        expect_sound(node, source)
    assert run(exchange(mpiexec, source, tmp_path), PACE_S=0)[0] == 0
    for node in nodes:
        expect_copy(node, source)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_signal_to_the_launcher(source: Path, tmp_path: Path, mpiexec: str) -> None:
    process = start(exchange(mpiexec, source, tmp_path), PACE_S=0.05)
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    wait_until(lambda: all(named(node) for node in nodes))
    process.terminate()
    code, _, error = ended(process, LIMIT_S)
    assert code != 0
    assert len(said(error)) <= 1
    for node in nodes:
        expect_sound(node, source)
    assert run(exchange(mpiexec, source, tmp_path), PACE_S=0)[0] == 0
    for node in nodes:
        expect_copy(node, source)
