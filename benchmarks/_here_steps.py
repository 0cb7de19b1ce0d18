"""Time steps of an application at several local batches in turn, on the first of the available ranks.

``python _here_steps.py APP PRESET REPEATS SECONDS RANKS BATCH...`` prints the seconds of a step as JSON: for each
local batch a list with one value per repeat. The first RANKS ranks make the step, with one core each.
"""

from __future__ import annotations

import copy
import json
import os
import sys

import _common  # noqa: F401  (else staging.py beside this file would hide the package staging)

from hpcbench.application import find_application
from hpcbench.characterisation.steps import first_step, timed_steps
from hpcbench.config.resolve import resolve
from hpcbench.train.ranks import connect_ranks
from staging.ranks.launch import detect


def main() -> None:
    name, preset, repeats, seconds, size, *batches = sys.argv[1:]
    application = find_application(name)
    base = resolve(application, preset, overrides={"parallel.threads": "1", "train.precision": "32-true"})
    taken: dict[str, list[float]] = {batch: [] for batch in batches}
    with connect_ranks(detect(os.environ), base) as ranks:
        steps = {}
        for batch in batches:
            config = copy.deepcopy(base)
            config.train.local_batch_size = int(batch)
            steps[batch] = (config, first_step(application, config, ranks, int(size)))
        for _ in range(int(repeats)):
            for batch, (config, step) in steps.items():
                times = timed_steps(step, ranks.group, int(size), config, 1.0, None, float(seconds))
                taken[batch].append(times.median_s)
        if ranks.launch.rank == 0:
            print(json.dumps(taken))


if __name__ == "__main__":
    main()
