"""Logs to check: of the real logger, driven without training, and of published rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure.mllog import RunLog
from hpcbench.optim.lr_scaling import scale_to_batch

LOGS = Path(__file__).parents[2] / "data" / "logs"
COSMOFLOW, DEEPCAM, OLD = (
    LOGS / f"{name}.txt" for name in ("v1.0-nvidia-cosmoflow", "v1.0-nvidia-deepcam", "v0.7-fujitsu-deepcam")
)
PUBLISHED = {"cosmoflow": (524288, 65536, 512), "deepcam": (121266, 15158, 128)}
"""Training and validation samples of the closed division, and the batch of the preset."""
TO_TARGET = {"cosmoflow": (0.4, 0.2, 0.123), "deepcam": (0.5, 0.7, 0.8201)}


def drive(
    path: Path,
    name: str,
    preset: str = "mlperf",
    scores: tuple[float, ...] = (),
    staging: str = "timed",
    target: float | None = None,
    batch: int | None = None,
    **overrides: str,
) -> Path:
    """Write the log of a run with the real logger, tasks and presets, and a metric that follows ``scores``."""
    application = find_application(name)
    config = resolve(application, preset, None, {key.replace("__", "."): value for key, value in overrides.items()})
    task = application.module("task").build_task(config)
    train, evaluation, usual = PUBLISHED[name]
    batch = usual if batch is None else batch
    scale_to_batch(config, batch)
    log = RunLog(path)
    log.cache_clear("dropped the dataset's pages from the page cache of each node")
    log.init_start()
    log.submission(config, application)
    log.geometry(batch, 16, 4, 64)
    log.samples(train, evaluation)
    log.seed(3141592653)
    log.quality_target(config.train.target if target is None else target)
    log.hyperparameters(task.log_keys(steps_per_epoch=-(-train // batch)))
    if staging == "before":
        log.staging_start()
        log.staging_stop(12.5)
    log.init_stop()
    log.run_start()
    if staging == "timed":
        log.staging_start()
        log.staging_stop(12.5)
    for epoch, score in enumerate(scores, 1):
        log.epoch_start(epoch)
        log.event("learning_rate", 0.001, epoch_num=epoch)
        log.event("throughput", 1234.5, epoch_num=epoch)
        log.eval_start(epoch)
        log.eval_stop(epoch)
        log.quality(task.metric_key, score, epoch)
        log.epoch_stop(epoch)
    log.run_stop("success")
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The entries of a log."""
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
