"""What is interrupted: stagings from nothing and from parts, with transforms, re-shuffles, and ``--clean``."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from staging.options import StageOptions
from staging.stage import stage
from tests.staging.processes import ENVIRON, PLAIN, PROGRAMS, contents, memory_folder
from tests.staging.spoiled import flip
from tests.staging.thread_world import run_ranks
from tests.staging.transforming import cosmoflow

STRANGER = "stranger.txt"
FOREIGN = b"somebody's only copy"
TIME_NS = 1_600_000_000_000_000_000
TWO_NODES = [sys.executable, str(PROGRAMS / "two_nodes.py")]
PIECE = 5000


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
    transform: str = ""
    lands_again: bool = False
    """Whether files that the manifest names are written once more."""
    follows: bool = False
    """Whether the command mends what is bad and follows a source that lost files."""

    @property
    def nodes(self) -> list[str]:
        """Names of the destinations below ``root``."""
        return ["node0", "node1"] if self.what == "reshuffle" else ["node0"]

    def prepare(self, place: Path) -> None:
        """Make the source, what comes before the command, and what is wanted."""
        for folder in ("source", "root", "wanted"):
            (place / folder).mkdir(parents=True)
        self.fill(place / "source")
        self.begin(self, place)
        self.stage(place, "wanted")

    def command(self, place: Path, root: str = "root") -> list[object]:
        """What is interrupted."""
        if self.what == "clean":
            return self.clean_command(place, root, "node0")
        return self.reshuffle_command(place, root) if self.what == "reshuffle" else self.stage_command(place, root)

    def stage_command(self, place: Path, root: str = "root") -> list[object]:
        """What a user runs to go on."""
        if len(self.nodes) > 1:
            return [*TWO_NODES, "stage", place / "source", f"{place / root}/{{node}}", 1]
        options: list[object] = ["--threads", 1, "--piece-bytes", PIECE]
        options += ["--repair", "--update", "--drop-vanished"] if self.follows else []
        options += ["--transform", self.transform] if self.transform else []
        return [*PLAIN, place / "source", place / root / "node0", *options]

    def reshuffle_command(self, place: Path, root: str = "root") -> list[object]:
        """Other homes, between two epochs of a training."""
        return [*TWO_NODES, "reshuffle", place / "source", f"{place / root}/{{node}}", 1]

    def clean_command(self, place: Path, root: str, node: str) -> list[object]:
        """What a user runs to be rid of it."""
        return [*PLAIN, "--clean", place / root / node]

    def stage(self, place: Path, root: str = "root", shuffle: int = 1) -> None:
        """The same as ``stage_command``, in this process."""
        is_shard = len(self.nodes) > 1
        options = StageOptions(
            place / "source", f"{place / root}/{{node}}", "shard" if is_shard else "replicate",
            transform=self.transform, threads=1, piece_bytes=8 << 20 if is_shard else PIECE,
            shuffle=shuffle if is_shard else 0, repair=self.follows, update=self.follows, drop_vanished=self.follows,
        )  # fmt: skip
        run_ranks([1] * len(self.nodes), lambda world: stage(options, world, quiet=True))

    def wanted(self, place: Path) -> dict[str, bytes]:
        """What all destinations hold in the end."""
        return contents(place / "wanted")


@contextmanager
def place_for(scenario: Scenario) -> Iterator[Path]:
    """A prepared place for a scenario, in memory where it can be."""
    with tempfile.TemporaryDirectory() as otherwise, memory_folder(Path(otherwise)) as folder:
        scenario.prepare(folder / "place")
        yield folder / "place"


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


def half_lost(scenario: Scenario, place: Path) -> None:
    """After a staging, one of the arrays of a sample is gone."""
    scenario.stage(place)
    (place / "root" / "node0" / "1_data.npy").unlink()


def spoiled_and_vanished(scenario: Scenario, place: Path) -> None:
    """After a staging, a bit of a file flipped, and the source lost two files."""
    scenario.stage(place)
    flip(place / "root" / "node0" / "train" / "c.bin")
    (place / "source" / "a.bin").unlink()
    shutil.rmtree(place / "source" / "validation")


def staged_beside_a_stranger(scenario: Scenario, place: Path) -> None:
    """All has been staged, and somebody put a file beside it."""
    staged(scenario, place)
    for node in scenario.nodes:
        (place / "root" / node / STRANGER).write_bytes(FOREIGN)


def killed_midway(scenario: Scenario, place: Path) -> None:
    """A staging was killed as it gave a file its name."""
    kill = ["strace", "-f", "-o", os.devnull, "-e", "inject=renameat:signal=SIGKILL:when=3"]
    command = [*kill, *scenario.stage_command(place)]
    subprocess.run([str(word) for word in command], env=ENVIRON, capture_output=True, check=False)


SCENARIOS = [
    Scenario("new", fill_plain),
    Scenario("resumed", fill_plain, half_staged),
    Scenario("killed before", fill_plain, killed_midway),
    Scenario("changed", fill_plain, changed, lands_again=True),
    Scenario("untar", fill_archives, transform="untar"),
    Scenario("arrays", fill_records, transform="tfrecord-to-npy"),
    Scenario("an array lost", fill_records, half_lost, transform="tfrecord-to-npy", lands_again=True),
    Scenario("repaired, updated", fill_plain, spoiled_and_vanished, lands_again=True, follows=True),
    Scenario("reshuffle", fill_shards, staged, "reshuffle"),
    Scenario("clean", fill_plain, staged_beside_a_stranger, "clean"),
]
