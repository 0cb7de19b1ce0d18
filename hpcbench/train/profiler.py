"""Traces a few steps with torch's profiler, for chrome://tracing or Perfetto."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import torch

from hpcbench.config.schema import RunConfig
from hpcbench.train.measurement import Measurement, ObserverInputs
from hpcbench.train.observers import StepInfo, StepObserver

FILE = "trace.json.gz"


def unused_path(folder: Path) -> Path:
    """``trace.json.gz`` in ``folder``; for later attempts of a run, ``trace-2.json.gz`` and so on."""
    names = (FILE if number == 1 else f"trace-{number}.json.gz" for number in count(1))
    return next(path for name in names if not (path := folder / name).exists())


class StepProfiler(StepObserver):
    """Traces ``steps`` optimizer steps of this rank after the first ``skip`` of the process, into ``path``."""

    def __init__(self, path: Path, device: torch.device, skip: int, steps: int) -> None:
        self.path, self.skip, self.left = path, skip, steps
        activities = [torch.profiler.ProfilerActivity.CPU]
        kind = {"cuda": "CUDA", "xpu": "XPU"}.get(device.type)
        if kind is not None:
            activities.append(getattr(torch.profiler.ProfilerActivity, kind))
        self.activities = activities
        self.profile: Any = None

    def before_backward(self, step: int) -> None:
        """Start the trace before the first pass that it covers."""
        if self.profile is None and self.skip <= 0 and self.left > 0:
            self.profile = torch.profiler.profile(activities=self.activities, record_shapes=True)
            self.profile.start()

    def after_step(self, info: StepInfo) -> None:
        """Count the step, and write the trace after the last."""
        if self.profile is None:
            self.skip -= 1
            return
        self.left -= 1
        if self.left == 0:
            self.close()

    def close(self) -> None:
        """Write what was traced, even if the run ended early."""
        profile, self.profile, self.left = self.profile, None, 0
        if profile is not None:
            profile.stop()
            profile.export_chrome_trace(str(self.path))


def of_run(parts: ObserverInputs) -> StepProfiler:
    """The observer of a run, which writes a separate file for each attempt that traces."""
    run, measure = parts.run, parts.run.config.measure
    return StepProfiler(unused_path(run.folder.path), run.device, measure.warmup_steps, measure.profile_steps)


def steps_traced(config: RunConfig) -> int:
    """How many steps are traced, which takes longer."""
    return config.measure.profile_steps


MEASUREMENT = Measurement(StepProfiler, steps_traced, of_run, only_first=True, slowed_steps=steps_traced)
