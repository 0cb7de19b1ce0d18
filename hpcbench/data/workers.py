"""Worker processes for work on datasets, started once from a server that has loaded the application's code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from hpcbench.parallel.heap import keep_freed_memory
from staging.errors import Aborted


@contextmanager
def worker_pool(package: str, processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``processes`` workers; the modules that they need are imported once, before the workers are forked.

    They keep freed memory for their next sample. Raises ``Aborted`` if a worker dies.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([f"{package}.simulate", f"{package}.data"])
    try:
        with ProcessPoolExecutor(processes, mp_context=context, initializer=keep_freed_memory) as pool:
            yield pool
    except BrokenProcessPool:
        raise Aborted("a worker process was killed (out of memory?); take fewer --processes") from None


def allowed_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
