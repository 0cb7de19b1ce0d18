"""What a process of a real run is given before it trains: a signal, and counters of a machine that it does not have."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from hpcbench.measure.device_use import DeviceUse, find_utilization
from hpcbench.measure.energy import find_energy_counters
from hpcbench.train import finalize, loop, rank_metrics
from hpcbench.train.loop import Trainer
from tests.hpcbench.measure.test_device_use import driver
from tests.hpcbench.train.test_rank_metrics import Counter

STEP_J, EVALUATION_J = 7, 100
"""What the node draws in each optimizer step, and in each evaluation."""
BEFORE_J, AFTER_J = 5000, 9000
"""What it draws beside the clock, which no page may show."""


def prepare(end: tuple[int, str] | None = None, busy: tuple[float, ...] = ()) -> None:
    """End the run by a signal after a step, as ``(step, name)``; with ``busy``, measure energy and the accelerator.

    ``busy`` are the percentages of each rank.
    """
    if end is not None:
        end_at(*end)
    if busy:
        count_energy(Path(tempfile.mkdtemp(prefix="counters-")))
        use_accelerator(busy[int(os.environ.get("RANK", "0"))])


def end_at(step: int, name: str) -> None:
    """Get the signal ``name`` after ``step``, when the checkpoint before it is on the disk."""
    finish = Trainer.finish_step

    def finish_step(trainer: Trainer, samples: int) -> None:
        finish(trainer, samples)
        if trainer.state.step == step:
            for writer in threading.enumerate():
                if writer.name == "checkpoint":
                    writer.join()
            os.kill(os.getpid(), signal.Signals[name])

    Trainer.finish_step = finish_step  # type: ignore[method-assign]


def count_energy(tree: Path) -> None:
    """The node's own counter in ``tree``, which goes on in steps and evaluations, and beside the clock."""
    counter = Counter(tree)

    def draw(joules: int, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def work(*words: Any) -> Any:
            counter.add(joules)
            return real(*words)

        setattr(owner, name, work)

    draw(STEP_J, Trainer, "finish_step")
    draw(EVALUATION_J, loop, "evaluate")
    draw(BEFORE_J, rank_metrics.EnergyMeter, "start")
    draw(AFTER_J, finalize, "finalize_complete")
    rank_metrics.find_energy_counters = lambda: find_energy_counters(tree)  # type: ignore[assignment]


def use_accelerator(percent: float) -> None:
    """An accelerator that is busy ``percent`` of the time by its driver; what is computed stays on the processor."""
    sys.modules["pynvml"] = driver([percent])  # type: ignore[assignment]
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(uuid="abc")  # type: ignore[assignment, misc]
    rank_metrics.find_utilization = lambda _: find_utilization(torch.device("cuda", 0))
    rank_metrics.DeviceUse = partial(DeviceUse, interval_s=0.02)  # type: ignore[assignment, misc]
    arrangement = finalize.arrangement
    finalize.arrangement = lambda run: arrangement(run) | {"device_type": "cuda"}
