"""Five ranks pretend to be on three machines whose clocks differ; rank 0 prints how far each is off the first's."""

from __future__ import annotations

import json
import os
import time

import torch

from hpcbench.measure.shared_clock import SharedClock
from hpcbench.parallel.group import connect
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

MACHINE = (0, 1, 1, 2, 0)
AHEAD_S = (100.0, -5000.0, 0.25)
DRIFT = (0.0, 0.0, 0.01)
"""Seconds that a clock gains in a second; real ones gain some millionths."""


def main() -> None:
    group = connect(detect(os.environ), timeout_s=60)
    machine = MACHINE[group.rank]
    started = group.broadcast_object(time.perf_counter())

    def clock() -> float:
        now = time.perf_counter()
        return now + AHEAD_S[machine] + DRIFT[machine] * (now - started)

    shared, times = SharedClock(group, clock, f"machine {machine}"), []
    for _ in range(5):
        time.sleep(0.1)
        times.append((time.perf_counter(), clock()))
    shared.measure()
    common = shared.common(torch.tensor([own for _, own in times], dtype=torch.float64))
    wrong = [abs(float(found) - (true + AHEAD_S[0])) for found, (true, _) in zip(common, times, strict=True)]
    everyone = group.all_gather_object(max(wrong))
    if group.rank == 0:
        print(json.dumps(everyone), flush=True)
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
