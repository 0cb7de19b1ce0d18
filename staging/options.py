"""What a staging shall do; the same settings for the command line and for a training run."""

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
    """``replicate``: every node gets all. ``shard``: each node gets a part, balanced by bytes, by ``seed``."""
    path: Path_ = "direct"
    """``direct``: each node reads what it needs. ``exchange``: every byte is read once in the job, then sent by MPI."""
    transform: str = ""
    """What is done to each file between reading and writing, by name; empty: nothing."""
    plain: tuple[str, ...] = ()
    """Files whose names match one of these shell patterns are left as they are by the transform.

    ``auto`` is no pattern: all files whose names end as none do that the transform knows.
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
    """``none``: sizes only. ``transfer``: CRC32C from the read on. ``reread``: and the landed files are read again."""
    include: tuple[str, ...] = ()
    """Only files whose relative name matches one of these shell patterns."""
    exclude: tuple[str, ...] = ()
    """No files whose relative name matches one of these shell patterns."""
    follow_links: bool = False
    """Links to folders are followed; else they are left out, and counted."""
    hidden: bool = False
    """Names that begin with a dot are taken; else they are left out, and counted."""
    first: int | None = None
    """Only so many files, the first by name."""
    index: Path | None = None
    """A dataset index to use in place of a walk."""
    seed: int = 0
    """Of the placement."""
    shuffle: int = 0
    """How often the shards were re-shuffled: each time other homes are drawn from ``seed``."""
    replicate_also: tuple[str, ...] = ()
    """Files that every node gets with ``shard``, too: names that match one of these shell patterns."""
    share_files: bool = True
    """Large files are brought by several ranks together, and land when all are done; else each by one rank."""
    repair: bool = False
    """What lies at the destination is read again first; files that are not what landed are brought again."""
    update: bool = False
    """The source may have changed since the last staging: what vanished from it stays, and is counted."""
    drop_vanished: bool = False
    """With ``update``: at the end, files that came from what the source has no more are removed."""
    write_way: Literal["auto", "buffered", "early", "uncached"] = "auto"
    """How large files are written; ``auto``: as a probe found fastest, else as suits the destination's filesystem."""
    cold: bool = False
    """Drop the source's cached pages before reading, where the system lets an ordinary user do so."""
    retries: int = 3
    """How often an input or output error that may pass is tried again."""

    def selection_words(self) -> list[str]:
        """The words of a command line that choose the same files of the source."""
        patterns = (("--include", self.include), ("--exclude", self.exclude))
        words = [f"{option}={pattern}" for option, given in patterns for pattern in given]  # it may begin with a dash
        words += ["--follow-links"] * self.follow_links + ["--hidden"] * self.hidden
        words += [] if self.first is None else ["--first", str(self.first)]
        return words + ([] if self.index is None else ["--index", str(self.index.absolute())])
