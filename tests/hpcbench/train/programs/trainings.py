"""Runs hpcbench commands one after the other, each in N ranks, importing torch once: ``trainings.py N JSON``."""

from __future__ import annotations

import json
import os
import sys

import hpcbench.train.run  # noqa: F401
from hpcbench.cli.main import main
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.parallel.spawn import rank_environments
from hpcbench.results import style


def train(rank: int) -> int:
    """All commands as one of the ranks; the code of the first that fails."""
    for environments, words in zip(places, commands, strict=True):
        os.environ.update(environments[rank])
        code = main(words)
        if code not in (DONE, TARGET_NOT_REACHED):
            return code
    return DONE


style.svg = lambda figure, name: "<svg></svg>"  # drawing takes longer than a short run
ranks, commands = int(sys.argv[1]), json.loads(sys.argv[2])
places = [rank_environments(ranks, os.environ) for _ in commands]
children = []
for number in range(ranks):
    child = os.fork()
    if child == 0:
        ended = train(number)
        sys.stdout.flush()
        os._exit(ended)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
