"""Processes that wait for work without using a core, alone or as the ranks of one MPI world, and time it together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from staging.checksums import crc32c
from staging.landing.transform.gunzip import Gunzip
from staging.options import StageOptions
from staging.ranks.mpi_world import mpi_world
from staging.ranks.world import World
from staging.stage import stage


class Ranks:
    """``number`` running processes in one world. Each waits at its own pipe and leaves the machine to the peer."""

    def __init__(self, script: Path, folder: Path, number: int) -> None:
        self._pipes = [folder / f"rank{number}-{rank}" for rank in range(number)]
        for pipe in self._pipes:
            os.mkfifo(pipe)
        launcher = ["mpiexec", "-n", str(number)] if number > 1 else []
        command = [*launcher, sys.executable, str(script), "--worker", str(folder / f"rank{number}-")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._requests = [pipe.open("w") for pipe in self._pipes]

    def __call__(self, task: str, source: Path, destination: Path, **options: Any) -> dict[str, Any]:
        """Have all ranks do ``task`` together; return the first rank's report, with ``seconds`` of the slowest."""
        for requests in self._requests:
            print(json.dumps([task, str(source), str(destination), options]), file=requests, flush=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a rank failed; see its error above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the processes."""
        for requests in self._requests:
            requests.close()
        self._process.wait()


def serve(pipes: str) -> None:
    """Act as a rank: do the task of every line from this rank's pipe, timed between two synchronizations of all."""
    world = mpi_world()
    with Path(f"{pipes}{world.place.rank}").open() as requests:
        for line in requests:
            task, source, destination, options = json.loads(line)
            world.barrier()
            start, busy = time.perf_counter(), time.process_time()
            figures = TASKS[task](world, Path(source), Path(destination), **options)
            times = (time.perf_counter() - start, time.process_time() - busy)
            took = world.all_gather(times)
            if world.place.rank == 0:
                seconds, processor_s = max(wall for wall, _ in took), sum(cpu for _, cpu in took)
                print(json.dumps({"seconds": seconds, "processor_s": processor_s, **figures}), flush=True)


def do_stage(world: World, source: Path, destination: Path, **options: Any) -> dict[str, Any]:
    """Stage with the staging layer; return the parts of its report."""
    report = stage(StageOptions(source, str(destination), **options), world, quiet=True)
    total, bound = report.totals, report.bound()
    return {
        "phases_s": report.phases(),
        "read_thread_s": total.read_s,
        "write_thread_s": total.write_s,
        "sync_s": total.sync_s,
        "busiest": bound.part,
        "busiest_share": bound.share,
        "fine_print": report.fine_print(),
    }


def do_copyfile(world: World, source: Path, destination: Path) -> dict[str, Any]:
    """Published CosmoFlow stager: each rank lists all files, and copies every ``world``-th with shutil.copyfile."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    for path in files[world.place.rank :: world.place.size]:
        target = destination / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return {}


def do_zlib(world: World, source: Path, destination: Path, threads: int) -> dict[str, Any]:
    """Published way for gzip samples: threads that read, inflate with zlib and write, with only gzip's CRC-32."""

    def inflate(path: Path) -> None:
        (destination / path.name).write_bytes(zlib.decompress(path.read_bytes(), wbits=31))

    destination.mkdir()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(inflate, sorted(source.iterdir())))
    return {}


def do_inflate(world: World, source: Path, destination: Path, threads: int, ours: bool) -> dict[str, Any]:
    """Read and inflate in threads, without writing: by the transform, with CRC32C of the output, or by zlib."""
    transform = Gunzip()

    def inflate(path: Path) -> int:
        packed = path.read_bytes()
        if not ours:
            return len(zlib.decompress(packed, wbits=31))
        [(_, parts)] = transform.convert(path.name, memoryview(packed))
        return int(sum(crc32c(part) for part in parts))

    destination.mkdir()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(inflate, sorted(source.iterdir())))
    return {}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "stage": do_stage,
    "copyfile": do_copyfile,
    "zlib": do_zlib,
    "inflate": do_inflate,
}
