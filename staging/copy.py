"""Copies a list of files to node-local storage: safe, resumable and measured."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from staging.atomic import replacing
from staging.errors import DataError
from staging.progress import Progress
from staging.space import free_bytes
from staging.spans import Spans

SAME_TIME_NS = 1_000_000  # filesystems round time stamps


@dataclass(frozen=True)
class StagingReport:
    """What one rank copied."""

    destination: str
    files: int
    """Files that this rank copied."""
    skipped: int
    """Files of this rank that were already complete at the destination."""
    bytes_read: int
    """Bytes read from the source."""
    bytes_landed: int
    """Bytes written at the destination, as its file sizes say."""
    seconds: float
    """From the first look at the source to the last rename."""
    bytes_per_s: float
    """``bytes_landed`` over ``seconds``."""

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


def stage(
    source_root: Path,
    destination: Path,
    relative_files: list[Path],
    threads: int,
    rank: int = 0,
    ranks: int = 1,
    spans: Spans | None = None,
    progress: Progress | None = None,
    barrier: Callable[[], None] = lambda: None,
) -> StagingReport:
    """Copy ``relative_files`` from ``source_root`` to the same names below ``destination``, with modification times.

    The ``ranks`` processes that share the destination call this together, each copies every ``ranks``-th file, and
    ``barrier`` (called once, after all checks and before the first byte) keeps them in step. Files that are already
    complete (same size and time) are skipped, so an interrupted call is repeated to resume it. Raises ``DataError``
    for too little space, a source that is missing or changes while it is copied, and a destination that holds other
    files, which are never overwritten.
    """
    start = time.perf_counter()
    with spans.span("staging") if spans else nullcontext():
        own = relative_files[rank::ranks]
        sources = {name: _status(source_root / name) for name in own}
        todo = [name for name in own if not _complete(destination / name, sources[name])]
        if rank == 0:
            _refuse_strangers(source_root, destination, relative_files)
        _refuse_too_large(destination, sum(sources[name].st_size for name in todo), ranks)
        barrier()
        if progress and len(own) > len(todo):
            progress.advance(len(own) - len(todo))
        landed = _copy_all(source_root, destination, {name: sources[name] for name in todo}, threads, progress)
    seconds = time.perf_counter() - start
    rate = landed / max(seconds, 1e-9)
    return StagingReport(str(destination), len(todo), len(own) - len(todo), landed, landed, seconds, rate)


def drop_cache(files: Iterable[Path]) -> int:
    """Ask the operating system to drop the pages of ``files`` from its cache; return how many files it took that for.

    Pages not yet on disk cannot be dropped, so they are written first. 0 where there is no such call.
    """
    if not hasattr(os, "posix_fadvise"):
        return 0
    advised = 0
    for path in files:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            advised += 1
        except OSError:
            pass
        finally:
            os.close(descriptor)
    return advised


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise DataError(path, f"cannot be staged ({error.strerror})", "check data.root") from None


def _complete(copy: Path, source: os.stat_result) -> bool:
    """Whether ``copy`` is a copy of the source; raises ``DataError`` when it is something else."""
    try:
        found = copy.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(copy, f"cannot be looked at ({error.strerror})", "check staging.destination") from None
    if found.st_size == source.st_size and abs(found.st_mtime_ns - source.st_mtime_ns) < SAME_TIME_NS:
        return True
    raise DataError(
        copy,
        f"is in the way: {found.st_size} bytes, not a copy of the {source.st_size} bytes of the source",
        "remove it, or set staging.destination to an empty folder",
    )


def _refuse_strangers(source_root: Path, destination: Path, relative_files: list[Path]) -> None:
    """Raise ``DataError`` when a folder to be filled holds files that the source has not: a reader would take them."""
    expected = set(relative_files)
    for folder in {name.parent for name in relative_files}:
        if not (destination / folder).is_dir():
            continue
        for path in sorted((destination / folder).iterdir()):
            name = folder / path.name
            if name in expected or path.name.startswith(".") or path.is_dir() or (source_root / name).exists():
                continue
            raise DataError(
                path,
                f"is in the staging folder but not in the set {source_root}",
                "remove it, or set staging.destination to an empty folder",
            )


def _refuse_too_large(destination: Path, own_bytes: int, ranks: int) -> None:
    # shares are interleaved, so one rank's share times the ranks is a fair estimate of what all will write
    need, free = own_bytes * ranks, free_bytes(destination)
    if need > free:
        raise DataError(
            destination,
            f"has {free / 2**30:.2f} GiB free but staging needs about {need / 2**30:.2f} GiB",
            "free some, or set staging.destination to a larger place",
        )


def _copy_all(
    source_root: Path,
    destination: Path,
    todo: dict[Path, os.stat_result],
    threads: int,
    progress: Progress | None,
) -> int:
    """Copy ``todo`` with ``threads`` threads and return the bytes that landed; the first error ends all of them."""
    landed = 0
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        jobs = [pool.submit(_copy_one, source_root / name, destination / name, todo[name]) for name in todo]
        for job in as_completed(jobs):
            landed += job.result()
            if progress:
                progress.advance(1)
    finally:
        pool.shutdown(cancel_futures=True)
    return landed


def _copy_one(source: Path, target: Path, before: os.stat_result) -> int:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            shutil.copyfile(source, temporary)
            landed, after = temporary.stat().st_size, source.stat()
            if landed != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                problem = f"changed while it was copied ({before.st_size} bytes before, {landed} landed)"
                raise DataError(source, problem, "stage again when nothing writes to it")
            os.utime(temporary, ns=(before.st_atime_ns, before.st_mtime_ns))
    except OSError as error:
        change = "set staging.destination to a larger place" if error.errno == errno.ENOSPC else "stage again"
        raise DataError(target, f"cannot be staged ({error.strerror or error})", change) from error
    return landed
