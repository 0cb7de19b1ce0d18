"""The published training recipes as data, with the learning rate where it starts, peaks and drops; imports no torch.

Batch, logged rate, warm-up and drops are those of the reference convergence points of MLPerf HPC (``rcp_checker`` of
the ``mlperf_logging`` package) and of the reference implementations (mlcommons/hpc). A convergence point for CosmoFlow
gives ``opt_base_learning_rate`` and a warm-up factor, but not whether the factor lies below or above that rate:
``logged`` says which it is, judging by the runs submitted at the same batch (MLPerf HPC results, rounds 1.0 to 3.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcbench.config.schema import ScheduleConfig


@dataclass(frozen=True)
class Recipe:
    """One row of the table in docs/schedules.md. ``drops`` maps where the rate drops to the new fraction of the peak.

    ``warmup`` and ``drops`` are in ``unit``; drops in epochs count from the start, in steps from the end of warm-up.
    ``point`` names the rules version and entry of the reference convergence point, ``epochs`` its olympic mean.
    ``t_max`` above 0 means a cosine instead of drops. ``logged`` is what the logged base rate means.
    """

    application: Literal["cosmoflow", "deepcam"]
    source: str
    global_batch_size: int
    optimizer: Literal["SGD", "LAMB"]
    start: float
    peak: float
    warmup: int
    drops: tuple[tuple[int, float], ...] = ()
    t_max: int = 0
    unit: Literal["epoch", "step"] = "epoch"
    logged: Literal["peak", "start", "both"] = "peak"
    dropout: float = 0.0
    weight_decay: float = 0.0
    point: tuple[str, str] | None = None
    epochs: float | None = None

    @property
    def preset(self) -> str:
        """The preset that follows the recipe."""
        kind = "reference" if self.point is None else "mlperf"
        version = "-v1.0" if self.source == "RCP 1.0" else ""
        return f"{kind}-{self.global_batch_size}{version}"

    def schedule(self) -> ScheduleConfig:
        """The recipe as a schedule; its peak goes into ``optim.lr``."""
        return ScheduleConfig(
            unit=self.unit,
            shape="cosine" if self.t_max else "multistep",
            warmup=self.warmup,
            warmup_start_lr=self.start if self.warmup else 0.0,
            milestones=[at for at, _ in self.drops],
            factors=[factor for _, factor in self.drops],
            t_max=self.t_max,
        )


def _cosmoflow(
    batch: int,
    start: float,
    peak: float,
    warmup: int,
    drops: tuple[tuple[int, float], ...],
    logged: Literal["peak", "start", "both"],
    dropout: float,
    weight_decay: float,
    epochs: float,
) -> Recipe:
    return Recipe(
        application="cosmoflow", source="RCP 3.0", global_batch_size=batch, optimizer="SGD", start=start, peak=peak,
        warmup=warmup, drops=drops, logged=logged, dropout=dropout, weight_decay=weight_decay, epochs=epochs,
        point=("hpc_3.0.0", f"cosmoflow_ref_{batch}"),
    )  # fmt: skip


def _deepcam(
    batch: int, peak: float, warmup: int, drops: tuple[int, ...], epochs: float, rules: str = "3.0", t_max: int = 0
) -> Recipe:
    return Recipe(
        application="deepcam", source=f"RCP {rules}", global_batch_size=batch, optimizer="LAMB", peak=peak,
        epochs=epochs, start=0.0 if warmup else peak, warmup=warmup, unit="step", t_max=t_max, weight_decay=0.01,
        drops=tuple((at, 0.1 ** (number + 1)) for number, at in enumerate(drops)),
        logged="peak" if warmup else "both", point=(f"hpc_{rules}.0", f"deepcam_ref_{batch}"),
    )  # fmt: skip


def _reference(batch: int, drops: tuple[tuple[int, float], ...]) -> Recipe:
    return Recipe(
        application="cosmoflow", source="reference code", global_batch_size=batch, optimizer="SGD", start=0.001,
        peak=0.001 * batch / 64, warmup=4, drops=drops, logged="peak" if batch > 64 else "both", dropout=0.5,
    )  # fmt: skip


LATE_DROPS = ((19, 0.5), (21, 0.25), (22, 0.125), (23, 0.0625))

RECIPES = (
    _cosmoflow(32, 0.001, 0.004, 2, ((4, 0.25), (6, 0.0625)), "start", 0.5, 0.0, 7.87),
    _cosmoflow(64, 0.001, 0.001, 4, ((16, 0.25), (32, 0.125)), "both", 0.0, 0.01, 18.28),
    _cosmoflow(128, 0.001, 0.004, 4, ((16, 0.25), (32, 0.125)), "peak", 0.5, 0.0, 17.89),
    _cosmoflow(512, 0.006, 0.024, 6, LATE_DROPS, "start", 0.0, 0.01, 22.83),
    _cosmoflow(1024, 0.012, 0.012, 0, ((32, 0.25), (64, 0.125)), "both", 0.5, 0.0, 40.06),
    _reference(64, ((16, 0.25), (32, 0.125))),
    _reference(512, ((32, 0.25), (64, 0.125))),
    _deepcam(128, 0.001, 0, (8192, 16384), 9.0, rules="1.0"),
    _deepcam(128, 0.00155, 0, (), 6.94, t_max=9000),
    _deepcam(256, 0.002, 0, (4096, 8192), 9.0),
    _deepcam(512, 0.004, 100, (2048, 4096), 11.05),
    _deepcam(1024, 0.004, 200, (1100, 4096), 13.0),
    _deepcam(2048, 0.0055, 400, (800,), 22.63),
)  # fmt: skip

HEADER = (
    "| application | source | preset | batch | optimizer | start | peak | warm-up | drops (fraction of the peak) "
    "| logged base rate | dropout | weight decay | epochs |\n"
    "|---|---|---|---:|---|---:|---:|---:|---|---:|---:|---:|---:|\n"
)


def recipe_table() -> str:
    """The table of docs/schedules.md, in Markdown."""
    return HEADER + "".join(_row(recipe) for recipe in RECIPES)


def _row(recipe: Recipe) -> str:
    units = f"{recipe.unit}s"
    drops = ", ".join(f"{factor:g} at {at}" for at, factor in recipe.drops)
    if recipe.t_max:
        drops = f"cosine, t_max {recipe.t_max} {units}"
    rate = recipe.start if recipe.logged == "start" else recipe.peak
    meaning = {"peak": "the peak", "start": "the start", "both": "constant until the first drop"}[recipe.logged]
    cells = [
        recipe.application, recipe.source, f"`{recipe.preset}`", str(recipe.global_batch_size), recipe.optimizer,
        f"{recipe.start:g}", f"{recipe.peak:g}", f"{recipe.warmup} {units}" if recipe.warmup else "none", drops,
        f"{rate:g}: {meaning}", f"{recipe.dropout:g}", f"{recipe.weight_decay:g}",
        "" if recipe.epochs is None else f"{recipe.epochs:.2f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"
