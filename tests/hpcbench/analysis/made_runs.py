"""Records of runs made by arithmetic, for tests of the analysis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpcbench.analysis.entry_runs import EntryRuns, entries_of_runs
from hpcbench.mlperf.run_record import RunRecord

RUN = RunRecord(
    path="v1.0/ORG/results/box/strong/deepcam/result_0.txt", origin="published", round="v1.0", organization="ORG",
    system="box", application="deepcam", division="closed", mode="time to train", nodes=2, accelerators=8,
    accelerator="NVIDIA A100-SXM4-40GB", global_batch_size=16, train_samples=1000, validation_samples=100,
    status="success", epochs=4.0, quality=0.82, start_unix_s=0.0, time_to_train_s=100.0, staging_s=10.0,
    epochs_s=[20.0, 15.0, 15.0, 15.0], evaluations_s=[6.0, 5.0, 5.0, 5.0], rest_s=4.0,
)  # fmt: skip
"""100 s: 10 of staging, 60 and 20 of steady training and evaluation, 6 more of the first, 4 of the rest."""


def run(number: int = 0, seconds: float | None = None, **changes: Any) -> RunRecord:
    """A run; ``seconds`` to train, of which those beyond 100 are the rest's."""
    time = RUN.time_to_train_s if seconds is None else seconds
    path = RUN.path.replace("result_0", f"result_{number}").replace("box", changes.get("system", "box"))
    made = {"path": path, "seed": number, "time_to_train_s": time, "start_unix_s": 1000.0 * number}
    made |= {"quality": 0.82 + number / 1000, "notes": [], "qualities": []}
    return replace(RUN, **(made | changes))


def entry(*runs: RunRecord) -> EntryRuns:
    """The entry of runs that are one."""
    (made,) = entries_of_runs(runs)
    return made
