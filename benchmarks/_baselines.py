"""The baselines of an application, fitted to a preset's dataset without a training."""

from __future__ import annotations

from pathlib import Path

import _common  # noqa: F401 - else staging.py beside this file would hide the package staging

from hpcbench.application import Application
from hpcbench.config.resolve import resolve

Baselines = dict[str, dict[str, float]]


def fitted(application: Application, preset: str, data: Path, samples: int | None = None) -> Baselines:
    """Metrics by baseline, as `hpcbench train` computes them on the first ``samples`` samples of the dataset ``data``.

    ``None`` takes all samples.
    """
    overrides = {"data.root": str(data)} | ({} if samples is None else {"data.train_samples": str(samples)})
    found: Baselines = application.module("baselines").baselines(resolve(application, preset, overrides=overrides))
    return found
