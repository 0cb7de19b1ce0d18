"""Two or three ranks of which one fails as the command line says, while the others wait in a collective operation."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch

from hpcbench.parallel.group import connect
from staging.errors import InputError
from staging.ranks.abort import AbortWatcher
from staging.ranks.launch import detect

how, who = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
group = connect(detect(os.environ), timeout_s=600)
with AbortWatcher(group, program="hpcbench") as watcher:
    watcher.on_abort = lambda reason: print(f"log of rank {group.rank}: {reason}", flush=True)
    group.barrier()
    # One write, so that lines of several ranks do not mix.
    os.write(1, f"TIME {time.time()}\n".encode())
    if group.rank == who:
        if how == "raise":
            raise RuntimeError("the reactor leaks")
        if how == "input":
            raise InputError("the file is cut short")
        if how == "kill":
            # A forked reader that lives on for a while; not under mpiexec, which waits for all that hold its pipes.
            if "PMI_RANK" not in os.environ and os.fork() == 0:
                os.close(1)
                os.close(2)
                time.sleep(15)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
    if how in ("raise", "input"):
        time.sleep(300)
    if how == "kill":
        group.barrier()
group.close()
