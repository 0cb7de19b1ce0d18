"""A launcher that writes run folders by arithmetic, for studies of hundreds of runs in a moment."""

from __future__ import annotations

import math
import signal
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.study.convergence import make_runs, read_statuses
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder
from hpcbench.study.local_runs import Launcher, LocalRuns, Process
from hpcbench.study.rates import Rate
from hpcbench.study.run_slots import Slot
from hpcbench.study.run_status import RunStatus
from hpcbench.study.runner import ExecutionOptions
from hpcbench.train.noise_scale import COLUMNS
from tests.hpcbench.conftest import build

CODES = {"success": 0, "target_not_reached": 3, "aborted": 1}
MAX_EPOCHS = 24


class Ended:
    """A process that is over."""

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code

    def stop(self, number: signal.Signals) -> None:
        pass


def settings_of(arguments: Sequence[str]) -> dict[str, str]:
    """The dotted settings, and ``run-dir``, of a command line of `hpcbench train`."""
    pairs = [word.split("=", 1) for word in arguments if "=" in word] + list(pairwise(arguments))
    return {key.removeprefix("--"): value for key, value in pairs if key.startswith("--") and "=" not in key}


class FakeLauncher:
    """Runs that end as soon as they start, with what ``epochs_of(settings)`` says.

    A number of epochs above ``MAX_EPOCHS`` misses the target, an infinite one diverges, and not-a-number ends with
    exit code 1 and no word. ``started`` has the settings of every run that was started.
    """

    def __init__(self, epochs_of: Callable[[dict[str, str]], float]) -> None:
        self.epochs_of = epochs_of
        self.started: list[dict[str, str]] = []

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Process:
        settings = settings_of(arguments)
        self.started.append(settings | {"resume": str("--resume" in arguments)})
        epochs = self.epochs_of(settings)
        if math.isnan(epochs):
            log.write_text("starting\nhpcbench: error: no memory\n", encoding="utf-8")
            return Ended(1)
        return Ended(CODES[write_run(Path(settings["run-dir"]), settings, epochs)])


def make(
    study: Study, folder: StudyFolder, launcher: Launcher, at_once: int = 2, grace_s: float = 60.0, **options: Any
) -> dict[str, RunStatus]:
    """Make what is missing of a study in processes of ``launcher``."""
    executor = LocalRuns(folder, launcher, [Slot()] * at_once, grace_s)
    return make_runs(study, folder, ExecutionOptions(**options), executor, read_statuses(study, folder))


def write_run(folder: Path, settings: dict[str, str], epochs: float) -> str:
    """The folder of a run that took ``epochs``; returns its status."""
    local, ranks = int(settings["train.local_batch_size"]), int(settings.get("parallel.simulated_ranks", 1))
    batch, samples, whole = local * ranks, 4096, min(MAX_EPOCHS, round(epochs) if math.isfinite(epochs) else 1)
    status = "success" if epochs <= MAX_EPOCHS else "target_not_reached" if math.isfinite(epochs) else "aborted"
    reason = {"success": "", "target_not_reached": f"target mae 0.3 not reached in {MAX_EPOCHS} epochs"}.get(
        status, "the loss is nan at step 7; lower --optim.lr or start from another seed"
    )
    cause = {"success": "target", "target_not_reached": "epochs", "aborted": "diverged"}[status]
    steps, seed = -(-samples // batch) * whole, int(settings["train.seed"])
    there = len(list(Path(settings.get("data.root", "none"), "train").glob("*.tfrecord")))
    build(
        folder, epochs=whole, seed=seed, status=status, cause=cause, reason=reason,
        steps=steps,
        samples=samples * whole, epochs_to_target=whole if status == "success" else None, local_batch_size=local,
        global_batch_size=batch, train_samples=there or samples,
        time_to_solution_s=whole * 21.0, wall_s=whole * 21.0 + 6,
        best=0.3 if status == "success" else 0.35,
    )  # fmt: skip
    scatter(folder, settings, whole)
    if (batch, seed) != (128, 2):
        rows = [f"1,{step},{8 * step},4,8,1.0,{180.0 + 10 * seed},200" for step in range(1, 5)]
        (folder / "noise_scale.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n", encoding="utf-8")
    return status


def scatter(folder: Path, settings: dict[str, str], epochs: int) -> None:
    """Losses of the run's own; nodes that exchange their samples train in the first epoch as others do."""
    known = ("optim.name", "optim.lr", "train.seed", "parallel.simulated_ranks", "staging.placement")
    own = [settings.get(name, "") for name in (*known, *(["staging.reshuffle"] if epochs > 1 else []))]
    table = pd.read_csv(folder / "epochs.csv")
    table["train_loss"] += 1e-9 * zlib.crc32("/".join(own).encode())
    table.to_csv(folder / "epochs.csv", index=False)


@pytest.fixture
def study() -> Study:
    """Two batches, two optimizers, two seeds, no search."""
    return Study(
        application="cosmoflow", preset="smoke", batch_sizes=(8, 32), optimizers=("sgd", "adamw"), seeds=2,
        local_batch_size=4, rates={"sgd": Rate(0.01, 64), "adamw": Rate(0.001, 64, "sqrt")},
        settings={"data.root": "data/cosmoflow"}, commands=("hpcbench study convergence cosmoflow",),
    )  # fmt: skip
