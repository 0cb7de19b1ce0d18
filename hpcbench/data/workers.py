"""Worker processes for work on datasets: started once from a server that has the application's code loaded."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def worker_pool(package: str, processes: int) -> ProcessPoolExecutor:
    """A pool of ``processes``; the modules that its work needs are imported once, before the workers split off."""
    context = get_context("forkserver")
    context.set_forkserver_preload([f"{package}.simulate", f"{package}.data"])
    return ProcessPoolExecutor(processes, mp_context=context)


def allowed_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
