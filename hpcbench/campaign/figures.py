"""The figures of a campaign's runs by its metric, whether each run is valid, and the figure of a size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.campaign.categories import refusals, shown
from hpcbench.campaign.entry import Entry, base_config, rehearsed
from hpcbench.campaign.folder import CampaignFolder, Definition
from hpcbench.campaign.judged_runs import CampaignRun, judged, target_fault
from hpcbench.campaign.rules import Category, Metric, Scenario
from hpcbench.campaign.statistic import over_runs
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.measure.installation import installation_words, is_record
from hpcbench.mlperf.convergence_check import ConvergenceTest, check_convergence, has_points
from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.own_runs import read_own_run
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.mlperf.step_lines import is_of_the_run
from hpcbench.results.mllog_reader import read_events
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.results.units import counted, counted_epochs
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import PlannedRun, groups, run_nodes
from hpcbench.study.scaling.study import read_study
from hpcbench.study.study_jobs import study_statuses
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

MINUTE_S = 60.0


@dataclass(frozen=True)
class SizeResult:
    """All runs of one size of a scenario in a category."""

    category: Category
    scenario: Scenario
    nodes: int
    runs: tuple[CampaignRun, ...]
    value: float | None
    """The figure by the metric's statistic; ``None`` if too few runs count, infinite if too many missed the target."""
    measured: float | None = None
    """The figure before it is normalised for convergence."""
    missing: int = 0
    """Runs that the rules ask for and that have not ended, or failed."""
    failed: tuple[str, ...] = ()
    """Why runs left no figures."""
    convergence: ConvergenceTest | None = None
    """The test against reference convergence points, if the category has one and there are enough runs."""

    @property
    def accelerators(self) -> int:
        """Accelerators of all runs that are side by side."""
        per_run = self.runs[0].accelerators if self.runs else 0
        return per_run * len(self.runs) if self.scenario.throughput else per_run

    @property
    def valid(self) -> int:
        """Runs that count."""
        return sum(run.valid for run in self.runs)

    @property
    def lost(self) -> int:
        """Runs that count as infinitely long in the statistic."""
        return lost_runs(self.scenario, self.runs, len(self.failed))

    @property
    def unreached(self) -> bool:
        """Whether so many runs missed the target that the figure is infinite."""
        return self.value is not None and math.isinf(self.value)

    @property
    def lost_words(self) -> str:
        """How many of the runs in the statistic count as infinitely long, and why."""
        why = "not valid" if self.scenario.metric.statistic == "olympic" else "did not reach the target"
        return f"{self.lost} of {counted(self.valid + self.lost, 'run')} {why}"


def read_results(folder: CampaignFolder, definition: Definition) -> list[SizeResult]:
    """Every size of every scenario and category that the folder has a study of. Raises ``InputError``."""
    results: list[SizeResult] = []
    for category in definition.campaign.categories:
        for original in definition.campaign.scenarios:
            scenario = rehearsed(original) if definition.rehearsal else original
            place = folder.study(category, scenario)
            if place.definition.exists():
                entry = Entry(definition.campaign, scenario, category, definition.rehearsal)
                results += read_scenario(entry, read_study(place), place.path)
    return results


def read_scenario(entry: Entry, study: Scaling, path: Path) -> list[SizeResult]:
    """The sizes of one study, smallest first."""
    from hpcbench.study.folder import StudyFolder

    place, sizes = StudyFolder(path), dict[int, list[PlannedRun]]()
    for group in groups(study):
        sizes.setdefault(group[0].point.nodes, []).extend(group)
    statuses = study_statuses(place, [run.name for runs in sizes.values() for run in runs])
    base, results = base_config(entry), []
    for nodes, planned in sizes.items():
        runs = [
            read_run(entry, base, place.run(run.name), run_nodes(study, run), number)
            for number, run in enumerate(planned, 1) if statuses[run.name].done
        ]  # fmt: skip
        failed = tuple(
            f"{run.name}: {statuses[run.name].reason}" for run in planned
            if statuses[run.name].status in ("failed", "diverged")
        )  # fmt: skip
        runs = judged(entry, runs)
        test = convergence_of(entry, runs, len(failed))
        value = measured = figure(entry.scenario, runs, len(failed))
        if test is not None and measured is not None:
            value = measured * test.factor if test.passed else None
        missing = len(planned) - len(runs)
        results.append(
            SizeResult(entry.category, entry.scenario, nodes, tuple(runs), value, measured, missing, failed, test)
        )
    return results


def read_run(entry: Entry, base: RunConfig, path: Path, nodes: int, number: int) -> CampaignRun:
    """A run from its folder. Raises ``InputError`` for one of another application, ``DataError`` for a damaged one."""
    folder = RunFolder(path)
    summary, record = folder.read_summary(), read_own_run(LogLocation(folder.mllog, "own"))
    if summary.application != entry.scenario.application:
        raise InputError(
            f"{path} is a run of {summary.application}, scenario {entry.scenario.name} of {entry.campaign.name} is of "
            f"{entry.scenario.application}; take it out of the folder"
        )
    config = resolve(entry.application, None, [folder.config])
    value = value_of_run(entry.scenario.metric, folder, record, summary)
    run = CampaignRun(path.name, nodes, number, summary.world_size, record, summary, config, value)
    return replace(run, faults=tuple(faults_of(entry, base, run, folder)))


def value_of_run(metric: Metric, folder: RunFolder, record: RunRecord, summary: Summary) -> float | None:
    """The figure of one run; for an instance of several, its own minutes."""
    if metric.what == "seconds_per_step":
        return seconds_per_step(folder)
    if metric.what == "seconds_of_epochs":
        assert metric.epochs is not None
        return seconds_of_epochs(folder, metric.epochs)
    if summary.status != "success" or record.time_to_train_s is None:
        return None
    staging = record.staging_s or 0.0 if "staging" in metric.excludes else 0.0
    return (record.time_to_train_s - staging) / MINUTE_S


def seconds_per_step(folder: RunFolder) -> float | None:
    """The median over epochs of an epoch's seconds of training over its optimizer steps. Raises ``DataError``."""
    try:
        epochs = folder.read_epochs()[["step", "train_s"]].astype("float64").dropna()
    except (KeyError, TypeError, ValueError):
        raise DataError(
            folder.epochs, "is not a table of epochs with step and train_s", "restore it, or take the run out"
        ) from None
    steps = epochs["step"].diff().fillna(epochs["step"])
    seconds = (epochs["train_s"] / steps)[steps > 0]
    return float(seconds.median()) if len(seconds) else None


def seconds_of_epochs(folder: RunFolder, epochs: int) -> float | None:
    """Seconds from the start of the first epoch to the end of the last of ``epochs``; ``None`` if there are fewer.

    An epoch ends with its evaluation, which the reference code logs within the epoch and hpcbench after it.
    """
    events, _ = read_events(folder.mllog, is_of_the_run)
    start = next((event.time_ms for event in events if event.key == "epoch_start" and event.epoch == 1), None)
    ends = {key: [event.time_ms for event in events if event.key == key and event.epoch == epochs]
            for key in ("epoch_stop", "eval_stop")}  # fmt: skip
    if start is None or not ends["epoch_stop"]:
        return None
    return (max([*ends["epoch_stop"], *ends["eval_stop"]]) - start) / 1e3


def resumed_within(folder: RunFolder, epochs: int) -> bool:
    """Whether a run was resumed before the end of its first ``epochs``: its log then lacks a part or has a gap."""
    events, _ = read_events(folder.mllog, is_of_the_run)
    return any(event.key == "resumed" and (event.epoch or 0) < epochs for event in events)


def faults_of(entry: Entry, base: RunConfig, run: CampaignRun, folder: RunFolder) -> list[str]:
    """Why a run does not count."""
    scenario, summary, faults = entry.scenario, run.summary, []
    if (summary.simulated_ranks or summary.simulated_nodes) and not entry.rehearsal:
        faults.append("ranks or nodes were simulated: times are not theirs")
    if summary.nodes != run.nodes and not summary.simulated_nodes:
        faults.append(f"{counted(summary.nodes, 'node')} instead of {run.nodes:,}")
    if "target" in scenario.validity and summary.status != "success":
        faults.append(target_fault(summary))
    if "epochs" in scenario.validity:
        needed = scenario.metric.epochs or scenario.stop.epochs
        if summary.epochs < needed:
            faults.append(f"{counted_epochs(summary.epochs)} where {needed} count")
    if scenario.metric.epochs is not None and summary.resumed and resumed_within(folder, scenario.metric.epochs):
        faults.append(f"it was resumed within the {counted(scenario.metric.epochs, 'epoch')} that count")
    if "samples" in scenario.validity:
        pairs = ((summary.train_samples, scenario.dataset.train_samples, "training"),
                 (summary.validation_samples, scenario.dataset.validation_samples, "validation"))  # fmt: skip
        faults += [f"{here:,} {what} samples instead of {asked:,}" for here, asked, what in pairs
                   if asked is not None and here != asked]  # fmt: skip
    faults += [f"{refusal.setting} {shown(refusal.value)}, while the category {refusal.words}"
               for refusal in refusals(scenario, entry.category, run.config, base)]  # fmt: skip
    division, logged = entry.category.division, run.record.division
    if division and logged != division == run.config.submission.division:
        faults.append(
            f"its log is of {f'the {logged} division' if logged else 'no division'} instead of the {division}"
        )
    sizes = ((summary.global_batch_size, scenario.batch.global_size, "global"),
             (summary.local_batch_size, scenario.batch.local_size, "local"))  # fmt: skip
    faults += [f"{what} batch {here:,} instead of {asked:,}" for here, asked, what in sizes
               if asked is not None and here != asked]  # fmt: skip
    if entry.category.released and not entry.rehearsal:
        record = installed(folder)
        if record is None or not record["unchanged"]:
            faults.append(installation_words(record))
    return faults


def installed(folder: RunFolder) -> dict[str, Any] | None:
    """What a run says about the packages that it used; ``None`` if it says nothing, or nothing that can be read."""
    try:
        environment = json.loads(read_text(folder.environment))
    except (OSError, ValueError, RecursionError, DataError):
        return None
    record = environment.get("installation") if isinstance(environment, dict) else None
    return record if is_record(record) else None


def convergence_of(entry: Entry, runs: Sequence[CampaignRun], failed: int = 0) -> ConvergenceTest | None:
    """The test of the runs of a size against the reference convergence points; ``None`` if none applies.

    Runs that ``failed`` are runs of a time to train without convergence, as in its olympic mean. Instances of a
    throughput that do not count are pruned instead, and its score is never normalised. A rehearsal has other data, so
    its epochs tell nothing.
    """
    ruleset, benchmark = entry.category.convergence_ruleset, entry.application.benchmark
    if not ruleset or entry.rehearsal or not runs or not has_points(benchmark, ruleset):
        return None
    throughput, first = entry.scenario.throughput, next((run for run in runs if run.valid), runs[0])
    epochs = [run.summary.epochs_to_target for run in runs if run.valid]
    if not throughput:
        epochs += [None] * (len(runs) - len(epochs) + failed)
    if len(epochs) < 3:
        return None
    test = check_convergence(benchmark, ruleset, first.summary.global_batch_size, epochs)
    return replace(test, factor=1.0) if throughput else test


def figure(scenario: Scenario, runs: Sequence[CampaignRun], failed: int = 0) -> float | None:
    """The figure of a size by the metric's statistic; ``None`` if its runs do not give one.

    Of a time to a quality it is infinite if so many runs missed the target, or failed, that the statistic is.
    """
    if scenario.metric.statistic == "all":
        return minutes_of_all(scenario, runs)
    values = [run.value for run in runs if run.valid and run.value is not None]
    return over_runs(scenario, values, lost_runs(scenario, runs, failed))


def lost_runs(scenario: Scenario, runs: Sequence[CampaignRun], failed: int) -> int:
    """How many runs count as infinitely long: in an olympic mean all that do not count, as a submission has no others;
    in a median or a mean of times to a quality, those that missed the target, and those that failed.
    """
    if scenario.metric.statistic == "olympic":
        return sum(not run.valid for run in runs) + failed
    return sum(run.missed for run in runs) + failed if scenario.metric.what == "minutes_to_quality" else 0


def minutes_of_all(scenario: Scenario, runs: Sequence[CampaignRun]) -> float | None:
    """Minutes from the first start to the last stop of the instances that count; ``None`` if there are too few."""
    records = [run.record for run in runs if run.valid]
    starts = [record.start_unix_s for record in records if record.start_unix_s is not None]
    stops = [record.start_unix_s + record.time_to_train_s for record in records
             if record.start_unix_s is not None and record.time_to_train_s is not None]  # fmt: skip
    if len(stops) < scenario.replicates:
        return None
    return (max(stops) - min(starts)) / MINUTE_S


def samples_per_s_per_accelerator(
    metric: Metric, value: float, accelerators: int, batch: int | None, samples: float | None, epochs: float | None
) -> float | None:
    """The rate that follows from a figure of the metric; ``None`` if something is not known.

    ``batch`` is the global batch, ``samples`` those of an epoch, ``epochs`` those of the run, or of all instances.
    """
    if metric.what == "seconds_per_step":
        return None if batch is None else batch / (value * accelerators)
    counted = metric.epochs if metric.what == "seconds_of_epochs" else epochs
    if counted is None or samples is None:
        return None
    seconds = value if metric.what == "seconds_of_epochs" else value * MINUTE_S
    return counted * samples / (seconds * accelerators)
