"""The response table of a campaign: a row for each run, one for each size, and the reference results beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, median

from hpcbench.campaign.figures import SizeResult, samples_per_s_per_accelerator
from hpcbench.campaign.judged_runs import CampaignRun
from hpcbench.campaign.rules import Campaign, Column, Reference, Scenario
from hpcbench.campaign.statistic import over_runs
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED

Cell = str | int | float | bool | None
TITLES: Mapping[Column, str] = {
    "category": "run type", "scenario": "scenario", "system": "system", "nodes": "nodes", "replicate": "replicate",
    "accelerators_per_node": "acc. per node", "accelerators": "accelerators", "local_batch": "local batch",
    "global_batch": "global batch", "precision": "precision", "staged": "staged", "scheduler": "scheduler",
    "start_rate": "start rate", "optimizer": "optimizer", "seconds_per_step": "s per step",
    "minutes_per_epoch": "min per epoch", "seconds": "seconds", "minutes": "minutes", "models": "models",
    "epochs": "epochs", "quality": "quality", "seed": "seed",
    "samples_per_s_per_accelerator": "samples/s per acc.", "valid": "valid",
}  # fmt: skip
SHORT: Mapping[Column, str] = {
    "replicate": "repl.", "accelerators_per_node": "acc./node", "accelerators": "acc.", "local_batch": "local",
    "global_batch": "batch", "scheduler": "sched.", "optimizer": "opt.", "epochs": "ep.", "start_rate": "rate",
    "seconds_per_step": "s/step", "minutes_per_epoch": "min/ep.", "minutes": "min",
    "samples_per_s_per_accelerator": "samples/s",
}  # fmt: skip
"""Titles for lines of 100 columns."""
FIGURES: Mapping[str, Column] = {
    "seconds_per_step": "seconds_per_step", "seconds_of_epochs": "seconds", "minutes_to_quality": "minutes",
    "minutes_of_all": "minutes",
}  # fmt: skip
"""The column of each metric."""


@dataclass(frozen=True)
class ResponseRow:
    """One row: for a run, for all runs of a size together, or for a published reference."""

    kind: str
    """``run``, ``result`` or ``reference``."""
    cells: Mapping[Column, Cell] = field(default_factory=dict)

    def text(self, column: Column) -> str:
        """A cell for people."""
        value = self.cells.get(column)
        if column == "replicate" and self.kind == "result":
            return str(value or units.MISSING)
        if column == "start_rate" and isinstance(value, float):
            return f"{value:g}"
        return str(value) if column == "seed" and value is not None else cell_text(value)


def cell_text(value: Cell) -> str:
    """A value for people."""
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return units.significant(value, 4) if value != round(value) else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value


def rows_of(scenario: Scenario, results: Sequence[SizeResult]) -> list[ResponseRow]:
    """All rows of a scenario: its sizes with their runs, then the references."""
    rows: list[ResponseRow] = []
    for result in results:
        rows += [row_of_run(result, run) for run in result.runs]
        rows.append(row_of_size(result))
    return rows + rows_of_references(scenario)


def row_of_run(result: SizeResult, run: CampaignRun) -> ResponseRow:
    """The row of a run."""
    scenario, summary, record = result.scenario, run.summary, run.record
    epochs = record.epochs if summary.epochs_to_target is None else summary.epochs_to_target
    rate = None if run.value is None else samples_per_s_per_accelerator(
        scenario.metric, run.value, run.accelerators, summary.global_batch_size, summary.train_samples, epochs
    )  # fmt: skip
    training = record.epochs_s
    cells: dict[Column, Cell] = {
        **size_cells(result, run), "nodes": run.nodes, "replicate": run.number, "accelerators": run.accelerators,
        "epochs": epochs if epochs is not None else summary.epochs, "quality": summary.best, "seed": summary.seed,
        "minutes_per_epoch": median(training) / 60 if training else None,
        "samples_per_s_per_accelerator": rate, "valid": "yes" if run.valid else "no", "models": None,
        FIGURES[scenario.metric.what]: run.value,
    }  # fmt: skip
    return ResponseRow("run", cells)


def size_cells(result: SizeResult, run: CampaignRun) -> dict[Column, Cell]:
    """What all runs of a size have in common."""
    summary, config = run.summary, run.config
    return {
        "category": result.category.name, "scenario": result.scenario.name,
        "system": run.record.system or summary.device,
        "accelerators_per_node": summary.world_size // run.nodes, "local_batch": summary.local_batch_size,
        "global_batch": summary.global_batch_size, "precision": summary.precision,
        "staged": "yes" if config.staging.destination else "no", "scheduler": config.schedule.shape,
        "start_rate": config.optim.lr, "optimizer": config.optim.name,
    }  # fmt: skip


def row_of_size(result: SizeResult) -> ResponseRow:
    """The row of all runs of a size together: the figure that the campaign asks for."""
    scenario, valid = result.scenario, [run for run in result.runs if run.valid]
    shared: dict[Column, Cell] = size_cells(result, result.runs[0]) if result.runs else {
        "category": result.category.name, "scenario": scenario.name,
    }  # fmt: skip
    counted = epochs_of_size(result)
    value, measured = (
        figure if figure is not None and isfinite(figure) else None for figure in (result.value, result.measured)
    )
    first = result.runs[0].summary if result.runs else None
    rate = None if value is None or measured is None or first is None else samples_per_s_per_accelerator(
        scenario.metric, measured, result.accelerators, first.global_batch_size, first.train_samples, counted
    )  # fmt: skip
    minutes = [median(run.record.epochs_s) / 60 for run in valid if run.record.epochs_s]
    qualities = [run.summary.best for run in valid if run.summary.best is not None]
    cells: dict[Column, Cell] = {
        **shared, "nodes": result.nodes, "accelerators": result.accelerators or None,
        "replicate": scenario.metric.statistic, "minutes_per_epoch": median(minutes) if minutes else None,
        "models": len(valid) if scenario.throughput else None,
        "epochs": counted / len(valid) if counted and scenario.throughput else counted,
        "quality": fmean(qualities) if qualities else None,
        "samples_per_s_per_accelerator": rate, FIGURES[scenario.metric.what]: value,
        "valid": f"{result.valid}/{len(result.runs) + result.missing}",
    }  # fmt: skip
    return ResponseRow("result", cells)


def epochs_of_size(result: SizeResult) -> float | None:
    """Epochs by the statistic of the figure, over the same runs; for instances, their sum. ``None``: not known."""
    epochs = [run.summary.epochs_to_target for run in result.runs if run.valid]
    known = [value for value in epochs if value is not None]
    if not known or len(known) < len(epochs):
        return None
    if result.scenario.throughput:
        return sum(known)
    value = over_runs(result.scenario, known, result.lost)
    return value if value is not None and isfinite(value) else None


def rows_of_references(scenario: Scenario) -> list[ResponseRow]:
    """The rows of the published results, with the number of their system if they are of several."""
    systems = list(dict.fromkeys(reference.system for reference in scenario.references))
    return [
        row_of_reference(scenario, reference, systems.index(reference.system) + 1 if len(systems) > 1 else None)
        for reference in scenario.references
    ]


def row_of_reference(scenario: Scenario, reference: Reference, number: int | None = None) -> ResponseRow:
    """The row of a published result, with the values calculated from it."""
    accelerators = reference.nodes * reference.accelerators_per_node
    batch, local = scenario.batch.global_size or reference.global_batch, reference.local_batch
    if local is None and batch is not None and batch % accelerators == 0:
        local = batch // accelerators
    if batch is None and local is not None:
        batch = local * accelerators
    epochs = None if reference.epochs is None else reference.epochs * (reference.models or 1)
    rate = samples_per_s_per_accelerator(
        scenario.metric, reference.value, accelerators, batch, scenario.dataset.train_samples, epochs
    )
    cells: dict[Column, Cell] = {
        "category": reference.category, "scenario": scenario.name, "system": reference.system, "nodes": reference.nodes,
        "accelerators_per_node": reference.accelerators_per_node, "accelerators": accelerators, "local_batch": local,
        "global_batch": batch, "epochs": reference.epochs, "samples_per_s_per_accelerator": rate,
        "models": reference.models, FIGURES[scenario.metric.what]: reference.value,
        "replicate": "ref." if number is None else f"ref. {number}",
    }  # fmt: skip
    return ResponseRow("reference", cells)


def csv_rows(campaign: Campaign, rehearsal: bool, rows: Mapping[str, Sequence[ResponseRow]]) -> list[dict[str, Cell]]:
    """The rows of all scenarios as one table with every column; unknown values are empty."""
    return [
        {"campaign": campaign.name, "rehearsal": "rehearsal" if rehearsal else "", "row": row.kind,
         **{column: row.cells.get(column) for column in TITLES}, "scenario": scenario,
         "verified": "" if row.kind == "reference" else NOT_VERIFIED}
        for scenario, scenario_rows in rows.items() for row in scenario_rows
    ]  # fmt: skip
