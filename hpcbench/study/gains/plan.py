"""The runs of a gains study: which are due, in what order, and with what settings.

A repeat is a block: the baseline and every option once, in its own random order (a randomized complete block design),
and all with the same seed. So a machine that gets slower or faster over time favours none of them, and the runs of a
repeat see the same samples in the same order, starting from the same weights. When all repeats are done, the options
that helped are run together, beside the baseline once more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.options import BASELINE, Option
from hpcbench.study.run_status import RunStatus, Statuses
from hpcbench.study.study_run import StudyRun

PLAIN_OPTION = Option(BASELINE, "", "plain baseline", {})
AGAIN = Option("baseline-again", "", "plain baseline, once more", {})
"""Runs beside the options that are tried together, which come later than those that are tried alone."""


@dataclass(frozen=True)
class PlannedRun:
    """One repeat of an option, or of the baseline."""

    option: Option
    repeat: int
    """Counted from 1; it is also the seed."""

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return f"{self.option.name}-r{self.repeat}"


def alone(study: Gains) -> list[PlannedRun]:
    """The baseline and every option alone, repeat by repeat, each repeat in its own order."""
    return [run for repeat in range(1, study.repeats + 1)
            for run in block((PLAIN_OPTION, *study.options), repeat, "alone")]  # fmt: skip


def together(study: Gains, option: Option) -> list[PlannedRun]:
    """The combined options that helped, and the baseline beside them, repeat by repeat."""
    return [run for repeat in range(1, study.repeats + 1) for run in block((AGAIN, option), repeat, "together")]


def block(options: Sequence[Option], repeat: int, stage: str) -> list[PlannedRun]:
    """A repeat of all options in random order, the same on every call."""
    order = list(options)
    random.Random(f"{stage} {repeat}").shuffle(order)  # noqa: S311 - not a secret
    return [PlannedRun(option, repeat) for option in order]


def due(runs: Sequence[PlannedRun], statuses: Statuses) -> list[PlannedRun]:
    """The runs to make. An option that failed once is not repeated, since it would fail in every repeat."""
    failed = {run.option.name for run in runs if status(statuses, run).status == "failed"}
    return [run for run in runs if status(statuses, run).status in ("absent", "interrupted")
            and run.option.name not in failed]  # fmt: skip


def status(statuses: Statuses, run: PlannedRun) -> RunStatus:
    """The status of a run, which may not have begun."""
    return statuses.get(run.name, RunStatus("absent"))


def study_run(study: Gains, run: PlannedRun) -> StudyRun:
    """The run as ``hpcbench train`` makes it."""
    return StudyRun.of(run.name, study.application, study.preset, run_settings(study, run), study.files)


def run_settings(study: Gains, run: PlannedRun) -> dict[str, str]:
    """Dotted settings of one run; what the study itself decides comes last."""
    ranks = run.option.ranks or study.ranks
    decided = {
        "train.seed": str(run.repeat), "train.max_steps": str(study.steps), "train.target": "null",
        "train.local_batch_size": str(study.global_batch_size // ranks), "train.accumulation": "1",
        "parallel.threads": str(max(1, study.cores // ranks)), "train.checkpoint_every": "0",
        "train.baselines": "false", "train.page": "false", "data.last_batch": "drop",
    }  # fmt: skip
    if ranks > 1:
        decided["parallel.devices"] = str(ranks)
    return {**study.settings, **run.option.settings, **decided}
