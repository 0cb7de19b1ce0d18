"""Makes of a scaling study's runs what a reader gets, with the epochs of a convergence study where one is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.batch.site import find_site
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.results.summary import Summary
from hpcbench.study.fit import EpochFit
from hpcbench.study.folder import StudyFolder
from hpcbench.study.progress import say
from hpcbench.study.scaling.amdahl import SpeedFit, fit_amdahl, fit_gustafson
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.joined import read_convergence, remember, with_convergence
from hpcbench.study.scaling.ladder import all_runs
from hpcbench.study.scaling.measured import read_rows
from hpcbench.study.scaling.page import Content, write_scaling
from hpcbench.study.scaling.proposal import Campaign, proposal
from hpcbench.study.scaling.rows import Row, by_variant
from hpcbench.study.scaling.run_status import RunStatus, look_at_runs
from hpcbench.study.scaling.solution import Solution, solutions
from hpcbench.study.scaling.trainings import trainings
from staging.errors import InputError


@dataclass(frozen=True)
class Extras:
    """What the page joins to the measurements."""

    convergence: str | None = None
    """Folder of a convergence study of the same application, or ``none``; unset, the one that the study remembers."""
    runs: int = 5
    """Trainings that the proposal table is for."""


def report(study: Scaling, folder: StudyFolder, extras: Extras) -> None:
    """Write tables, plots and page from the run folders, and say where they are.

    A convergence study that ``extras`` names is remembered in the study's folder. Raises ``InputError`` where no run is
    done, or the convergence study does not fit.
    """
    study = with_convergence(study, folder.path, extras.convergence)
    standings = {run.name: look(folder.run(run.name)) for run in all_runs(study)}
    rows = read_rows(study, folder, standings)
    if not any(row.runs for row in rows):
        reasons = [reason for row in rows for reason in row.failed]
        raise InputError(f"{folder.path} has no run that is done{': ' + reasons[0] if reasons else ''}")
    text = write_scaling(content(study, folder, rows, standings, extras.runs), folder.path)
    remember(folder, study.convergence)
    say(f"{text}\npage: {folder.path / 'scaling.html'}")


def content(
    study: Scaling, folder: StudyFolder, rows: Sequence[Row], standings: Mapping[str, RunStanding], runs: int
) -> Content:
    """Everything that the page is made of; its proposal is for so many ``runs``."""
    from hpcbench.application import find_application

    summaries = [each.summary for each in standings.values() if each.status == "done" and each.summary is not None]
    first = summaries[0]
    site = find_site(study.site)
    config = resolve(find_application(study.application), study.preset, [Path(name) for name in study.files],
                     dict(study.settings))  # fmt: skip
    fit = epochs_of(study, folder.path, config.optim.name)
    found = {label: solutions(members, fit, first.train_samples, float(config.train.evaluations_per_epoch))
             for label, members in by_variant(rows).items()} if fit is not None else {}  # fmt: skip
    samples, basis = samples_per_run(study, rows, found, first, config.train.max_epochs)
    evaluations = {nodes: number / first.train_samples * config.train.evaluations_per_epoch
                   for nodes, number in samples.items()}  # fmt: skip
    return Content(
        title=first.title, mode=study.mode, application=study.application, preset=study.preset, site=site.title,
        simulated=site.scheduler == "local", rows=rows, fits=fits(study, rows), solutions=found,
        proposal=proposal(rows, runs, samples, None, evaluations), basis=basis, commands=study.commands,
        machine=machine(first), notes=notes(study, summaries), steps=study.steps,
        warmup_steps=config.measure.warmup_steps,
    )  # fmt: skip


def config_of(study: Scaling, row: Row) -> RunConfig:
    """What the runs of a variant are configured with, but for what depends on the size."""
    from hpcbench.application import find_application

    settings = {**study.settings, **row.settings}
    return resolve(find_application(study.application), study.preset, [Path(name) for name in study.files], settings)


def fits(study: Scaling, rows: Sequence[Row]) -> dict[str, SpeedFit]:
    """The law of the mode, fitted to every variant."""
    law = fit_amdahl if study.mode == "strong" else fit_gustafson
    found = {}
    for label, members in by_variant(rows).items():
        pairs = [(float(row.nodes), run.samples_per_s) for row in members for run in row.runs]
        found[label] = law([nodes for nodes, _ in pairs], [rate for _, rate in pairs])
    return found


def epochs_of(study: Scaling, folder: Path, optimizer: str) -> EpochFit | None:
    """epochs(B) from the convergence study that belongs to the study in ``folder``, if there is one.

    Raises ``InputError`` where that is not there, is of something else, or has no such fit.
    """
    from hpcbench.study import convergence
    from hpcbench.study.page import fit_series
    from hpcbench.study.results import read_rows as read_convergence_rows

    joined = read_convergence(study, folder)
    if joined is None:
        return None
    found, place = joined
    series = fit_series(read_convergence_rows(found, convergence.read_outcomes(found, place)))
    if optimizer not in series:
        known = ", ".join(series) or "none"
        raise InputError(
            f"--convergence {place.path} has no fit of epochs(B) for optimizer {optimizer}; it has {known}"
        )
    return series[optimizer]


def machine(first: Summary) -> str:
    """What the runs ran on, in a line."""
    from hpcbench import __version__

    return (
        f"{first.device}, {first.ranks_per_node} rank(s) a node of {first.threads} compute thread(s), "
        f"{first.precision}, hpcbench {__version__}"
    )


def notes(study: Scaling, summaries: Sequence[Summary]) -> list[str]:
    """What a reader must know of the runs as a whole."""
    found = []
    missed = sum(s.status == "target_not_reached" for s in summaries)
    if study.steps is None and missed:
        found.append(f"{missed} of {len(summaries)} runs missed their target; their throughput counts, their time not.")
    resumed = sum(s.resumed > 0 for s in summaries)
    if resumed:
        number = "1 run was" if resumed == 1 else f"{resumed} runs were"
        found.append(f"{number} interrupted and resumed; the figures are over all attempts, without the gaps.")
    devices = sorted({s.device for s in summaries})
    if len(devices) > 1:
        found.append(f"The runs were on different devices: {', '.join(devices)}.")
    return found
