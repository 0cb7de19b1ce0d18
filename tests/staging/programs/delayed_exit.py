"""``delayed_exit.py SECONDS -m MODULE ARGUMENT...``: a module's command under MPI, whose ranks end one by one.

Where a process ends itself without the handlers of C's ``exit``, rank R does so R times SECONDS after MPI's Finalize,
and says so.
``delayed_exit.py SECONDS CODE`` does nothing but load MPI, and leave with the others and with CODE.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from typing import NoReturn

from staging.ranks.launch import detect
from staging.ranks.mpi import communicator
from staging.ranks.process_exit import leave_together

end, process = os._exit, os.getpid()


def late(code: int) -> NoReturn:
    """In the place of ``os._exit``."""
    if os.getpid() == process:
        time.sleep(detect(os.environ).rank * float(seconds))
        os.write(2, b"left\n")
    end(code)


seconds, *words = sys.argv[1:]
os._exit = late
if words[0] == "-m":
    sys.argv = words[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    assert communicator() is not None
    leave_together(int(words[0]))
