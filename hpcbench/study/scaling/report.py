"""Makes the report of a scaling study from its runs, with the epochs of a convergence study if one is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcbench.application import find_application
from hpcbench.batch.site import find_site
from hpcbench.measure.node_probe import product_type
from hpcbench.results.machine_use import COMPUTES_IN
from hpcbench.results.summary import Summary
from hpcbench.results.units import counted
from hpcbench.study.folder import StudyFolder
from hpcbench.study.progress import say
from hpcbench.study.run_status import RunStatus
from hpcbench.study.scaling.content import Content
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.joined import remember, with_convergence
from hpcbench.study.scaling.joined_epochs import config_of, epochs_of, other_training_notes
from hpcbench.study.scaling.page import write_scaling
from hpcbench.study.scaling.point_results import PointResult, by_variant
from hpcbench.study.scaling.proposal import Campaign, Extras, proposal
from hpcbench.study.scaling.read_results import read_point_results
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.scaling.scaling_laws import SpeedFit, fit_amdahl, fit_gustafson
from hpcbench.study.scaling.time_to_solution import Solution, solutions
from hpcbench.study.scaling.trainings import trainings
from hpcbench.study.study_jobs import study_statuses
from staging.errors import InputError

LEAST_MODELS = {"cosmoflow": 10, "deepcam": 5}
"""Instances that must reach the target for a published throughput, by the rules' name of the benchmark (MLPerf HPC
training rules, section on the number of runs).
"""


def report(study: Scaling, folder: StudyFolder, extras: Extras) -> None:
    """Write tables, plots and page from the run folders, and print where they are.

    A convergence study that ``extras`` names is remembered in the study's folder. Raises ``InputError`` if no run is
    done, or the convergence study does not fit.
    """
    study = with_convergence(study, folder.path, extras.convergence)
    statuses = study_statuses(folder, [run.name for run in all_runs(study)])
    rows = read_point_results(study, folder, statuses)
    if not any(row.runs for row in rows):
        reasons = [reason for row in rows for reason in row.failed]
        raise InputError(f"{folder.path} has no run that is done{': ' + reasons[0] if reasons else ''}")
    text = write_scaling(content(study, folder, rows, statuses, extras.campaign), folder.path)
    remember(folder, study.convergence)
    say(f"{text}\npage: {folder.path / 'scaling.html'}")


def content(
    study: Scaling,
    folder: StudyFolder,
    rows: Sequence[PointResult],
    statuses: Mapping[str, RunStatus],
    campaign: Campaign,
) -> Content:
    """Everything that the page shows; its proposal is for ``campaign``."""
    summaries = [state.summary for state in statuses.values() if state.done and state.summary is not None]
    first = summaries[0]
    site = find_site(study.site)
    variants = by_variant(rows)
    configs = {label: config_of(study, members[0].settings) for label, members in variants.items()}
    solutions_by_variant: dict[str, list[Solution]] = {}
    joined_notes: list[str] = []
    if study.convergence:
        joined_notes = other_training_notes(study, folder.path, rows, configs.values())
        optimizers = {config.optim.name for config in configs.values()}
        epochs = {name: epochs_of(study, folder.path, name) for name in sorted(optimizers)}
        for label, members in variants.items():
            config = configs[label]
            evaluations = float(config.train.evaluations_per_epoch)
            solutions_by_variant[label] = solutions(
                members, epochs[config.optim.name], members[0].train_samples, evaluations
            )
    lengths = trainings(variants, solutions_by_variant, configs, to_target=study.steps is None)
    return Content(
        title=first.title, mode=study.mode, application=study.application, preset=study.preset, site=site.title,
        simulated=site.scheduler == "local", rows=rows, fits=fits(study, rows), solutions=solutions_by_variant,
        proposal=proposal(rows, lengths, campaign), commands=study.commands, machine=machine(first),
        notes=[*notes(study, summaries), *joined_notes, *too_few_models(study, rows)], steps=study.steps,
        warmup_steps=next(iter(configs.values())).measure.warmup_steps,
    )  # fmt: skip


def fits(study: Scaling, rows: Sequence[PointResult]) -> dict[str, SpeedFit]:
    """The law of the mode, fitted to every variant; in a throughput study to what all its instances would train."""
    law = fit_amdahl if study.mode == "strong" else fit_gustafson
    fit_by_variant = {}
    for label, members in by_variant(rows).items():
        pairs = [(float(row.nodes), run.instance_samples_per_s * row.instances) for row in members for run in row.runs]
        fit_by_variant[label] = law([nodes for nodes, _ in pairs], [rate for _, rate in pairs])
    return fit_by_variant


def machine(first: Summary) -> str:
    """What the runs ran on, in one line."""
    return (
        f"{first.device}, {counted(first.ranks_per_node, 'rank')} a node of "
        f"{counted(first.threads, 'compute thread')}, {first.precision}"
    )


def too_few_models(study: Scaling, rows: Sequence[PointResult]) -> list[str]:
    """A note on the sizes of a throughput study with fewer models than the rules publish."""
    least = LEAST_MODELS.get(find_application(study.application).benchmark)
    if study.mode != "throughput" or study.steps is not None or least is None:
        return []
    few = sorted({row.nodes for row in rows for run in row.runs if run.models < least})
    if not few:
        return []
    sizes = ", ".join(f"{nodes:,}" for nodes in few)
    word = "node" if few == [1] else "nodes"
    return [f"MLPerf HPC publishes a throughput of at least {least} models; there are fewer on {sizes} {word}."]


def notes(study: Scaling, summaries: Sequence[Summary]) -> list[str]:
    """What a reader must know about the runs as a whole."""
    sentences = []
    missed = sum(s.status == "target_not_reached" for s in summaries)
    if study.steps is None and missed:
        sentences.append(
            f"{missed} of {len(summaries)} runs missed their target; their throughput counts. A repeat in which no run "
            "reached it counts as one of infinite time."
        )
    resumed = sum(s.resumed > 0 for s in summaries)
    if resumed:
        number = "1 run was" if resumed == 1 else f"{resumed} runs were"
        text = f"{number} interrupted and resumed; the figures are over all attempts, without the gaps"
        if study.steps is None:
            alone = " that trained alone" if study.mode == "throughput" else ""
            text += f". The clock runs on in a gap, so the time of such a run{alone} is left out"
        sentences.append(f"{text}.")
    others = dict.fromkeys(
        f"{s.precision} with {product_type(s.device_type)}"
        for s in summaries
        if s.device_type and COMPUTES_IN.get(s.precision) not in (None, product_type(s.device_type))
    )
    if others:
        sentences.append(f"The FLOP/s utilization compares runs with a peak in another type: {'; '.join(others)}.")
    devices = sorted({s.device for s in summaries})
    if len(devices) > 1:
        sentences.append(f"The runs were on different devices: {', '.join(devices)}.")
    return sentences
