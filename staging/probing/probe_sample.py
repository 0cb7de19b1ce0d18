"""Finds some of a source's files in about a second, for a probe to read and look at."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from staging.errors import DataError, InputError
from staging.formats.compression import DEFLATE, MAGIC
from staging.formats.regular import opened
from staging.open_source import rows_of
from staging.options import StageOptions
from staging.ranks.collective_errors import together
from staging.ranks.world import World
from staging.source.index import is_index
from staging.source.listing import INDEX_NAME, UNKNOWN, Listing, Names, Selection, refuse_time
from staging.source.sources import Source, TreeSource

NAMES = 8192
"""The most files whose names are kept, to be looked at."""
FILES = 2048
BYTES = 8 << 30
"""The most files and bytes to read, whichever comes first."""
SEARCH_S = 1.0
SEGMENT = 64 << 20
GZIP_FILES = 8
GZIP_BYTES = 32 << 20


@dataclass
class Sample:
    """Files of a source, the same on all ranks."""

    source: Source
    """Their contents, to be read as a staging reads them."""
    root: str = ""
    names: list[str] = field(default_factory=list)
    """Files below ``root`` to look at; empty for a source that is not a folder."""
    looked_at: bool = False
    """Whether these files were already looked at, because there were no others."""
    gzip: list[Path] = field(default_factory=list)
    """Files that are gzip."""

    @cached_property
    def segments(self) -> list[tuple[int, int, int]]:
        """Parts to read, from entries all over the listing and shuffled: entry, first byte, end."""
        sizes = self.source.listing.sizes
        entries = np.unique(np.linspace(0, len(sizes) - 1, min(NAMES, len(sizes))).astype(np.int64)).tolist()
        segments = [
            (entry, start, min(start + SEGMENT, int(sizes[entry])))
            for entry in entries
            for start in range(0, int(sizes[entry]), SEGMENT)
        ]
        # neighbours are alike: in order, one rank would get only small files and another only large ones
        return [segments[number] for number in np.random.default_rng(0).permutation(len(segments))]

    @property
    def largest(self) -> int:
        """Bytes of the largest file."""
        return int(self.source.listing.sizes.max(initial=0))


def take_sample(options: StageOptions, world: World, source: Source | None = None) -> Sample:
    """Some of the files that ``options`` stages, or the entries of ``source``; collective.

    Raises ``InputError`` on all ranks if there is nothing to read.
    """
    selection = Selection(options.include, options.exclude, options.first)
    root = options.source
    if source is not None:
        return Sample(source)
    if root.is_file():
        return Sample(together(world, lambda: rows_of(replace(options, cold=True), selection)))

    def find() -> tuple[list[str], bool, Listing, list[Path]] | None:
        if world.place.rank != 0:
            return None
        names = found_names(root, selection) if options.index is None else indexed_names(options.index, selection)
        listing, rest = listed(root, names)
        return rest or names, not rest, listing, gzip_files(root, listing)

    chosen = world.broadcast(together(world, find))
    assert chosen is not None
    names, looked_at, listing, gzip = chosen
    return Sample(TreeSource(root, listing, cold=True, retries=options.retries), str(root), names, looked_at, gzip)


def found_names(root: Path, selection: Selection) -> list[str]:
    """Names of files below ``root``, in no order, as many as are found in ``SEARCH_S``. Raises ``DataError``."""
    names: list[str] = []
    folders = [""]
    end = time.monotonic() + SEARCH_S
    limit = min(NAMES, selection.first or NAMES)
    while folders and len(names) < limit and (time.monotonic() < end or not names):
        folder = folders.pop()
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    name = f"{folder}{entry.name}"
                    if entry.name.startswith(".") or (name == INDEX_NAME and is_index(root / name)):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{name}/")
                    elif entry.is_file() and selection.matches([os.fsencode(name)])[0]:
                        names.append(name)
                    if len(names) >= limit:
                        break
        except OSError as error:
            raise DataError(root / folder, f"cannot be read ({error.strerror})", "check its permissions") from None
    if not names:
        raise no_file(root)
    return names


def no_file(root: Path) -> InputError:
    """The error for a source of which nothing can be read."""
    return InputError(f"{root} holds no file to probe with; check the folder, include and exclude")


def indexed_names(index: Path, selection: Selection) -> list[str]:
    """Names from a dataset index, evenly spread over it."""
    from staging.source.index import read_index

    listing = selection.of(read_index(index), index)
    chosen = np.unique(np.linspace(0, len(listing) - 1, min(NAMES, len(listing))).astype(np.int64))
    return list(listing.take(chosen).names)


def listed(root: Path, names: list[str]) -> tuple[Listing, list[str]]:
    """A listing of some of ``names``, sorted, and the names behind them; what is no file any more is left out.

    Raises ``InputError`` if there is no file among them.
    """
    rows: list[tuple[str, int, int]] = []
    total, taken, end = 0, 0, time.monotonic() + SEARCH_S
    for name in names[:FILES]:
        if rows and (total >= BYTES or time.monotonic() > end):
            break
        taken += 1
        try:
            status = (root / name).stat()
        except OSError as error:
            raise DataError(root / name, f"cannot be looked at ({error.strerror})", "check the source") from None
        if stat.S_ISREG(status.st_mode):
            refuse_time(root / name, status.st_mtime_ns)
            rows.append((name, status.st_size, status.st_mtime_ns))
            total += status.st_size
    if not rows:
        raise no_file(root)
    rows.sort()
    sizes, times = (np.array([row[column] for row in rows], np.int64) for column in (1, 2))
    listing = Listing(Names.of(row[0] for row in rows), sizes, times, np.full(len(rows), UNKNOWN, np.int64))
    return listing, names[taken:]


def gzip_files(root: Path, listing: Listing) -> list[Path]:
    """Those of the first few files that begin like gzip and fit into memory. Raises ``DataError``."""
    paths = []
    for entry in range(min(GZIP_FILES, len(listing))):
        path = listing.path(root, entry)
        with opened(path) as file:
            is_gzip = file.read(3) == MAGIC + DEFLATE
        if is_gzip and listing.sizes[entry] <= GZIP_BYTES:
            paths.append(path)
    return paths
