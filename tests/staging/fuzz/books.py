"""Books of a destination: manifest, journal, lock and the result of a probe. They hold JSON and no checksums.

What is repaired is the form: a line that is no JSON any more becomes one whose values are wrong in kind or size.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from staging.bookkeeping import BOOKKEEPING
from staging.counters import Counters
from staging.files import list_samples
from staging.first_reads import FirstReads
from staging.ledger import destination_lock
from staging.ledger.clean import clean
from staging.ledger.journal import KILLED, Journal
from staging.ledger.manifest import Manifest, has_manifest, load_records, staged_names
from staging.ledger.records import BLOCKS, SOURCE_SIZE
from staging.ledger.verify import reread
from staging.options import StageOptions
from staging.planning.plan import Plan, make_plan
from staging.present import drop, look, vanished
from staging.probing.bottleneck import probed_shares
from staging.probing.ceilings import Ceilings, Rate, ceilings_for, read_ceilings
from staging.ranks.world import Alone
from staging.source.listing import Listing, Names
from staging.verification import verify
from tests.staging.begun import begin
from tests.staging.fuzz import parts
from tests.staging.fuzz.allowed import expect, expect_line, refused
from tests.staging.fuzz.family import Family
from tests.staging.fuzz.mutations import BORDERS, DEEPEST

NESTED = json.loads("[" * 800 + "]" * 800)
VALUES: tuple[Any, ...] = (
    None, True, False, "", "a", "\ud800", "\0", "a\nb", "\x1b[2J", "a/../../b", "/etc", "b" * 300, "b/" * 3000 + "b",
    [], {}, [1], ["a"], {"a": 1}, [[[]]], NESTED, 0, -1, 0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"),
    10**300, *BORDERS,
)  # fmt: skip
"""What may stand in the place of any value."""
SYNTAX = (
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"\\", b"null", b"true", b"NaN", b"-Infinity", b'"\\ud800"',
    b'"\\u0000"', b"[[[[", b'{"a":', b"[" * DEEPEST, b'{"a":' * 20_000, b"\xff\xfe", b"\xef\xbb\xbf", b"1e999",
    b'"\\u001b[2J"', b"[" * 960 + b"]" * 960,
)  # fmt: skip
NODE, JOB = "node0", "job 1"
IDENTITY = {"source": "/source", "placement": "replicate", "transform": ""}
SHARDED = IDENTITY | {
    "placement": "shard", "node": NODE, "nodes": 4, "seed": 1, "transform": "gunzip", "plain": ["auto"],
    "replicate_also": ["*.h5"],
}  # fmt: skip


class JSONFamily(Family):
    """Lines of JSON; ``keys`` are those that mean something."""

    keys: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.tokens = [*SYNTAX, *(f'"{key}": '.encode() for key in self.keys)]
        super().__init__()

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """Each line is JSON again: where it is not, one of a sound file, with some values in the place of others."""
        return b"\n".join(self._repaired(line, dice) for line in data.split(b"\n")[:2000])

    def _repaired(self, line: bytes, dice: random.Random) -> bytes:
        try:
            return json.dumps(json.loads(line)).encode()
        except (ValueError, RecursionError):
            sound = [one for seed in self.seeds for one in seed.split(b"\n") if one]
            item = json.loads(dice.choice(sound))
            for _ in range(dice.choice((1, 1, 2, 3))):
                item = forged(item, dice)
            return json.dumps(item).encode()


def forged(item: Any, dice: random.Random) -> Any:
    """``item`` with another value in one place, without one, or with one more."""
    if isinstance(item, dict) and item:
        key = dice.choice(list(item))
        chance = dice.random()
        if chance < 0.1:
            return {name: value for name, value in item.items() if name != key}
        if chance < 0.15:
            return item | {str(dice.choice(VALUES)): dice.choice(VALUES)}
        deeper = isinstance(item[key], dict | list) and dice.random() < 0.7
        return item | {key: forged(item[key], dice) if deeper else dice.choice(VALUES)}
    if isinstance(item, list) and item and dice.random() < 0.8:
        at = dice.randrange(len(item))
        deeper = isinstance(item[at], dict | list) and dice.random() < 0.8
        return [*item[:at], forged(item[at], dice) if deeper else dice.choice(VALUES), *item[at + 1 :]]
    return dice.choice(VALUES)


def lines(items: list[dict[str, Any]]) -> bytes:
    """As the books have them."""
    return b"".join(b"\n" + json.dumps(item).encode() for item in items).lstrip(b"\n")


def book(folder: Path, name: str, data: bytes) -> Path:
    """A destination with this book, within a folder that holds a file that is not the destination's."""
    destination = folder / "to"
    (destination / BOOKKEEPING).mkdir(parents=True)
    (destination / BOOKKEEPING / name).write_bytes(data)
    (folder / "outside").write_bytes(b"stays")
    return destination


class ManifestFamily(JSONFamily):
    """``manifest.jsonl``: two small files and one of several blocks lie there as it says."""

    keys = (
        "schema", "identity", "name", "size", "crc32c", "source", "mtime_ns", "of", "kept_ns", "removed", BLOCKS,
        SOURCE_SIZE,
    )  # fmt: skip
    files: ClassVar = {"a": b"hi\n", "train/b.bin": b"there\n", parts.NAME: parts.DATA}

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        header = {"schema": 1, "what": "hpcbench staging manifest", "identity": IDENTITY}
        here = [{"name": name, "size": len(data), "crc32c": 0, "source": name, "mtime_ns": 10**9}
                for name, data in self.files.items() if name != parts.NAME]  # fmt: skip
        here.append(parts.RECORD)
        sharded = header | {"identity": SHARDED}
        many = [{"name": f"train/{n:04d}.npy", "size": n, "crc32c": n, "source": f"{n // 2}.tfrecord", "mtime_ns": n,
                 "of": 2, "kept_ns": n + 1, SOURCE_SIZE: 2 * n} for n in range(300)]  # fmt: skip
        removed = [{"name": "a", "removed": True}]
        return [lines([header, *here]), lines([header]), lines([sharded, *here, *removed]), lines([header, *many])]

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """All that a staging, a check, a training and `--clean` do with it; what lies outside stays."""
        destination = book(folder, "manifest.jsonl", data)
        path = destination / BOOKKEEPING / "manifest.jsonl"
        for name, content in self.files.items():
            (destination / name).parent.mkdir(exist_ok=True)
            (destination / name).write_bytes(content)
            os.utime(destination / name, ns=(10**9, 10**9))
        steps: list[Callable[[], object]] = [
            lambda: self._records(destination),
            lambda: Manifest.open(destination, IDENTITY),
            lambda: staged_names(destination),
            lambda: list_samples(destination / "train", ".bin"),
            *(partial(first_read, destination, name) for name in self.files),
            partial(parts.read_part, destination, dice),
            lambda: print_safe(verify(destination, 1, Alone(NODE), quiet=True).table()),
            lambda: reread(destination, 1),
            lambda: self._stage(destination, folder, update=False),
            lambda: self._stage(destination, folder, update=True),
            lambda: print_safe("\n".join(clean(destination).left)),
        ]
        for step in steps:
            with refused():
                step()
            if not path.exists() and step is not steps[-1]:
                expect(not data, "a reader removed the manifest")
        expect((folder / "outside").read_bytes() == b"stays", "a file outside was touched")

    def _records(self, destination: Path) -> None:
        if has_manifest(destination):
            records = load_records(destination)
            expect(len(list(records)) == len(records), "records of no name")
            for landed in records:
                expect(landed.name in records and records.size(landed.name) == landed.size, "two sizes of a record")

    def _stage(self, destination: Path, folder: Path, *, update: bool) -> None:
        plan, world = small_plan(), Alone(NODE)
        look(plan, world, destination, StageOptions(folder / "from", str(destination), update=update))
        if update:
            (folder / "from").mkdir(exist_ok=True)
            drop(destination, vanished(plan, 0, destination, folder / "from"))


def first_read(destination: Path, name: str) -> None:
    """What a training does before it uses a file."""
    FirstReads(destination).reading_file(destination / name)


def print_safe(text: str) -> None:
    """What is printed goes to streams that refuse what is no text, such as a lone surrogate."""
    text.encode()
    expect(all(line.isprintable() for line in text.split("\n")), "a line that is not printable is printed")


def small_plan() -> Plan:
    """The plan for a source of two files on one node."""
    zeros = np.zeros(2, np.int64)
    listing = Listing(Names.of(["a", "train/b.bin"]), np.array([3, 6]), zeros + 10**9, zeros)
    return make_plan(listing, 1, [1], "replicate", "direct", 0)


class JournalFamily(JSONFamily):
    """``journal.jsonl``, beside a sound manifest of a file that is damaged."""

    keys = (
        "schema", "event", "id", "time", "node", "rank", "pid", "born", "command", "outcome", "start", "end",
        "selection", "by_names",
    )  # fmt: skip

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        header = {"schema": 1, "what": "hpcbench staging journal"}

        def begun(number: int, rank: int) -> dict[str, Any]:
            return {"event": "start", "id": f"{number:08x}", "time": 1.7e9, "node": NODE, "rank": rank, "pid": 1 + rank,
                    "born": 77, "command": "python -m staging", "selection": ["--include", "train/*", "--hidden"]
                    }  # fmt: skip

        def ended(number: int, rank: int) -> dict[str, Any]:
            return {"event": "end", "id": f"{number:08x}", "rank": rank, "pid": 1 + rank, "time": 1.7e9,
                    "outcome": "done", "reason": ""}  # fmt: skip

        one = [header, begun(1, 0), ended(1, 0)]
        many = [make(number, rank) for number in range(20) for make in (begun, ended) for rank in range(4)]
        return [lines(one), lines([header, begun(1, 0)]), lines([header, *many]), lines([header, *many[:-3]])]

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """What the next staging asks it, and says to it."""
        destination = book(folder, "journal.jsonl", data)
        damaged = {"name": "a", "size": 3, "crc32c": 0, "source": "a", "mtime_ns": 10**9}
        manifest = lines([{"schema": 1, "identity": IDENTITY}, damaged])
        (destination / BOOKKEEPING / "manifest.jsonl").write_bytes(manifest)
        (destination / "a").write_bytes(b"hi\n")
        journal = Journal(destination)
        with refused():
            journal.is_done()
        with refused():
            expect(all(isinstance(word, str) for word in journal.last_selection()), "an argument that is no text")
        with refused():
            first_read(destination, "a")  # its message has the command that brings it again
            expect(False, "damage passes the first read")
        with refused():
            killed = journal.unfinished(NODE)[:50]
            for start in killed:
                expect_line(str(start))
                journal.end(start, KILLED)
            keys = {(start.id, start.rank, start.pid) for start in killed}
            left = {(start.id, start.rank, start.pid) for start in journal.unfinished(NODE)}
            expect(not keys & left, "what was killed is still unfinished")
        with refused():
            list_samples(destination, ".bin")
        with refused():
            verify(destination, 1, Alone(NODE), quiet=True).table()
        with refused():
            journal.end(begin(journal, "5", Alone(NODE).place, "test"))


class LockFamily(JSONFamily):
    """``lock``: who holds a destination."""

    keys = ("pid", "node", "job", "time")

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        holder = {"pid": 77, "node": NODE, "job": "job 2", "time": "2026-01-01 00:00:00 UTC"}
        return [lines([holder]), lines([holder | {"job": JOB, "node": "node1"}]), b""]

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """One object that is forged, since a sound file has no second line."""
        return self._repaired(data, dice) if data else data

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """A staging takes a lock that is free, one that is held, and one that another node has taken."""
        destination = book(folder, "lock", data)
        path = destination / BOOKKEEPING / "lock"
        destination_lock.WRITTEN_S = 0.0
        with ExitStack() as held:
            file = held.enter_context(path.open("rb"))
            fcntl.flock(file, fcntl.LOCK_EX)
            with refused():
                destination_lock.lock(destination, NODE, JOB)
        with refused(), destination_lock.lock(destination, NODE, JOB):
            pass
        path.write_bytes(data)
        with refused():
            clean(destination)


class ProbeFamily(JSONFamily):
    """``probe.json``."""

    keys = ("schema", "rates", "part", "threads", "block_bytes", "per_node", "note", "nodes", "ranks", "seconds")

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        rates = tuple(
            Rate(part, 4, 1 << 20, (1e9, 2e9), "cold")
            for part in ("read", "stat", "open", "write", "write_flushed", "create", "exchange", "crc32c", "gunzip")
        )
        found = Ceilings("/source", "/to", (NODE, "node1"), 8, 3.5, rates, [{"cores": 2}])
        more = Ceilings("/source", "/to", (NODE, "node1"), 8, 3.5, rates * 20)
        return [json.dumps(one.as_dict()).encode() for one in (found, more)]

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """One object that is forged."""
        return self._repaired(data, dice)

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """What a report makes of it."""
        destination = book(folder, "probe.json", data)
        with refused():
            read_ceilings(destination)
        with refused():
            found = ceilings_for(destination, Path("/source"), 2)
            if found is not None:
                print_safe(found.table())
                json.dumps(found.as_dict())
                busy = Busy()
                probed_shares([busy], found, dice.choice(("direct", "exchange")), "gunzip", "transfer")


class Busy:
    """A rank that did something of everything."""

    node, seconds, threads, way = NODE, 2.0, 4, "early"

    def __init__(self) -> None:
        self.phases_s = {"move": 1.0, "commit": 1.0}
        self.counters = Counters()
        for name in ("bytes_read", "files_read", "bytes_landed", "files_landed", "bytes_sent", "bytes_received"):
            setattr(self.counters, name, 1000)


def remove_all(folder: Path) -> None:
    """Empty a folder between cases."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
