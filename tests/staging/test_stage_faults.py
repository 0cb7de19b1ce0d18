"""Faults that really happen to stagings that run as processes: one line ends them, and the next one mends it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from staging.ranks.world import Alone, this_node
from staging.source.index import write_index
from staging.source.walk import list_tree
from tests.staging.processes import (
    LIMIT_S,
    OBEYING,
    PACED,
    PLAIN,
    contents,
    ended,
    journal,
    landed,
    make_tree,
    memory_folder,
    named,
    outcomes,
    run,
    said,
    start,
    unfinished,
    wait_until,
)

PIECE = ["--piece-bytes", 60_000]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where it can be: a flush of a disk waits for what others write to it."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A few hundred small files."""
    make_tree(tmp_path / "source", 300)
    return tmp_path / "source"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a filesystem of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root, to mount a small filesystem")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a small filesystem here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def expect_sound(destination: Path, source: Path) -> None:
    """Everything that the manifest names is whole."""
    for name, item in named(destination).items():
        data = (destination / name).read_bytes()
        assert len(data) == item["size"]
        assert crc32c(data) == item["crc32c"]
        assert data == (source / name).read_bytes()


def expect_copy(destination: Path, source: Path) -> None:
    """The destination is the source, and nothing is left behind."""
    assert contents(destination) == contents(source)
    assert set(named(destination)) == set(contents(source))
    assert unfinished(destination) == []


def report(path: Path) -> dict[str, int]:
    """The sums of a report."""
    totals: dict[str, int] = json.loads(path.read_text())["totals"]
    return totals


@pytest.mark.parametrize("rounds", [4, pytest.param(18, marks=pytest.mark.slow)])
def test_killed_at_any_instant_and_run_again(tmp_path: Path, rounds: int) -> None:
    source, destination = tmp_path / "source", tmp_path / "out"
    dice = random.Random(rounds)
    make_tree(source, 300)
    command = [*PACED, source, destination, *PIECE]
    killed, heard = [], ""
    for turn in range(rounds):
        make_tree(source, 30, first=300 + 30 * turn)
        before = len(journal(destination))
        process = start(command, PACE_S=0.02)
        if turn % 3:
            wait_until(lambda before=before: len(journal(destination)) > before)
        time.sleep(dice.uniform(0, 0.6))
        process.kill()
        code, _, error = ended(process)
        heard += error
        if code == -signal.SIGKILL and process.pid in outcomes(destination):
            killed.append(process.pid)
        expect_sound(destination, source)
    assert killed
    code, _, error = run([*command, "--report", tmp_path / "report.json"])
    assert code == 0, error
    expect_copy(destination, source)
    found = outcomes(destination)
    assert all(found[pid] in ("killed", "done") for pid in killed)
    for pid in killed:
        assert found[pid] == "done" or f"pid {pid}; going on from what it left" in heard + error
    assert report(tmp_path / "report.json")["files_present"] > 0


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
    assert f"rank {nodes.index(victim)}, pid {pid}; going on from what it left" in error
    for node in nodes:
        expect_copy(node, source)
        assert "" not in outcomes(node).values()
    assert report(tmp_path / "report.json")["files_present"] > 0


def midway(source: Path, destination: Path, *words: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A staging of which some files are named already and most have not landed."""
    process = start([*before, *PACED, source, destination, *PIECE, "--threads", 1, *words], PACE_S=0.03)
    wait_until(lambda: named(destination))
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_midway(source: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = midway(source, tmp_path / "out")
    process.send_signal(number)
    process.send_signal(number)  # some launchers send it twice
    code, _, error = ended(process, LIMIT_S)
    assert code == 128 + number
    assert said(error) == [f"staging: aborted: signal {number.name}; run it again to go on"]
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


def exchange(mpiexec: str, source: Path, destination: Path, *words: object) -> list[object]:
    """A paced exchange between two pretended nodes."""
    paced = [*PACED, source, destination / "{node}", *PIECE, "--simulated-nodes", 2, "--path", "exchange"]
    return [mpiexec, "-n", 2, *paced, *words]


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


LAST = "validation/00297.bin"

CHANGES = {
    "removed": (lambda path: path.unlink(), "vanished from the source"),
    "truncated": (lambda path: os.truncate(path, 10), "changed while it was staged"),
    "written": (lambda path: path.write_bytes(b"!" * path.stat().st_size), "was written to since it was listed"),
    "no file any more": (lambda path: (path.unlink(), path.mkdir()), "cannot be read (Is a directory)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_file_changes_midway(source: Path, tmp_path: Path, change: str) -> None:
    alter, words = CHANGES[change]
    process = midway(source, tmp_path / "out")
    alter(source / LAST)
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1
    assert said(error)[0].startswith(f"staging: error: {this_node()}: {source / LAST}: ")
    assert words in said(error)[0]
    assert journal(tmp_path / "out")[-1]["outcome"] == "aborted"
    assert unfinished(tmp_path / "out") == []
    there = landed(tmp_path / "out")
    assert set(there) == set(named(tmp_path / "out"))
    assert LAST not in there


def test_a_source_file_becomes_unreadable(source: Path, tmp_path: Path) -> None:
    process = midway(source, tmp_path / "out", before=OBEYING)
    (source / LAST).chmod(0)
    code, _, error = ended(process)
    assert (code, len(said(error))) == (2, 1)
    assert f"{source / LAST}: cannot be read (Permission denied)" in said(error)[0]


@pytest.mark.mpi
@pytest.mark.parametrize("change", ["removed", "truncated"])
def test_a_source_file_changes_midway_on_one_rank_of_several(
    source: Path, tmp_path: Path, mpiexec: str, change: str
) -> None:
    process = start(exchange(mpiexec, source, tmp_path), PACE_S=0.05)
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    wait_until(lambda: all(named(node) for node in nodes))
    CHANGES[change][0](source / LAST)  # the second node reads the second half
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1, error
    assert said(error)[0].startswith(f"staging: aborted: rank 1 on node1: DataError: {source / LAST}: ")
    for node in nodes:
        end = journal(node)[-1]
        assert end["outcome"] == "aborted"
        assert LAST in end["reason"]
        expect_sound(node, source)


def test_a_filesystem_that_is_too_small(tmp_path: Path, small: Path) -> None:
    make_tree(tmp_path / "source", 100, largest=200_000)
    code, _, error = run([*PLAIN, tmp_path / "source", small / "out"])
    assert code == 2
    assert re.fullmatch(
        rf"staging: error: {small}/out: node \S+ has \S+ MiB free where staging needs \S+ MiB; free some.*",
        "".join(said(error)),
    )
    assert list(small.iterdir()) == []


@pytest.mark.mpi
def test_a_filesystem_that_is_too_small_on_one_node(tmp_path: Path, small: Path, mpiexec: str) -> None:
    make_tree(tmp_path / "source", 100, largest=200_000)
    (tmp_path / "node1").symlink_to(small)
    command = exchange(mpiexec, tmp_path / "source", tmp_path)
    command[command.index(tmp_path / "{node}")] = tmp_path / "{node}" / "out"
    code, _, error = run(command)
    assert code == 2
    assert len(said(error)) == 1
    assert f"staging: error: {tmp_path}/node1/out: node node1 has " in said(error)[0]
    assert list(small.iterdir()) == []
    assert not (tmp_path / "node0").exists()


def test_a_filesystem_that_fills_up_midway(source: Path, tmp_path: Path, small: Path) -> None:
    process = midway(source, small / "out")
    fill(small / "foreign")
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1, error
    where = rf"staging: error: {this_node()}: {small}/out/\S+"
    assert re.match(rf"{where}: cannot be written \(No space left on device\)", said(error)[0])
    expect_sound(small / "out", source)
    (small / "foreign").unlink()
    code, _, error = run([*PLAIN, source, small / "out", "--report", tmp_path / "report.json"])
    assert code == 0, error
    expect_copy(small / "out", source)
    assert report(tmp_path / "report.json")["files_present"] > 0


@pytest.mark.mpi
def test_the_node_whose_filesystem_fills_up_is_named(source: Path, tmp_path: Path, small: Path, mpiexec: str) -> None:
    (tmp_path / "node1").symlink_to(small)
    command = exchange(mpiexec, source, tmp_path)
    command[command.index(tmp_path / "{node}")] = tmp_path / "{node}" / "out"
    process = start(command, PACE_S=0.05)
    wait_until(lambda: named(small / "out"))
    fill(small / "foreign")
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1, error
    start_of_line = (
        rf"staging: aborted: rank 1 on node1: DataError: {tmp_path}/node1/out/\S+: cannot be written \(No space"
    )
    assert re.match(start_of_line, said(error)[0])
    (small / "foreign").unlink()
    assert run(command, PACE_S=0)[0] == 0
    expect_copy(small / "out", source)
    expect_copy(tmp_path / "node0" / "out", source)


def fill(path: Path) -> None:
    """Take all space that is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def test_a_byte_that_flips_in_the_source(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "dataset.index"
    listing = list_tree(source, Alone()).listing
    for number, name in enumerate(listing.names):
        listing.checksums[number] = crc32c((source / name).read_bytes())
    write_index(index, listing)
    flip(source / LAST)
    code, _, error = run([*PLAIN, source, tmp_path / "out", "--index", index])
    assert code == 2
    assert len(said(error)) == 1
    assert f"{source / LAST}: has CRC32C" in said(error)[0]
    assert "where the index says" in said(error)[0]
    assert LAST not in contents(tmp_path / "out")
    # Without checksums to compare with, a flipped byte leaves no trace.
    assert run([*PLAIN, source, tmp_path / "other"])[0] == 0
    expect_copy(tmp_path / "other", source)


def test_a_byte_that_flips_at_the_destination(source: Path, tmp_path: Path) -> None:
    command = [*PLAIN, source, tmp_path / "out"]
    assert run(command)[0] == 0
    flip(tmp_path / "out" / LAST)
    assert run(command)[0] == 0
    code, _, error = run([*command, "--verify", "reread"])
    assert code == 2
    assert len(said(error)) == 1
    assert f"{tmp_path}/out: does not hold what landed there: {LAST}: has CRC32C" in said(error)[0]
    (tmp_path / "out" / LAST).unlink()
    assert run([*command, "--verify", "reread"])[0] == 0
    expect_copy(tmp_path / "out", source)


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file; size and times stay."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 8
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_two_stagings_into_one_place(source: Path, tmp_path: Path) -> None:
    first = midway(source, tmp_path / "out")
    first.send_signal(signal.SIGSTOP)  # or it would be done first where the machine is busy
    code, _, error = run([*PLAIN, source, tmp_path / "out"])
    first.send_signal(signal.SIGCONT)
    assert code == 2
    assert len(said(error)) == 1
    assert f"{tmp_path}/out: another staging holds it (pid {first.pid} on node " in said(error)[0]
    assert ended(first)[0] == 0
    expect_copy(tmp_path / "out", source)


def test_destinations_that_are_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("all my work")
    (tmp_path / "file").write_text("a file")
    before = contents(tmp_path)
    for destination, words in {
        tmp_path / "home": "is not empty and was not made by staging",
        tmp_path / "file": "is not a folder",
        source: "is the source itself",
        source / "below": "lies within the source",
        tmp_path: f"has the source {source} within it",
        tmp_path / "file" / "below": "Not a directory",
    }.items():
        code, _, error = run([*PLAIN, source, destination])
        assert code == 2
        assert len(said(error)) == 1
        assert said(error)[0].startswith("staging: error: ")
        assert words in said(error)[0]
    assert contents(tmp_path) == before


def test_only_own_leftovers_are_removed(source: Path, tmp_path: Path) -> None:
    process = midway(source, tmp_path / "out")
    process.kill()
    ended(process)
    out = tmp_path / "out"
    (out / "train" / ".00001.bin.0123456789abcd.part").write_bytes(b"half")
    (out / "notes.part").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".x.0123456789abcd.part").write_bytes(b"half")
    (out / "link").symlink_to(tmp_path / "elsewhere")
    assert run([*PLAIN, source, out])[0] == 0
    assert unfinished(out / "train") + unfinished(out / "validation") == []
    assert (out / "notes.part").read_text() == "mine"
    assert unfinished(tmp_path / "elsewhere") != []
