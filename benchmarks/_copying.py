"""Sources for the staging benchmark, ways to copy them, and several ways in turn in one run."""

from __future__ import annotations

import filecmp
import gzip
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ranks import Ranks

from staging.formats import tfrecord
from staging.formats.example import encode_example
from staging.ledger.durable_batch import sync_filesystem

Way = Callable[[Path], float]
"""Fills a new folder and returns the seconds that count."""

BLOCK = 1 << 20


def make_files(folder: Path, names: list[str], size: int) -> Path:
    """Make files of random bytes, ``size`` bytes each; return the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, BLOCK):
                file.write(os.urandom(min(BLOCK, size - start)))
    return folder


def make_samples(folder: Path, number: int) -> Path:
    """Make ``number`` gzip TFRecords (zlib, level 6) of one simulated universe of 128^3 cells at four redshifts."""
    from apps.cosmoflow.config import Config
    from apps.cosmoflow.simulate import simulate_universe

    config = Config()
    universe = simulate_universe(replace(config, simulate=replace(config.simulate, universe_size=128)), "train", 0)
    folder.mkdir()
    plain = folder.with_suffix(".plain")
    tfrecord.write_records(plain, [encode_example({"x": universe.counts.tobytes(), "y": universe.label})], "none")
    packed = gzip.compress(plain.read_bytes(), 6, mtime=0)
    plain.unlink()
    for index in range(number):
        (folder / f"univ_ics_2019-03_a{index:08d}.tfrecord").write_bytes(packed)
    return folder


def by_command(*words: str, flush: bool = False) -> Callable[[Path], Way]:
    """Make a way that runs a command on source and destination, and then flushes the destination if ``flush``."""

    def of(source: Path) -> Way:
        def run(destination: Path) -> float:
            start = time.perf_counter()
            # with a trailing slash rsync copies the contents of a folder
            names = [f"{source}/" if words[0] == "rsync" else str(source), str(destination)]
            subprocess.run([*words, *names], check=True, capture_output=True)
            if flush:
                sync_filesystem(destination)
            return time.perf_counter() - start

        return run

    return of


def by_dd(source: Path) -> Way:
    """``dd`` of each file, bypassing the page cache, with a flush."""

    def run(destination: Path) -> float:
        start = time.perf_counter()
        destination.mkdir()
        for file in sorted(source.iterdir()):
            copy = destination / file.name
            words = ("dd", f"if={file}", f"of={copy}", "bs=8M", "oflag=direct", "conv=fsync", "status=none")
            subprocess.run(words, check=True)
        return time.perf_counter() - start

    return run


def by_ranks(
    ranks: Ranks, task: str, source: Path, last: dict[str, Any], figure: str = "seconds", **options: Any
) -> Way:
    """A way that running processes carry out; ``last`` keeps their report, in which ``figure`` is what counts."""

    def run(destination: Path) -> float:
        last.update(ranks(task, source, destination, **options))
        return float(last[figure])

    return run


def in_turns(
    ways: dict[str, Way], room: Path, rounds: int, check: Callable[[Path], None], *, keep: bool = False
) -> dict[str, list[float]]:
    """Return the seconds of each way in each round, after a first round in which ``check`` inspects the copies.

    ``keep``: copies are removed only after the last round, since ext4, when it looks for a free inode, skips each that
    was deleted in the last minutes, and a new file then costs three times as much.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-1, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            destination = room / f"copy_{number}_{names.index(name)}"
            took = ways[name](destination)
            if number < 0:
                check(destination)
            else:
                taken[name].append(took)
            if not keep:
                shutil.rmtree(destination)
            sync_filesystem(room)
    for copy in room.glob("copy_*"):
        shutil.rmtree(copy)
    return taken


def same_as(source: Path) -> Callable[[Path], None]:
    """Return a check that a copy has all files of ``source`` with equal content."""

    def check(copy: Path) -> None:
        names = [str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()]
        _, wrong, missing = filecmp.cmpfiles(source, copy, names, shallow=False)
        assert not wrong + missing, f"{copy} differs: {(wrong + missing)[:3]}"

    return check
