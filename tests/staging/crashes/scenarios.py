"""What is interrupted: stagings from nothing and from parts, with transforms, re-shuffles, and ``--clean``."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from staging.bookkeeping import ARRIVING, BOOKKEEPING
from staging.ledger.clean import clean
from staging.options import StageOptions
from staging.reshuffle import reshuffle
from staging.stage import stage
from tests.staging.processes import PLAIN, PROGRAMS, contents, run
from tests.staging.spoiled import flip
from tests.staging.thread_world import ThreadWorld, run_ranks

STRANGER = "stranger.txt"
FOREIGN = b"somebody's only copy"
TIME_NS = 1_600_000_000_000_000_000
PIECE = 5000
CUT = 3000
"""From so many bytes on the ranks of a node share a file."""


@dataclass(frozen=True)
class Scenario:
    """One command, which is killed or whose node crashes, and the place where that happens.

    ``place`` is a folder of its own with ``source``, ``root``, below which the destinations are, and ``wanted``, which
    is as ``root`` is in the end.
    """

    name: str
    fill: Callable[[Path], None]
    """Fills the empty folder ``source``."""
    begin: Callable[[Scenario, Path], None] = lambda scenario, place: None
    """Does what comes before the command in ``place``."""
    what: str = "stage"
    """``stage``, ``reshuffle`` or ``clean``."""
    ranks: tuple[int, ...] = (1,)
    """Of each node; several ranks are threads of one process."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of ``StageOptions``, where they differ."""
    lands_again: bool = False
    """Whether files that the manifest names are written once more."""

    @property
    def nodes(self) -> list[str]:
        """Names of the destinations below ``root``."""
        return [f"node{number}" for number in range(len(self.ranks))]

    def prepare(self, place: Path) -> None:
        """Make the source, what comes before the command, and what is wanted."""
        for folder in ("source", "root", "wanted"):
            (place / folder).mkdir(parents=True)
        self.fill(place / "source")
        self.begin(self, place)
        self.stage(place, "wanted")

    def command(self, place: Path, root: str = "root") -> list[object]:
        """What is interrupted, as a process; of one rank in one thread."""
        if self.what == "clean":
            return self.clean_command(place, root, "node0")
        if self.what == "reshuffle" or self.ranks != (1,):
            return self._threads(self.what, place, root)
        return [*PLAIN[:1], PROGRAMS / "one_thread.py", *self.stage_command(place, root)[len(PLAIN) :]]

    def stage_command(self, place: Path, root: str = "root") -> list[object]:
        """What a user runs to go on."""
        if self.ranks != (1,):
            return self._threads("stage", place, root)
        words: list[object] = ["--threads", 1, "--piece-bytes", PIECE]
        for name, value in self.settings.items():
            words += [f"--{name.replace('_', '-')}", *(() if value is True else (value,))]
        return [*PLAIN, place / "source", place / root / "node0", *words]

    def clean_command(self, place: Path, root: str, node: str) -> list[object]:
        """What a user runs to be rid of it."""
        return [*PLAIN, "--clean", place / root / node]

    def perform(self, place: Path, root: str = "root") -> None:
        """The same as ``command``, in this process."""
        if self.what == "clean":
            clean(place / root / "node0")
        else:
            getattr(self, self.what)(place, root)

    def stage(self, place: Path, root: str = "root", **settings: Any) -> None:
        """The same as ``stage_command``, in this process; ``settings`` count more than those of the scenario."""
        options = self._options(place, root, **settings)
        with small_cuts():
            run_ranks(list(self.ranks), lambda world: stage(options, world, quiet=True))

    def reshuffle(self, place: Path, root: str = "root") -> None:
        """Other homes, between two epochs of a training; in this process."""
        options = self._options(place, root, shuffle=0)

        def work(world: ThreadWorld) -> None:
            reshuffle(options, self.settings["shuffle"], world)

        run_ranks(list(self.ranks), work)

    def wanted(self, place: Path) -> dict[str, bytes]:
        """What all destinations hold in the end."""
        return contents(place / "wanted")

    def _options(self, place: Path, root: str, **settings: Any) -> StageOptions:
        given = {"threads": 1, "piece_bytes": PIECE, **self.settings, **settings}
        return StageOptions(place / "source", f"{place / root}/{{node}}", **given)

    def _threads(self, what: str, place: Path, root: str) -> list[object]:
        return [sys.executable, PROGRAMS / "rank_threads.py", self.name, what, place, root]


@contextmanager
def small_cuts() -> Iterator[None]:
    """While entered, ranks share files of few bytes."""
    with (
        patch("staging.planning.slices.CUT_BYTES", CUT),
        patch("staging.prepare.CUT_BYTES", CUT),
        patch("staging.planning.slices.ALIGN_BYTES", 16),
    ):
        yield


def write(path: Path, size: int, seed: int, time_ns: int = TIME_NS) -> None:
    """A file of random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.random.default_rng(seed).bytes(size))
    os.utime(path, ns=(time_ns, time_ns))


def fill_plain(source: Path) -> None:
    """Five files: empty, small, of several pieces, in folders of folders."""
    for number, (name, size) in enumerate(
        [("a.bin", 700), ("empty.bin", 0), ("train/b.bin", 300), ("train/c.bin", 12_000), ("validation/x/d.bin", 4000)]
    ):
        write(source / name, size, number)


def fill_archives(source: Path) -> None:
    """Two archives of three members each, and a file."""
    for number, name in enumerate(("train/one.tar", "train/two.tar")):
        (source / "train").mkdir(exist_ok=True)
        with tarfile.open(source / name, "w") as archive:
            for member in range(3):
                data = np.random.default_rng([number, member]).bytes(2500)
                header = tarfile.TarInfo(f"{number}/{member}.bin")
                header.size = len(data)
                archive.addfile(header, io.BytesIO(data))
        os.utime(source / name, ns=(TIME_NS, TIME_NS))
    write(source / "stats.bin", 90, 9)


def fill_records(source: Path) -> None:
    """Three samples in TFRecords, of which two arrays are made each."""
    from tests.staging.transforming import cosmoflow

    for number in range(3):
        counts = np.random.default_rng(number).poisson(0.4, (4, 4, 4, 4)).astype(np.int16)
        (source / f"{number}.tfrecord").write_bytes(cosmoflow(source, counts))
        os.utime(source / f"{number}.tfrecord", ns=(TIME_NS, TIME_NS))


def fill_shards(source: Path) -> None:
    """Files for two nodes."""
    for number in range(12):
        write(source / f"{number}.bin", 400 + 100 * number, number)


def staged(scenario: Scenario, place: Path) -> None:
    """All has been staged."""
    scenario.stage(place, shuffle=0)


def half_staged(scenario: Scenario, place: Path) -> None:
    """The source had three files when it was staged, and has two more now."""
    later = [place / "source" / name for name in ("train/c.bin", "validation/x/d.bin")]
    (place / "aside").mkdir()
    for number, path in enumerate(later):
        path.rename(place / "aside" / str(number))
    scenario.stage(place)
    for number, path in enumerate(later):
        (place / "aside" / str(number)).rename(path)
    shutil.rmtree(place / "aside")


def changed(scenario: Scenario, place: Path) -> None:
    """After a staging, a file of the source was written again; one at the destination is gone, another was touched."""
    scenario.stage(place)
    write(place / "source" / "train" / "b.bin", 300, 77, TIME_NS + 10**9)
    (place / "root" / "node0" / "a.bin").unlink()
    os.utime(place / "root" / "node0" / "train" / "c.bin")


def changed_and_vanished(scenario: Scenario, place: Path) -> None:
    """After a staging, a file of the source was written again, and the only ones of two folders were removed."""
    scenario.stage(place)
    write(place / "source" / "train" / "b.bin", 300, 77, TIME_NS + 10**9)
    (place / "source" / "a.bin").unlink()
    shutil.rmtree(place / "source" / "validation")


def damaged(scenario: Scenario, place: Path) -> None:
    """After a staging, a bit of a file flipped at the destination, which keeps its size and time."""
    scenario.stage(place)
    flip(place / "root" / "node0" / "train" / "c.bin")


def half_lost(scenario: Scenario, place: Path) -> None:
    """After a staging, one of the arrays of a sample is gone."""
    scenario.stage(place)
    (place / "root" / "node0" / "1_data.npy").unlink()


def staged_beside_a_stranger(scenario: Scenario, place: Path) -> None:
    """All has been staged, somebody put a file beside it, and a re-shuffle was killed."""
    staged(scenario, place)
    for node in scenario.nodes:
        (place / "root" / node / STRANGER).write_bytes(FOREIGN)
        (place / "root" / node / BOOKKEEPING / ARRIVING).mkdir()
        (place / "root" / node / BOOKKEEPING / ARRIVING / "9.bin").write_bytes(b"on its way")


def killed_midway(scenario: Scenario, place: Path) -> None:
    """A staging was killed as it gave a file its name."""
    code, *_ = run([*PLAIN[:1], PROGRAMS / "killed_at_rename.py", *scenario.stage_command(place)[len(PLAIN) :]])
    assert code < 0, code


SHARDS = {"placement": "shard", "shuffle": 1}
SCENARIOS = [
    Scenario("new", fill_plain),
    Scenario("resumed", fill_plain, half_staged),
    Scenario("killed before", fill_plain, killed_midway),
    Scenario("changed", fill_plain, changed, lands_again=True),
    Scenario("update", fill_plain, changed_and_vanished, settings={"update": True, "drop_vanished": True},
             lands_again=True),
    Scenario("repair", fill_plain, damaged, settings={"repair": True}, lands_again=True),
    Scenario("untar", fill_archives, settings={"transform": "untar"}),
    Scenario("arrays", fill_records, settings={"transform": "tfrecord-to-npy"}),
    Scenario("an array lost", fill_records, half_lost, settings={"transform": "tfrecord-to-npy"}, lands_again=True),
    Scenario("shared files", fill_plain, ranks=(2,)),
    Scenario("two nodes", fill_plain, ranks=(1, 1), settings={"path": "exchange"}),
    Scenario("shards", fill_shards, ranks=(1, 1), settings=SHARDS),
    Scenario("reshuffle", fill_shards, staged, "reshuffle", (1, 1), SHARDS),
    Scenario("clean", fill_plain, staged_beside_a_stranger, "clean"),
]  # fmt: skip
