"""A launcher that writes the runs of gains studies by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.phase_names import STEP_PHASES
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.options import PLAIN, Machine, Shape, candidates
from hpcbench.study.gains.study import make_runs
from hpcbench.study.local_runs import Process
from hpcbench.study.run_slots import Slot
from hpcbench.study.run_status import RunStatus
from hpcbench.study.runner import ExecutionOptions
from tests.hpcbench.conftest import COSMOFLOW
from tests.hpcbench.study.conftest import Ended, settings_of

PROCESSOR = Machine(2, no_tf32="no GPU", no_graph="no GPU")
SHAPE = Shape(ranks=2, global_batch_size=8, gradient_bytes=4000, bucket_bytes=25 * 2**20)


@dataclass(frozen=True)
class Run:
    """What a made-up run comes to. An infinite quality diverges; without a time the process fails."""

    parts_ms: dict[str, float] = field(default_factory=lambda: {"compute": 80.0, "optimizer": 20.0})
    quality: float = 0.4
    mark: str = ""
    """Sets its losses apart from those of runs with another mark."""


Arithmetic = Callable[[dict[str, str]], Run]


class FakeLauncher:
    """Runs that end as soon as they start; ``started`` has the settings of each."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.started: list[dict[str, str]] = []

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Process:
        settings = settings_of(arguments)
        self.started.append(settings)
        run = self.arithmetic(settings)
        if not run.parts_ms:
            log.write_text("starting\nhpcbench: error: no compiler\n", encoding="utf-8")
            return Ended(1)
        write_run(Path(settings["run-dir"]), settings, run)
        return Ended(1 if math.isinf(run.quality) else 0)


def write_run(folder: Path, settings: dict[str, str], run: Run) -> None:
    """The folder of a run."""
    seed, steps = int(settings["train.seed"]), int(settings["train.max_steps"])
    ranks = int(settings.get("parallel.devices", 1))
    ended: dict[str, Any] = {"status": "success", "cause": "steps", "reason": f"{steps} steps"}
    if math.isinf(run.quality):
        ended = {"status": "aborted", "cause": "diverged", "reason": "the loss is nan at step 7"}
    RunFolder.create(folder).write_summary(
        Summary(**COSMOFLOW, preset="smoke", epochs=1, seed=seed, steps=steps, samples=8 * steps, device="a processor",
                phases_s={"init": 2.0}, metrics={"mae": run.quality}, started="2026-03-14T09:26:53+00:00", **ended)
    )  # fmt: skip
    (folder / "mllog.txt").write_text(":::MLLOG {}\n", encoding="utf-8")
    warm = steps - 5
    phases = {f"{name}_s": warm * run.parts_ms.get(name, 0.0) / 1000 for name in STEP_PHASES}
    wall = warm * sum(run.parts_ms.values()) / 1000
    row = {"node": "laptop-17", "threads": 1, "steps": warm, "samples": 8 * warm, "wall_s": wall, "cpu_s": wall,
           **phases}  # fmt: skip
    RunFolder(folder).write_ranks([{"rank": rank, **row} for rank in range(ranks)])
    loss = 0.3 + seed / 100 + (sum(run.mark.encode()) / 1e6)
    pd.DataFrame({"epoch": [1], "step": [steps], "train_loss": [loss], "mae": [run.quality]}).to_csv(
        folder / "epochs.csv", index=False
    )


def gains(only: Sequence[str] = (), **changes: Any) -> Gains:
    """A study of two cores; ``only`` are its options, unset all that a processor has."""
    options, missing = candidates(PROCESSOR, SHAPE)
    values: dict[str, Any] = {
        "application": "cosmoflow", "preset": "smoke", "cores": 2, "ranks": 2, "global_batch_size": 8, "steps": 20,
        "repeats": 6, "options": tuple(each for each in options if not only or each.name in only),
        "missing": tuple(missing), "settings": {**PLAIN, "data.root": "data/cosmoflow"},
        "commands": ("hpcbench study gains cosmoflow",),
    }  # fmt: skip
    return Gains(**(values | changes))


def make(study: Gains, folder: StudyFolder, launcher: FakeLauncher, **options: Any) -> dict[str, RunStatus]:
    """Make what is missing, and keep the definition as the command does."""
    for path in (folder.runs, folder.logs):
        path.mkdir(parents=True, exist_ok=True)
    folder.write(study.as_dict())
    silent: list[str] = []
    return make_runs(study, folder, ExecutionOptions(**options), launcher, [Slot()], silent.append)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """An empty folder of a study."""
    return StudyFolder(tmp_path / "study")
