"""epochs(B) that a scaling study takes from its convergence study, for the optimizer of each variant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpcbench.config.schema import RunConfig
from hpcbench.results.units import integer, score
from hpcbench.study.epoch_run import LEAST_BATCHES
from hpcbench.study.fit import EpochFit
from hpcbench.study.preset_values import study_config
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.jobs import without_staging
from hpcbench.study.scaling.joined import NONE, read_convergence
from hpcbench.study.scaling.point_results import PointResult
from hpcbench.study.scaling.run_matrix import points, variant_settings
from staging.errors import InputError


def config_of(study: Scaling, variant: Mapping[str, str]) -> RunConfig:
    """The configuration of the runs of a variant, whose settings are given, without what depends on the size or stages.

    The page takes nothing from staging, whose settings need the folder that only the job of a run knows.
    """
    given = {**study.settings, **variant}
    settings = {key: value for key, value in given.items() if not key.startswith("staging.")}
    settings |= without_staging(study.files)
    return study_config(study, settings, study.files)


def epochs_of(study: Scaling, folder: Path, optimizer: str) -> EpochFit:
    """epochs(B) from the convergence study that belongs to the study in ``folder``.

    Raises ``InputError`` if that does not exist, is of another application, or has no such fit.
    """
    from hpcbench.study import convergence
    from hpcbench.study.page import fit_series
    from hpcbench.study.results import read_rows as read_convergence_rows

    joined = read_convergence(study, folder)
    assert joined is not None
    convergence_study, place = joined
    rows = read_convergence_rows(convergence_study, convergence.read_statuses(convergence_study, place))
    every = fit_series(rows)
    series = {label: fit for label, fit in every.items() if math.isfinite(fit.e_min)}
    if optimizer not in series:
        known = ", ".join(series) or "none"
        few = f"it takes {LEAST_BATCHES} batches at which runs reached the target"
        why = every[optimizer].note.rstrip(".") if optimizer in every else few
        raise InputError(
            f"the convergence study {place.path} has no fit of epochs(B) for optimizer {optimizer} ({why}); it has "
            f"{known}; name another with --convergence DIR, or report without: --convergence {NONE}"
        )
    return series[optimizer]


def other_training_notes(
    study: Scaling, folder: Path, rows: Sequence[PointResult], configs: Iterable[RunConfig]
) -> list[str]:  # fmt: skip
    """How the trainings of the convergence study differ from those of the study in ``folder``: a note for its page.

    ``configs`` are those of its variants. Epochs to the target depend on all that is compared.
    """
    from hpcbench.study.convergence import read_statuses

    joined = read_convergence(study, folder)
    assert joined is not None
    states = read_statuses(*joined).values()
    summaries = [state.summary for state in states if state.done and state.summary is not None]
    samples = [s.train_samples for s in summaries], [row.train_samples for row in rows]
    targets = [s.target for s in summaries], [config.train.target for config in configs]
    compared = [
        ("preset", [{joined[0].preset}, {study.preset}]),
        ("training samples", [{integer(count) for count in counts if count} for counts in samples]),
        ("target", [{score(target) for target in each if target is not None} for each in targets]),
    ]
    differing = [
        f"{name} {', '.join(sorted(there))} there, {', '.join(sorted(here))} here"
        for name, (there, here) in compared
        if there and here and there != here
    ]
    if not differing:
        return []
    return [f"The epochs are of another training ({'; '.join(differing)}), which may take more of them, or fewer."]


def lacking_fits(study: Scaling, folder: Path) -> list[str]:
    """For each optimizer without a fit of epochs(B) in the convergence study, if there is one, what is lacking and why.

    The convergence study may be under way still, and have the fit when the runs of this study have ended.
    """
    if study.convergence is None:
        return []
    variants = {point.variant for point in points(study)}
    lacking = []
    for optimizer in sorted({config_of(study, variant_settings(variant)).optim.name for variant in variants}):
        try:
            epochs_of(study, folder, optimizer)
        except InputError as error:
            lacking.append(str(error))
    return lacking
