"""Ranks that go through the phases of a training over real collectives, until one of them hangs as it is told.

hanging.py FOLDER HANG_S HOW PHASE RANK: ``HOW`` is stop (SIGSTOP), sleep, fifo, lock (a call that keeps the
interpreter's lock) or nothing, which ends after ``PHASE`` steps; FOLDER gets the report, and a
file with the pid of each rank.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch

from hpcbench.parallel.group import connect
from hpcbench.train.hang_report import write_report
from hpcbench.train.hang_watch import HangWatch
from hpcbench.train.progress import WARM_STEPS, Bounds
from staging.ranks.abort import AbortWatcher
from staging.ranks.launch import detect

folder, hang_s, how, where, who = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
STEP = ("input_wait", "compute", "communication")


def hang() -> None:
    (folder / f"hangs-{os.getpid()}").write_text(f"{time.time()}")
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "sleep":
        time.sleep(600)  # stands here
    elif how == "fifo":
        (folder / "fifo").open().read()  # stands here
    elif how == "lock":
        lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
        lock(mutex)
        lock(mutex)  # stands here: unlike a sleep, no signal ends this


torch.set_num_threads(1)
group = connect(detect(os.environ), timeout_s=600)
(folder / f"rank-{group.rank}").write_text(str(os.getpid()))
if group.rank == 0 and how == "fifo":
    os.mkfifo(folder / "fifo")
with AbortWatcher(group, program="hpcbench", with_parent="HPCBENCH_SPAWNED" in os.environ) as watcher:
    watcher.on_abort = (folder / f"aborted-{group.rank}").write_text
    bounds = Bounds(hang_s, long=float(os.environ.get("LONG", "1")))
    with HangWatch(group, watcher, bounds, node=os.environ.get(f"NODE_{group.rank}", "node0")) as watch:
        watch.on_hang = lambda report: write_report(folder, report)
        watch.advice = lambda: "resume with --resume"
        progress = watch.progress

        def do(phase: str, step: int) -> None:
            with progress.during(phase):
                if group.rank == who and phase == where and step > WARM_STEPS:
                    hang()
                if phase == "communication":
                    group.all_reduce_sum(torch.ones(10))

        for step in range(1, 10**9 if how != "nothing" else int(where)):
            for phase in STEP:
                do(phase, step)
            progress.tick(step)
            if step % 20 == 7:
                for phase in ("staging", "evaluation", "checkpoint"):
                    do(phase, step)
            time.sleep(0.01)
            (folder / f"step-{group.rank}").write_text(str(step))
group.close()
