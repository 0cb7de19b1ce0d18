"""A scaling study from first to last: plan, show, run, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.batch.job import Job
from hpcbench.batch.node_hours import total_words
from hpcbench.batch.site import Site, find_site
from hpcbench.exits import BAD_INPUT, DONE
from hpcbench.results import units
from hpcbench.results.tables import table, wrapped
from hpcbench.results.units import counted
from hpcbench.study.definition import ADVICE
from hpcbench.study.folder import StudyFolder, begun, held
from hpcbench.study.job_runs import (
    HERE_S,
    FromTheStart,
    InstanceJobs,
    SingleRunJobs,
    scheduler_pauses_s,
    whole_repeats,
)
from hpcbench.study.preset_values import refuse_changed_preset
from hpcbench.study.progress import WORDS, say
from hpcbench.study.run_status import RunStatus, Statuses
from hpcbench.study.runner import ExecutionOptions, StudyRunner
from hpcbench.study.scaling.definition import Scaling, grow
from hpcbench.study.scaling.fits import fit_page
from hpcbench.study.scaling.jobs import instances_job, job_of, shares_allocation, study_run
from hpcbench.study.scaling.joined import read_convergence, with_convergence
from hpcbench.study.scaling.request import check_data, check_points
from hpcbench.study.scaling.run_matrix import (
    all_runs,
    check_seeds,
    checked,
    data_parallel_size,
    groups,
    instances,
    local_batch_size,
    points,
    run_nodes,
)
from hpcbench.study.study_jobs import cancel_jobs, study_statuses, worked_in
from hpcbench.study.study_run import StudyRun
from staging.errors import DataError, InputError

if TYPE_CHECKING:
    from hpcbench.study.scaling.proposal import Extras

KINDS: dict[str, tuple[str, ...]] = {
    "done": ("reached", "missed"), "running": ("running",), "waiting": ("waiting",), "unknown": ("unknown",),
    "interrupted": ("interrupted",), "failed": ("failed", "diverged"), "left": ("absent",),
}  # fmt: skip
"""The words of tables, and the statuses of the runs that each word counts."""
NOT_USUAL = ("unknown", "interrupted")
"""Words that are in a table only if there are such runs."""


def run_study(study: Scaling, path: Path, options: ExecutionOptions, extras: Extras, *, dry_run: bool = False) -> int:
    """Run or submit the missing runs of the study in the folder ``path``; ``dry_run`` only shows the plan.

    Returns the exit code. Raises ``InputError`` for a folder of another study or one in use, ``Aborted`` for a signal.
    """
    folder = StudyFolder(path)
    if dry_run:
        study = merged(study, folder, extras.convergence)
        refuse_changed_preset(study, path)
        say(plan(study))
        say_lacking(study, path)
        return DONE
    with held(folder):
        study = merged(study, folder, extras.convergence)
        refuse_changed_preset(study, path)
        with begun(folder, study.as_dict(), lambda: write_report(study, folder, extras)):
            say(plan(study))
            say_lacking(study, path)
            runs = make_runs(study, folder, options)
        finish(study, folder, runs, extras, options.at_once)
    return DONE


def say_lacking(study: Scaling, path: Path) -> None:
    """Print what the convergence study lacks, which the report will need; fits are imported only here."""
    from hpcbench.study.scaling.joined_epochs import lacking_fits

    for lack in lacking_fits(study, path):
        say(wrapped(f"The report will need what is lacking so far: {lack}."))


def make_runs(
    study: Scaling, folder: StudyFolder, options: ExecutionOptions, site: Site | None = None,
    pauses_s: tuple[float, float] | None = None, speak: Callable[[str], None] = say,
) -> dict[str, RunStatus]:  # fmt: skip
    """Make all missing runs, and print a line for each one that ends; returns the status of all runs.

    Runs on this machine follow one another, unless more at once are requested. Jobs of a scheduler are queued up to
    ``options.at_once``, or else the limit of the site's queue; without ``options.wait``, further runs stay absent.
    """
    site = site or find_site(study.site)
    here = site.scheduler == "local"
    planned = {run.name: run for run in all_runs(study)}
    grouped = {run.name: group[0].name for group in groups(study) for run in group}

    statuses = study_statuses(folder, list(planned))
    again = whole_repeats(statuses, grouped, FromTheStart.retried if options.retry else ())

    def make(run: StudyRun, path: Path) -> Job:
        return job_of(study, site, planned[run.name], path)

    def make_instances(part: Sequence[StudyRun], path: Path) -> Job:
        return instances_job(study, site, [planned[run.name] for run in part], path, options.keep)

    def due(statuses: Statuses) -> list[StudyRun]:
        missing = {name for name in planned if statuses[name].status == "absent"} | again
        return [study_run(study, run) for name, run in planned.items() if name in missing]

    def finished(name: str, state: RunStatus, seconds: float | None) -> None:
        speak(progress_line(runner.statuses, name, state, seconds))

    executor: FromTheStart
    pauses = pauses_s or (HERE_S if here else scheduler_pauses_s(len(planned)))
    if shares_allocation(study, site):
        executor = InstanceJobs(folder=folder, site=site, pauses_s=pauses, speak=speak, make=make_instances,
                                groups=grouped, again=again)  # fmt: skip
    else:
        executor = SingleRunJobs(folder=folder, site=site, pauses_s=pauses, speak=speak, make=make, groups=grouped,
                                 again=again)  # fmt: skip
    at_once = options.at_once or (1 if here else site.most_jobs_in(study.job_request(1).queue))
    runner = StudyRunner(
        folder, executor, due, at_once, options.wait or here, options.retry, options.keep, finished
    )  # fmt: skip
    return runner.run(statuses)


def progress_line(statuses: Statuses, name: str, state: RunStatus, seconds: float | None) -> str:
    """A line for a run that has ended; how long it took is not known if an earlier command submitted its job."""
    total = len(statuses)
    left = sum(run.status == "absent" or run.under_way for run in statuses.values())
    took = "" if seconds is None else f", {units.duration(seconds)}"
    return f"[{total - left:{len(str(total))}}/{total}] {name}: {result(state)}{took} ({left} left)"


def result(state: RunStatus) -> str:
    """The end of a run in a few words."""
    if not state.done or state.summary is None:
        return f"{WORDS.get(state.status, state.status)}: {state.reason}"
    s = state.summary
    rate = "too few steps to measure" if s.warm_samples_per_s is None else (
        f"{units.significant(s.warm_samples_per_s)} samples/s"
    )  # fmt: skip
    missed = "" if s.status == "success" else ", target not reached"
    slow = f", slow: {'; '.join(s.slow_nodes)}" if s.slow_nodes else ""
    return f"{rate}{missed}{slow}"


def finish(
    study: Scaling, folder: StudyFolder, runs: Statuses, extras: Extras, at_once: int | None = None
) -> None:  # fmt: skip
    """Write the report if a run is done, and print the commands that follow or continue the others."""
    if any(state.done for state in runs.values()):
        write_report(study, folder, extras)
    ended = sum(is_to_start_again(state) for state in runs.values())
    if ended:
        say(f"{ended} failed; start again: hpcbench study resume {folder.path}")
    if any(state.under_way for state in runs.values()):
        left = count(runs.values(), "left")
        resume = f"hpcbench study resume {folder.path}{f' --jobs {at_once}' if at_once else ''}"
        rest = f"not submitted yet: {counted(left, 'run')}; when others have ended: {resume}\n" if left else ""
        say(f"\n{counts(runs)}\n{rest}status: hpcbench study status {folder.path}\n"
            f"tables and page, when they are done: hpcbench study report {folder.path}")  # fmt: skip


def write_report(study: Scaling, folder: StudyFolder, extras: Extras) -> None:
    """Write the tables and the page; the plotting modules are imported only here."""
    from hpcbench.study.scaling.report import report

    report(study, folder, extras)


def merged(study: Scaling, folder: StudyFolder, convergence: str | None) -> Scaling:
    """The study merged with the one in the folder, and with the convergence study that it joins.

    Raises ``InputError`` if the folder has another study, or the convergence study does not exist.
    """
    both = with_convergence(grown(study, folder), folder.path, convergence)
    read_convergence(both, folder.path)
    return both


def grown(study: Scaling, folder: StudyFolder) -> Scaling:
    """The study merged with the one in the folder. Raises ``InputError`` if the two cannot be compared."""
    before = folder.read()
    if before is None:
        return study
    if before.get("kind") != study.mode:
        raise InputError(
            f"{folder.path} holds another study: its kind is {before.get('kind')}, this one's {study.mode}; give "
            "another --study-dir"
        )
    both = grow(read_study(folder), study, folder.path)
    check_seeds(both)
    if len(points(both)) > len(points(study)):  # sizes of one study may meet values of the other
        check_points(both, find_site(both.site))
        check_data(both)
    return both


def read_study(folder: StudyFolder) -> Scaling:
    """The definition in a study's folder. Raises ``DataError`` for one whose sizes cannot run."""
    definition = folder.read()
    assert definition is not None
    study = Scaling.from_dict(definition, folder.definition)
    try:
        return checked(study)
    except InputError as error:
        raise DataError(folder.definition, f"is damaged ({error})", ADVICE) from None


def plan(study: Scaling) -> str:
    """The sizes as a table, and what they cost at most."""
    site, rows = find_site(study.site), []
    headers = ["nodes", "instances", "ranks", "local batch", "accumulation", "global batch", "runs"]
    for nodes in study.nodes:
        size, count = study.instance_nodes or nodes, instances(study, nodes)
        local = local_batch_size(study, size)
        rows.append([
            str(nodes), str(count), str(nodes * study.ranks_per_node), str(local), str(study.accumulation),
            str(local * study.accumulation * data_parallel_size(study, size)),
            str(sum(run.point.nodes == nodes for run in all_runs(study))),
        ])  # fmt: skip
    head = wrapped(headline(study, site))
    return f"{head}\n\n{table(headers, rows, right=headers)}\n\n{cost(study, site)}\n\n{fit_page(study, site)}\n"


def headline(study: Scaling, site: Site) -> str:
    """The study in a line or two."""
    what = {
        "strong": "strong scaling (the same global batch on more nodes)",
        "weak": "weak scaling (the same local batch on more nodes)",
        "throughput": f"throughput (more instances of {counted(study.instance_nodes or 1, 'node')})",
    }[study.mode]
    axes = "".join(f"; {name} {', '.join(value or 'unset' for value in values)}" for name, values in study.vary.items())
    whole = "for all epochs" if study.settings.get("train.target") == "null" else "to the target"
    until = whole if study.steps is None else f"{study.steps} steps"
    size = f"{counted(study.repeats, 'repeat')} of {counted(len(points(study)), 'point')}"
    return f"{study.application}, preset {study.preset}, on {site.title}: {what}, {until}, {size}{axes}"


def cost(study: Scaling, site: Site) -> str:
    """The most node-hours of an attempt of each job, by its time limit; on this machine, what is simulated."""
    runs = all_runs(study)
    first = job_of(study, site, runs[0], Path(runs[0].name))
    if site.scheduler == "local":
        cores = counted(first.cores_per_rank, "core")
        return f"{counted(len(runs), 'run')} on this machine; its nodes are simulated: {cores} for each of their ranks"
    hours = sum(run_nodes(study, run) for run in runs) * first.time_s / 3600
    total = f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
    together = shares_allocation(study, site)
    jobs = counted(len(groups(study)) if together else len(runs), "job")
    of = f" for {counted(len(runs), 'instance')}" if together else ""
    return f"{jobs}{of}, at most {total} node-hours an attempt ({first.time_s / 3600:.3g} h each)"


def is_to_start_again(state: RunStatus) -> bool:
    """Whether the run has ended without figures."""
    return state.status in ("failed", "diverged", "interrupted")


def read_statuses(study: Scaling, folder: StudyFolder) -> dict[str, RunStatus]:
    """The status of all runs."""
    return study_statuses(folder, [run.name for run in all_runs(study)])


def status(study: Scaling, folder: StudyFolder) -> tuple[str, int]:
    """The status of every point, and why runs failed or are unknown; and the exit code, 2 for a damaged job record."""
    damaged: list[DataError] = []
    runs = study_statuses(folder, [run.name for run in all_runs(study)], damaged)
    words = shown_words(runs)
    rows = []
    for point in points(study):
        states = [runs[run.name] for group in groups(study) for run in group if run.point == point]
        variant = [point.label] if study.vary else []
        rows.append([str(point.nodes), *variant, *(str(count(states, word)) for word in words)])
    headers = ["nodes", *(["variant"] if study.vary else []), *words]
    told = [
        f"{name}: {state.reason}"
        for name, state in runs.items()
        if is_to_start_again(state) or state.status == "unknown"
    ]
    again = (
        [f"start them again: hpcbench study resume {folder.path}"] if any(map(is_to_start_again, runs.values())) else []
    )
    at_work = [state.job.folder for state in runs.values() if state.job_runs and state.job is not None]
    hours = total_words(worked_in(folder), at_work, "job")
    told = [*([hours] if hours else []), *map(str, damaged), *told]
    text = "\n".join([table(headers, rows, right=words), "", counts(runs), *told, *again])
    return text, BAD_INPUT if damaged else DONE


def cancel_study(folder: StudyFolder) -> int:
    """Cancel every job of the study that waits or runs; returns the exit code."""
    return cancel_jobs(folder, [run.name for run in all_runs(read_study(folder))])


def counts(runs: Statuses) -> str:
    """How many runs have which status."""
    states = list(runs.values())
    return "runs: " + ", ".join(f"{count(states, word)} {word}" for word in shown_words(runs))


def count(states: Iterable[RunStatus], word: str) -> int:
    """How many of the runs a table counts under ``word``."""
    return sum(state.status in KINDS[word] for state in states)


def shown_words(runs: Statuses) -> list[str]:
    """The words for which a table has columns."""
    return [word for word in KINDS if word not in NOT_USUAL or count(runs.values(), word)]
