"""How long one whole training is on each size of each variant, in epochs, samples and evaluations.

A scaling study usually measures a number of steps. The length of a training comes from a convergence study, from
trainings to the target, or otherwise is the most that the preset allows. Every variant has its own: its settings may
change the training samples, the epochs, or the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.config.schema import RunConfig
from hpcbench.results.units import counted
from hpcbench.study.scaling.point_results import PointResult
from hpcbench.study.scaling.time_to_solution import Solution

CONVERGENCE = "epochs to target by the convergence study"
MEASURED = "the trainings to the target that were measured"


@dataclass(frozen=True)
class Training:
    """One training of one instance."""

    epochs: float
    samples: float
    """Training samples over all epochs."""
    evaluations: float
    basis: str = ""
    """What the length is based on."""


Size = tuple[str, int]
"""Variant and nodes."""


def trainings(
    rows: Mapping[str, Sequence[PointResult]], solutions: Mapping[str, Sequence[Solution]],
    configs: Mapping[str, RunConfig], *, to_target: bool,
) -> dict[Size, Training]:  # fmt: skip
    """The length of a training on each size that has figures, variant by variant.

    ``solutions`` has the times to solution if there is a convergence study, ``configs`` the configuration of each
    variant's runs. ``to_target``: the runs of the study are whole trainings, which count if all of a variant reached
    the target.
    """
    lengths: dict[Size, Training] = {}
    for variant, members in rows.items():
        config = configs[variant].train
        measured = to_target and all(_reached(row) for row in members)
        by_study = {solution.nodes: solution.epochs for solution in solutions.get(variant, ())}
        for row in members:
            in_epoch = row.train_samples
            if by_study:
                epochs, basis = by_study[row.nodes], CONVERGENCE
            elif measured:
                epochs, basis = (row.middle("samples_per_model") or 0.0) / max(in_epoch, 1), MEASURED
            else:
                epochs = float(config.max_epochs)
                basis = f"{counted(config.max_epochs, 'epoch')}, the most that the preset trains: an upper bound"
            evaluations = epochs * config.evaluations_per_epoch
            lengths[variant, row.nodes] = Training(epochs, epochs * in_epoch, evaluations, basis)
    return lengths


def _reached(row: PointResult) -> bool:
    """Whether every training of the row reached the target."""
    return all(run.missed == 0 and run.samples_per_model is not None for run in row.runs)
