"""What a staging is to do: the same settings for the command line and for a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Placement = Literal["replicate", "shard"]
Path_ = Literal["direct", "exchange"]
Verify = Literal["none", "transfer", "reread"]


@dataclass(frozen=True)
class StageOptions:
    """A staging from ``source`` to ``destination``."""

    source: Path
    """A folder, a folder of tar archives, or one HDF5 file, on a filesystem that all nodes share."""
    destination: str
    """Folder on each node's own storage; ``{node}``, ``{rank}`` and ``$VARIABLES`` are filled in there."""
    placement: Placement = "replicate"
    """``replicate``: every node gets all. ``shard``: each node gets a part, balanced by bytes, from ``seed``."""
    path: Path_ = "direct"
    """``direct``: each node reads what it needs. ``exchange``: every byte is read once in the job, then sent by MPI."""
    transform: str = ""
    """What is done to each file between reading and writing, by name; empty: nothing."""
    largest_output: int | None = None
    """The most bytes of a file that a transform makes; ``None`` sets no bound."""
    plain: tuple[str, ...] = ()
    """Files whose names match one of these shell patterns are left as they are by the transform.

    ``auto`` is not a pattern: it means all files whose names have no ending that the transform knows.
    """
    threads: int = 4
    """Streams of each rank that read and write at the same time (``direct``)."""
    piece_bytes: int = 8 << 20
    """Bytes of a buffer, which takes several whole files or a part of a larger one; what ``exchange`` sends at a time.

    On path ``direct`` larger files are read in blocks of 2 MiB, unless they are fewer than threads.
    """
    queue_pieces: int = 4
    """Pieces that may wait between two steps of the pipeline."""
    verify: Verify = "transfer"
    """``none``: sizes only. ``transfer``: CRC32C from the read on. ``reread``: also read the landed files again."""
    include: tuple[str, ...] = ()
    """Only files whose relative name matches one of these shell patterns."""
    exclude: tuple[str, ...] = ()
    """No files whose relative name matches one of these shell patterns."""
    follow_links: bool = False
    """Follow links to folders; otherwise they are left out, and counted."""
    hidden: bool = False
    """Take names that begin with a dot; otherwise they are left out, and counted."""
    first: int | None = None
    """Only this many files, the first by name."""
    index: Path | None = None
    """A dataset index to use in place of a walk."""
    seed: int = 0
    """Seed of the placement."""
    contiguous: bool = False
    """With ``shard``: homes are not drawn, each node gets a run of the files in the order of their names."""
    shuffle: int = 0
    """How many times the shards were re-shuffled; each time, other homes are drawn from ``seed``."""
    replicate_also: tuple[str, ...] = ()
    """Files that every node gets with ``shard``, too: names that match one of these shell patterns."""
    share_files: bool = True
    """Several ranks bring a large file together, which lands when all are done; otherwise one rank brings each file."""
    repair: bool = False
    """First read again what is at the destination, and bring again files that are not what landed."""
    update: bool = False
    """The source may have changed since the last staging: what vanished from it stays, and is counted."""
    drop_vanished: bool = False
    """With ``update``: at the end, remove files that came from what is gone from the source."""
    write_way: Literal["auto", "buffered", "early", "uncached"] = "auto"
    """How large files are written; ``auto``: as a probe found fastest, else as suits the destination's filesystem."""
    cold: bool = False
    """Drop the source's cached pages before reading, if the system lets an ordinary user do so."""
    retries: int = 3
    """How many times to retry after an input or output error that may be transient."""

    @property
    def takes_all(self) -> bool:
        """Whether neither patterns nor a number leave out files of the source."""
        return not self.include and not self.exclude and self.first is None

    def selection_words(self) -> list[str]:
        """The command-line arguments that choose the same files of the source."""
        patterns = (("--include", self.include), ("--exclude", self.exclude))
        words = [f"{option}={pattern}" for option, given in patterns for pattern in given]  # it may begin with a dash
        words += ["--follow-links"] * self.follow_links + ["--hidden"] * self.hidden
        words += [] if self.first is None else ["--first", str(self.first)]
        return words + ([] if self.index is None else ["--index", str(self.index.absolute())])
