"""Time steps of an application over an emulated network, which sends one message after another, on all ranks.

``mpiexec -n 2 python _interconnect_steps.py APP PRESET BATCH BUCKET_BYTES REPEATS STEPS NETWORKS`` prints the seconds
of a step as JSON. NETWORKS is a JSON object: for each name the latency of a message in seconds and the rate in bytes
per second. The networks alternate, with and without overlap; a value is the median of STEPS steps of the slowest rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import _common  # noqa: F401  (else staging.py beside this file would hide the package staging)
import torch.distributed as dist
from torch import Tensor

from hpcbench.application import find_application
from hpcbench.characterisation.steps import FirstRanks, Step, assembled
from hpcbench.config.resolve import resolve
from hpcbench.measure.phases import Phases
from hpcbench.parallel.exposed import UNRECORDED
from hpcbench.parallel.gradients import GradientReducer, bucket_sizes
from hpcbench.parallel.group import Group, Work
from hpcbench.train.build import build_model
from hpcbench.train.ranks import Ranks, connect_ranks
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import detect


@dataclass
class Network:
    """A link that is busy until ``free``: each message takes latency + bytes / rate, after those before it."""

    latency_s: float = 0.0
    bytes_per_s: float = float("inf")
    free: float = 0.0

    def arrival(self, now: float, size: int) -> float:
        """When a message that is sent ``now`` is there."""
        self.free = max(now, self.free) + self.latency_s + size / self.bytes_per_s
        return self.free


@dataclass
class Arriving:
    """A message that is there when the real one is, but not before ``arrival``."""

    work: Work | None
    arrival: float
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> None:
        """Return when it is there."""
        if self.work is not None:
            self.work.wait()
        left = self.arrival - self.clock()
        if left > 0:
            self.sleep(left)


class EmulatedRanks(FirstRanks):
    """All ranks, with gradients that travel over an emulated network."""

    def __init__(self, group: Group, network: Network) -> None:
        super().__init__(group, group.world_size, dist.group.WORLD)
        self.network = network

    def all_reduce_sum_async(self, tensor: Tensor) -> Arriving:
        """See ``Group``."""
        arrival = self.network.arrival(time.perf_counter(), tensor.nbytes)
        return Arriving(super().all_reduce_sum_async(tensor), arrival)


def emulated_step(name: str, preset: str, batch: str, bucket_bytes: str, ranks: Ranks, network: Network) -> Step:
    """A step of all ranks over the network."""
    application = find_application(name)
    config = resolve(application, preset, overrides=settings(batch, bucket_bytes))
    model = build_model(application, config, ranks.device, 0)
    few = EmulatedRanks(ranks.group, network)
    reducer = GradientReducer(model.parameters(), few, config.parallel.bucket_bytes, UNRECORDED)
    return assembled(application, config, ranks, model, reducer, None, Phases(PhaseTimer(), ranks.device))


def settings(batch: str, bucket_bytes: str) -> dict[str, str]:
    """One thread, float32, and small messages."""
    return {"parallel.threads": "1", "train.precision": "32-true", "train.local_batch_size": batch,
            "parallel.bucket_bytes": bucket_bytes}  # fmt: skip


def timed(step: Step, group: Group, steps: int) -> float:
    """The median over ``steps`` of the slowest rank's seconds, after a step that is not timed."""
    seconds = []
    for _ in range(steps + 1):
        group.barrier()
        started = time.perf_counter()
        step()
        seconds.append(group.max(time.perf_counter() - started))
    return median(seconds[1:])


def main() -> None:
    name, preset, batch, bucket_bytes, repeats, steps, networks = sys.argv[1:]
    kinds: dict[str, tuple[float, float]] = json.loads(networks)
    application, network = find_application(name), Network()
    base = resolve(application, preset, overrides=settings(batch, bucket_bytes))
    taken: dict[str, dict[str, list[float]]] = {way: {kind: [] for kind in kinds} for way in ("on", "off")}
    with connect_ranks(detect(os.environ), base) as ranks:
        step = emulated_step(name, preset, batch, bucket_bytes, ranks, network)
        sizes = bucket_sizes(step.model.parameters(), base.parallel.bucket_bytes)
        for _ in range(int(repeats)):
            for way, times in taken.items():
                step.config.parallel.overlap = way == "on"
                for kind, (network.latency_s, network.bytes_per_s) in kinds.items():
                    times[kind].append(timed(step, ranks.group, int(steps)))
        if ranks.launch.rank == 0:
            print(json.dumps({"messages": len(sizes), "bytes": sum(sizes), "taken_s": taken}))


if __name__ == "__main__":
    main()
