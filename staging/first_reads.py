"""Compares what a process first reads of each staged file with what landed.

The CRC32C is computed over the bytes that readers have just read, while they are in the processor's cache. Only the
rest of the first and of the last block is read in addition, so part of a file costs no more than that part.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from staging.checksums import BLOCK_BYTES, crc32c
from staging.errors import DataError
from staging.formats.reading import Feed, observed
from staging.formats.regular import opened
from staging.ledger.checksum_table import ChecksumTable, FileChecksums
from staging.ledger.journal import Journal
from staging.ledger.jsonl import read_header
from staging.ledger.manifest import load_records, manifest_path, staged_destination


class FirstReads:
    """Checks this process's first reads of the files below ``folder``, if ``folder`` was staged.

    Otherwise it does nothing. The manifest is read together with the first file. Sent to another process, the object
    carries the manifest as a compact table, and that process checks its own first reads.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._destination = staged_destination(folder)
        self._table: ChecksumTable | None = None
        self._prefixes: dict[str, str | None] = {}
        self._seen = np.zeros(0, np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        self._load()
        return self.__dict__ | {"_seen": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._seen = np.zeros(0 if self._table is None else self._table.all_blocks, np.bool_)

    @property
    def applies(self) -> bool:
        """Whether the folder was staged."""
        return self._destination is not None

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Within this context, check what readers of ``staging.formats`` read in this thread.

        They raise ``DataError`` for the first file that is not what landed, also if damaged content makes a reader fail
        first.
        """
        if not self.applies:
            yield
            return
        try:
            with observed(self):
                yield
        except DataError as error:
            self.check_whole(Path(str(error.path)))
            raise

    def reading(self, file: int, path: Path, offset: int, size: int) -> Feed | None:
        """A function that takes what is read of the open ``file`` and checks its blocks; ``None`` if none needs it."""
        landed = self._find(path)
        if landed is None:
            return None
        first, stop = 0, landed.count
        if landed.in_parts:
            first, stop = offset // BLOCK_BYTES, min(-(-(offset + size) // BLOCK_BYTES), landed.count)
        seen = self._seen[landed.first + first : landed.first + stop]
        if seen.all():
            return None
        if (actual_size := os.fstat(file).st_size) != landed.size:
            raise self._differs(path, f"has {actual_size} bytes where {landed.size} landed")
        begin, end = first * BLOCK_BYTES, landed.size if stop == landed.count else stop * BLOCK_BYTES
        crc, left = checksum(file, begin, offset, landed.before(first)), size

        def feed(data: memoryview) -> None:
            nonlocal crc, left
            crc, left = crc32c(data, crc), left - len(data)
            if left > 0:
                return
            if checksum(file, offset + size, end, crc) != landed.up_to(stop - 1):
                whole = checksum(file, 0, landed.size, 0)
                raise self._differs(path, f"has CRC32C {whole:08x} where {landed.crc:08x} landed")
            seen[:] = True

        return feed

    def reading_file(self, path: Path) -> None:
        """Check a file as a whole, if any of it is new. Raises ``DataError``."""
        with opened(path) as file:
            feed = self.reading(file.fileno(), path, 0, os.fstat(file.fileno()).st_size)
            if feed is not None:
                while len(data := memoryview(file.read(BLOCK_BYTES))):
                    feed(data)

    def check_whole(self, path: Path) -> None:
        """Raise ``DataError`` for a file that is not what landed, even if all of it was checked before."""
        landed = self._find(path)
        if landed is not None:
            self._seen[landed.first : landed.first + landed.count] = False
            self.reading_file(path)

    def _load(self) -> ChecksumTable | None:
        if self._table is None and self._destination is not None:
            self._table = ChecksumTable(load_records(self._destination))
            self._seen = np.zeros(self._table.all_blocks, np.bool_)
        return self._table

    def _find(self, path: Path) -> FileChecksums | None:
        """What the manifest records of ``path``; ``None`` if it has nothing.

        Raises ``DataError`` if a link below the destination leads out of it.
        """
        folder, _, base = str(path).rpartition("/")
        if folder not in self._prefixes:
            real, destination = Path(folder or "/").resolve(), self._destination
            prefix = None
            if destination is not None and real.is_relative_to(destination):
                relative = real.relative_to(destination).as_posix()
                prefix = "" if relative == "." else f"{relative}/"
            elif destination is not None:
                staged_destination(Path(folder or "/"))
            self._prefixes[folder] = prefix
        prefix, table = self._prefixes[folder], self._load()
        return None if prefix is None or table is None else table.find(prefix + base)

    def _differs(self, path: Path, problem: str) -> DataError:
        assert self._destination is not None
        again = words_again(self._destination)
        words = shlex.join(["hpcbench", "stage", *again, "--repair"])
        where = ", started on all nodes that share it" if "shard" in again else ""
        change = f"bring it again with `{words}`{where}, or train with --staging.repair true"
        return DataError(path, f"{problem}, so it was damaged since", change)


def words_again(destination: Path) -> list[str]:
    """The arguments of a command line that stages to ``destination`` what was last staged there, from the same source.

    Manifest values of a type that staging does not write are left out.
    """
    recorded = read_header(manifest_path(destination)).get("identity")
    identity = recorded if isinstance(recorded, dict) else {}
    source, seed, transform = identity.get("source"), identity.get("seed"), identity.get("transform")
    words = [source if isinstance(source, str) else "SOURCE", str(destination)]
    if identity.get("placement") == "shard":
        words += ["--placement", "shard", "--seed", str(seed) if isinstance(seed, int) else "0"]
        words += ["--contiguous"] if identity.get("contiguous") is True else []
    if transform and isinstance(transform, str):
        words += ["--transform", transform]
    for key in ("plain", "replicate_also"):
        patterns = identity.get(key)
        given = [pattern for pattern in patterns if isinstance(pattern, str)] if isinstance(patterns, list) else []
        words += [word for pattern in given for word in (f"--{key.replace('_', '-')}", pattern)]
    return words + last_selection(destination)


def last_selection(destination: Path) -> list[str]:
    """The arguments that chose the files of the last staging; empty if the journal cannot be read."""
    try:
        return list(Journal(destination).last_selection())
    except DataError:
        return []


def checksum(file: int, start: int, stop: int, before: int) -> int:
    """CRC32C of the open ``file`` up to byte ``stop`` or its end; ``before`` is that of the bytes up to ``start``."""
    crc = before
    buffer = memoryview(bytearray(min(BLOCK_BYTES, max(stop - start, 0))))
    while start < stop:
        count = os.preadv(file, [buffer[: stop - start]], start)
        if not count:
            break
        crc = crc32c(buffer[:count], crc)
        start += count
    return crc
