"""Runs a program in N ranks after importing torch once, because importing it N times is what takes the time."""

from __future__ import annotations

import os
import runpy
import sys

import hpcbench.parallel.batchnorm
import hpcbench.parallel.gradients  # noqa: F401
from hpcbench.parallel.spawn import rank_environments

ranks, program = int(sys.argv[1]), sys.argv[2]
children = []
for environ in rank_environments(ranks, os.environ):
    child = os.fork()
    if child == 0:
        os.environ.update(environ)
        runpy.run_path(program, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
