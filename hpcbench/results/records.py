"""Runs as records: a run folder read back, and many of them as one DataFrame, on which comparison is arithmetic."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hpcbench.phase_names import PHASES
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from staging.errors import DataError
from staging.formats.regular import read_text, refuse_special


@dataclass(frozen=True)
class Run:
    """One run that ended: its folder, its summary, and its tables by epoch and by optimizer step."""

    folder: RunFolder
    summary: Summary
    epochs: pd.DataFrame
    steps: pd.DataFrame

    @property
    def reached(self) -> bool:
        """Whether training reached a target; a run without one also ends in success, and reaches none."""
        return self.summary.status == "success" and self.summary.target is not None

    @property
    def within_epochs(self) -> bool:
        """Whether the run was evaluated within epochs, too."""
        return not self.epochs.empty and bool((self.epochs["epoch"] % 1 != 0).any())

    @property
    def quality(self) -> float | None:
        """The metric at the end of a run that succeeded; for one that missed its target or was aborted, the best."""
        last = self.summary.metrics.get(self.summary.metric)
        return last if self.summary.status == "success" and last is not None else self.summary.best

    @property
    def lower_is_better(self) -> bool:
        """The direction of the metric."""
        return self.summary.better == "lower"

    def baseline_scores(self) -> dict[str, float]:
        """The run's metric for each baseline that has it, strongest first."""
        scores = {name: metrics.get(self.summary.metric) for name, metrics in self.summary.baselines.items()}
        known = {name: value for name, value in scores.items() if value is not None and math.isfinite(value)}
        return dict(sorted(known.items(), key=lambda item: item[1], reverse=not self.lower_is_better))

    def beats(self, score: float) -> bool:
        """Whether the run's quality is better than ``score``."""
        if self.quality is None:
            return False
        return self.quality < score if self.lower_is_better else self.quality > score

    def rank_rows(self) -> list[dict[str, Any]]:
        """Rows of ``ranks.csv`` with ``None`` for empty cells; none where the ranks have not reported their figures."""
        if not self.folder.ranks.exists():
            return []
        rows = self.folder.read_ranks().to_dict("records")
        return [{str(key): None if pd.isna(value) else value for key, value in row.items()} for row in rows]

    def phase_seconds(self) -> dict[str, float]:
        """Seconds of every phase on rank 0, in the order in which phases are shown; 0 for one that did not occur."""
        seconds = self.summary.phases_s
        return {name: float(seconds.get(name) or 0.0) for name in (*PHASES, *(n for n in seconds if n not in PHASES))}


def read_summary(path: str | Path) -> Run:
    """The run in the folder ``path`` without its tables.

    Raises ``InputError`` where ``path`` is not the folder of a run that ended, ``DataError`` for a damaged summary.
    """
    folder = RunFolder.open(path, needs=("summary.json",))
    return Run(folder, folder.read_summary(), pd.DataFrame(), pd.DataFrame())


def read_run(path: str | Path) -> Run:
    """The run in the folder ``path``; a table is empty where the run ended before its first row."""
    folder, summary = (run := read_summary(path)).folder, run.summary
    epochs = folder.read_epochs() if folder.epochs.exists() else pd.DataFrame()
    steps = folder.read_steps() if folder.steps.exists() else pd.DataFrame()
    return Run(folder, summary, epochs, steps)


def record(run: Run) -> dict[str, Any]:
    """The run as one flat record.

    ``phases_s.compute`` becomes ``phase_compute_s``, ``metrics.mae`` ``metric_mae`` and ``baselines.mean.mae``
    ``baseline_mean_mae``. Derived: ``run`` (the folder), ``quality``, ``baseline`` and ``baseline_quality`` (the
    strongest baseline and its score) and ``beats_baselines`` (all of them).
    """
    flat = asdict(run.summary)
    flat |= {f"phase_{name}_s": seconds for name, seconds in flat.pop("phases_s").items()}
    flat |= {f"metric_{name}": value for name, value in flat.pop("metrics").items()}
    for name, metrics in flat.pop("baselines").items():
        flat |= {f"baseline_{name}_{metric}": value for metric, value in metrics.items()}
    scores = run.baseline_scores()
    strongest, score = next(iter(scores.items()), (None, None))
    beaten = all(run.beats(value) for value in scores.values()) if scores else None
    derived = {"quality": run.quality, "baseline": strongest, "baseline_quality": score, "beats_baselines": beaten}
    return {"run": str(run.folder.path)} | flat | derived


def load_runs(paths: Iterable[str | Path]) -> pd.DataFrame:
    """One record (row) per run folder, in the order given."""
    return pd.DataFrame([record(read_summary(path)) for path in paths])


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``, empty where there is none. Raises ``DataError`` for a damaged file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise DataError(path, f"is not readable as JSON ({error})", "delete it to report without it") from error
    if not isinstance(value, dict):
        raise DataError(path, "is not a JSON object", "delete it to report without it")
    return value


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file. Raises ``DataError`` where it is damaged or lacks one of ``names``."""
    if path.exists():  # else loading it raises the error
        refuse_special(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(path, f"cannot be read ({error})", "delete it to report without its plots") from error
    if missing := [name for name in names if name not in arrays]:
        raise DataError(path, f"lacks {', '.join(missing)}", "delete it to report without its plots")
    return arrays
