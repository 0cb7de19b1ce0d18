"""Throughput of staging on one machine against ``cp``, ``rsync``, the published Python stager, and zlib in threads.

``python benchmarks/staging.py`` writes ``benchmarks/results/staging.json``. All ways alternate in one run, in an order
that changes every round, each into a new folder, which is removed outside the timing. For all ways the sources are in
the page cache (or in the tmpfs). Ours is the time of ``stage()`` in running processes, from a synchronization of all
ranks to the return of the last: listing, plan, check of space, checksums, manifest and flush are included. ``cp`` and
``rsync`` are timed from outside, with their start of a few ms; the whole of ``python -m staging``, with the start of
Python and MPI, is given as ``..._whole_process``: a start takes the same time for one file and for a million. ``cp -r``
lets the system copy files within itself where it can (``copy_file_range``), without looking at the data, and
``cp -r --reflink=never`` reads and writes them. On disk all ways end with a flush unless stated otherwise, ``dd``
bypasses the page cache, and staging writes in the way that a probe of the disk found fastest (``disk_way``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from _common import Paired, compared, write_results
from _copying import BLOCK, by_command, by_dd, by_ranks, in_turns, make_files, make_samples, same_as
from _ranks import Ranks, serve

from staging.ledger.durable_batch import sync_filesystem
from staging.options import StageOptions
from staging.probing.probe import probe
from staging.ranks.world import Alone

SMALL_BYTES = 16 << 10
FOLDERS = 20
LIMITS = {
    "large": "the system fetches and clears the pages of the tmpfs, which cp's one thread waits for; see ceilings",
    "small": "system calls: see ceilings for the same calls without staging",
    "large_disk": "the disk: only what is flushed can be compared, and all sides wait for the device",
    "small_disk": "the disk and its journal: a flush at the end for ours, and for cp where that is said",
    "gunzip_per_core": "inflating takes four fifths; CRC-32, CRC32C and a search for more members the rest",
    "gunzip_staged": "a third is fetching pages of the tmpfs for what is written, the same on both sides",
}


def copies(
    name: str, source: Path, room: Path, ranks: list[Ranks], rounds: int, *, way: str = "", dd: bool = False,
    keep: bool = False, target: float | None = None, whole_target: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Compare staging by the last of ``ranks`` with all peers; ``target`` is against ``dd`` if asked for, else ``cp``.

    ``way`` is how staging writes to a disk; then the peers flush, too, as staging always does. In memory ``target`` is
    against the ``cp`` that reads and writes, as anything that looks at the data must.
    """
    last: dict[str, Any] = {}
    ours, copied = f"stage(), {len(ranks)} rank(s)", "cp -r + flush" if way else "cp -r"
    peer = "dd oflag=direct" if dd else copied if way else "cp -r --reflink=never"
    options = {"write_way": way} if way else {}
    ways = {
        ours: by_ranks(ranks[-1], "stage", source, last, **options),
        copied: by_command("cp", "-r", flush=bool(way))(source),
    }
    if dd:
        ways[peer] = by_dd(source)
    if way:
        ways["cp -r, not flushed"] = by_command("cp", "-r")(source)
    else:
        ways[peer] = by_command(*peer.split())(source)
        for number, group in enumerate(ranks, 1):
            ways[f"shutil.copyfile, {number} process(es)"] = by_ranks(group, "copyfile", source, {})
    if shutil.which("rsync"):
        ways["rsync -a"] = by_command("rsync", "-a")(source)
    whole = ["mpiexec", "-n", str(len(ranks))] if len(ranks) > 1 else []
    asked = ("--write-way", way) if way else ()
    ways["whole process"] = by_command(*whole, sys.executable, "-m", "staging", *asked)(source)
    taken = in_turns(ways, room, rounds, same_as(source), keep=keep)
    comparisons: dict[str, Any] = {name: compared(ours, peer, taken[ours], taken[peer], target)}
    for other in [way for way in ways if way not in (ours, peer, "whole process")]:
        comparisons[f"{name}_against_{other}"] = compared(ours, other, taken[ours], taken[other])
    comparisons[f"{name}_whole_process"] = compared(
        "python -m staging", copied, taken["whole process"], taken[copied], whole_target
    )
    print(f"{name}: {comparisons[name]}", file=sys.stderr, flush=True)
    return {**comparisons, f"{name}_last_report": last, f"{name}_limit": LIMITS[name]}


def by_threads(source: Path, room: Path, ranks: Ranks, rounds: int) -> dict[str, Any]:
    """Compare one rank's usual four threads, of which as many work as are of use, with one thread, on small files."""
    ours, peer = "stage(), 1 rank, 4 threads", "stage(), 1 rank, 1 thread"
    ways = {ours: by_ranks(ranks, "stage", source, {}), peer: by_ranks(ranks, "stage", source, {}, threads=1)}
    taken = in_turns(ways, room, rounds, same_as(source))
    return {"small_by_threads": compared(ours, peer, taken[ours], taken[peer], 0.95)}


def gunzip(source: Path, room: Path, ranks: Ranks, rounds: int) -> dict[str, Any]:
    """Compare inflating without writing (processor seconds) and staging with gunzip, with as many threads as cores."""
    plain = zlib.decompress(next(source.iterdir()).read_bytes(), wbits=31)
    threads, last = len(os.sched_getaffinity(0)), dict[str, Any]()

    def check(copy: Path) -> None:
        names = [file.name for file in source.iterdir()]
        assert all((copy / name).read_bytes() == plain for name in names)

    one, other = f"transform gunzip and CRC32C, {threads} threads", f"zlib.decompress, {threads} threads"
    memory = in_turns(
        {
            name: by_ranks(ranks, "inflate", source, {}, figure="processor_s", threads=threads, ours=name == one)
            for name in (one, other)
        },
        room, rounds, check=lambda copy: None,
    )  # fmt: skip
    ours, peer = f"stage() with gunzip, {threads} threads", f"zlib and write, {threads} threads"
    staged = in_turns(
        {
            ours: by_ranks(ranks, "stage", source, last, transform="gunzip", threads=threads),
            peer: by_ranks(ranks, "zlib", source, {}, threads=threads),
        },
        room, rounds, check,
    )  # fmt: skip
    return {
        "gunzip_per_core": compared(one, other, memory[one], memory[other], 3.0),
        "gunzip_per_core_limit": LIMITS["gunzip_per_core"],
        "gunzip_staged": compared(ours, peer, staged[ours], staged[peer]),
        "gunzip_staged_limit": LIMITS["gunzip_staged"],
        "gunzip_staged_last_report": last,
    }


def ceilings(folder: Path, large: Path, small: Path) -> dict[str, float]:
    """Measure what one core does without staging, in processor time: the best of five."""
    file, block = next(large.iterdir()), memoryview(bytearray(BLOCK))
    size, target = file.stat().st_size, folder / "ceiling"
    names = sorted(path for path in small.rglob("*") if path.is_file())[:2000]
    target.mkdir()

    def read() -> None:
        with file.open("rb", buffering=0) as source:
            while source.readinto(block):
                pass

    def write() -> None:
        with (target / "file").open("wb", buffering=0) as out:
            for _ in range(size // BLOCK):
                out.write(block)

    def calls() -> None:
        for number, path in enumerate(names):
            source = os.open(path, os.O_RDONLY)
            count = os.readv(source, [block])
            os.fstat(source)
            os.close(source)
            out = os.open(f"{target}/.{number}.part", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(out, block[:count])
            os.utime(out, ns=(0, 0))
            os.close(out)
            os.rename(f"{target}/.{number}.part", f"{target}/{number}")  # noqa: PTH104  # the bare call

    best = {}
    for call in (read, write, calls):
        times = []
        for _ in range(5):
            shutil.rmtree(target)
            target.mkdir()
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        best[call.__name__] = min(times)
    shutil.rmtree(target)
    return {
        "read_bytes_per_s": size / best["read"],
        "write_bytes_per_s": size / best["write"],
        "calls_of_a_small_file_s": best["calls"] / len(names),
    }


def fastest_way(source: Path, destination: Path) -> str:
    """Return the fastest way to write large files, as found by a probe."""
    best = probe(StageOptions(source, str(destination)), Alone(), quiet=True).best("write_flushed")
    assert best is not None
    return best.note


def measure(memory: Path, disk: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Make all comparisons: on the tmpfs, then on the disk."""
    results: dict[str, Any] = {}
    parts = [f"part{number}.bin" for number in range(4)]
    files = [f"{number % FOLDERS:02d}/sample_{number:06d}.bin" for number in range(options.files)]
    alone = Ranks(Path(__file__).resolve(), memory, 1)
    group = [alone]
    if shutil.which("mpiexec"):
        group.append(Ranks(Path(__file__).resolve(), memory, 2))
    else:
        results["small_skipped"] = "mpiexec is not on the path: two ranks can't be started, so one did the small files"
    if not shutil.which("rsync"):
        results["rsync_skipped"] = "rsync is not on the path"
    for place, tail, rounds in ((memory, "", options.rounds), (disk, "_disk", options.disk_rounds)):
        if rounds == 0:
            continue
        is_disk = tail != ""
        way = ""
        large = make_files(place / "large", parts, options.large_mib << 20)
        small = make_files(place / "small", files, SMALL_BYTES)
        if not is_disk:
            results["ceilings_of_a_core"] = ceilings(place, large, small)
        sync_filesystem(place)
        if is_disk:
            results["disk_way"] = way = fastest_way(large, place / "probed")
        results |= copies(
            f"large{tail}", large, place, group[:1], rounds, way=way, dd=is_disk, target=0.9 if is_disk else 1.5,
            whole_target=1.0,
        )  # fmt: skip
        shutil.rmtree(large)
        results |= copies(
            f"small{tail}", small, place, group, rounds, way=way, keep=is_disk, target=None if is_disk else 1.2
        )
        if not is_disk:
            results |= by_threads(small, place, alone, rounds)
        shutil.rmtree(small)
    results |= gunzip(make_samples(memory / "gzip", options.samples), memory, alone, options.rounds)
    for ranks in group:
        ranks.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a tmpfs with 9 GiB free")
    parser.add_argument(
        "--disk", type=Path, help="a folder on a disk with 10 GiB free (default: that of temporary files)"
    )
    parser.add_argument("--rounds", type=int, default=21, help="rounds on the tmpfs")
    parser.add_argument("--disk-rounds", type=int, default=21, help="rounds on the disk; 0: leave it out")
    parser.add_argument("--files", type=int, default=20_000, help="small files, of 16 KiB")
    parser.add_argument("--large-mib", type=int, default=1024, help="size of each of the 4 large files")
    parser.add_argument("--samples", type=int, default=32, help="gzip samples")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that gigabytes in memory are freed
    with (
        tempfile.TemporaryDirectory(dir=options.memory) as memory,
        tempfile.TemporaryDirectory(dir=options.disk) as disk,
    ):
        results = measure(Path(memory), Path(disk), options)
    for name, value in results.items():
        print(f"{name}: {value}")
    print(f"written to {write_results('staging', results)}")
    missed = [name for name, value in results.items() if isinstance(value, Paired) and not value.met]
    raise SystemExit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
