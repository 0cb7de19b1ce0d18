"""Trains with delays: each of the runs of a JSON file in ranks of its own, or the only one as a launched rank.

Every rank leaves the seconds of its delays in the file ``delays-RANK.json`` of the run folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import hpcbench.train.run as run_module
from hpcbench.cli.main import main
from hpcbench.parallel.spawn import rank_environments
from staging.ranks.launch import detect
from tests.hpcbench.train.delays import WARM_UP, Delay, DelayClock, Delayer, install


def train(asked: dict[str, Any]) -> int:
    """Train as this rank; the exit code."""
    launch, folder = detect(os.environ), Path(asked["folder"])
    delays = [Delay(**each) for each in asked["delays"] if launch.rank == asked["rank"]]
    clock = DelayClock(folder.with_suffix(".clock"), launch.rank, launch.world_size, asked["rank"])
    delayer = Delayer(clock, asked["place"], delays)
    install(delayer)
    warm = any(each["step"] == WARM_UP for each in asked["delays"])
    run_module.is_due = lambda config, device: warm
    code = main([*asked["words"], "--run-dir", str(folder)])
    (folder / f"delays-{launch.rank}.json").write_text(json.dumps(delayer.done))
    return code


def train_in_ranks(asked: dict[str, Any]) -> int:
    """Train in processes that have torch from this one; the largest exit code."""
    children = []
    for environ in rank_environments(asked["ranks"], os.environ):
        child = os.fork()
        if child == 0:
            os.environ.update(environ)
            code = train(asked)
            sys.stdout.flush()
            os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


every = json.loads(Path(sys.argv[1]).read_text())
if detect(os.environ).world_size > 1:
    sys.exit(train(every[0]))
sys.exit(max(map(train_in_ranks, every)))
