"""A convergence study from first to last: plan, show, run, report."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.batch.job import Job
from hpcbench.batch.node_hours import total_words
from hpcbench.batch.site import Site, find_site
from hpcbench.config.schema import RunConfig
from hpcbench.data.simulated_set import difference_of_texts, record_text
from hpcbench.exits import BAD_INPUT, DONE
from hpcbench.planning.dataset_size import dataset_size
from hpcbench.results.tables import wrapped
from hpcbench.results.units import counted
from hpcbench.study.definition import Study, grow
from hpcbench.study.estimate import Speed, calibrate, speed_of_runs
from hpcbench.study.folder import StudyFolder, begun, held
from hpcbench.study.job_runs import PackedJobs, scheduler_pauses_s
from hpcbench.study.local_runs import Launcher, LocalLauncher, LocalRuns
from hpcbench.study.packed_fit import check_memory, fit_lines
from hpcbench.study.packing import packed_job, packing_of, unbound
from hpcbench.study.plan import (
    PlannedRun,
    largest_round,
    left,
    may_widen,
    next_runs,
    points,
    possible_names,
    processes_per_run,
    study_run,
)
from hpcbench.study.preset_values import refuse_changed_preset, study_config
from hpcbench.study.progress import WORDS, Progress, say
from hpcbench.study.request import beside_the_recipe
from hpcbench.study.run_slots import Devices, Slot, find_devices, local_slots
from hpcbench.study.run_status import RunStatus, Statuses, counted_by_status
from hpcbench.study.runner import ExecutionOptions, Executor, StudyRunner
from hpcbench.study.study_jobs import cancel_jobs, study_statuses, worked_in
from hpcbench.study.study_run import StudyRun
from hpcbench.study.table import counts, plan_table, size
from staging.errors import DataError, InputError


def run_study(study: Study, path: Path, options: ExecutionOptions, *, dry_run: bool = False) -> int:
    """Make the missing runs of the study in the folder ``path``, here or as jobs; ``dry_run`` only shows the plan.

    Returns the exit code. Raises ``InputError`` for a folder of another study or one in use, ``Aborted`` for a signal.
    """
    folder = StudyFolder(path)
    if dry_run:
        study = merged(study, folder)
        refuse_changed_preset(study, path)
        executor = executor_of(study, folder, options, None)
        samples, statuses = check_data(study), read_statuses(study, folder)
        check_same_data(study, path, statuses, samples[0])
        show_plan(study, folder, statuses, options, executor, samples)
        return DONE
    with held(folder) as lock:
        study = merged(study, folder)
        refuse_changed_preset(study, path)
        samples = check_data(study)
        executor = executor_of(study, folder, options, lock)
        statuses = read_statuses(study, folder)
        check_same_data(study, path, statuses, samples[0])
        with begun(folder, study.as_dict(), lambda: report(folder)):
            show_plan(study, folder, statuses, options, executor, samples)
            statuses = make_runs(study, folder, options, executor, statuses)
        conclude(study, folder, statuses)
    return DONE


def resume_study(path: Path, options: ExecutionOptions, *, dry_run: bool = False) -> int:
    """Make the missing runs of the study that the folder holds, and repeat failed ones; see ``run_study``."""
    return run_study(read_study(StudyFolder(path)), path, options, dry_run=dry_run)


def merged(study: Study, folder: StudyFolder) -> Study:
    """The study merged with the one in the folder. Raises ``InputError`` if the two cannot be compared."""
    before = folder.read()
    return study if before is None else grow(Study.from_dict(before, folder.definition), study, folder.path)


def executor_of(study: Study, folder: StudyFolder, options: ExecutionOptions, lock: int | None) -> Executor:
    """What makes the runs. Raises ``InputError`` if they do not fit this machine, or a node of the site."""
    site = find_site(study.site)
    if site.scheduler != "local":
        packing = packing_of(study, site)
        check_memory(study, site, packing)

        def make(runs: Sequence[StudyRun], path: Path) -> Job:
            return packed_job(study, site, packing, runs, path, options.keep)

        return PackedJobs(
            folder=folder, site=unbound(site), pauses_s=scheduler_pauses_s(largest_round(study)), make=make,
            runs_per_job=packing.runs_per_job,
        )  # fmt: skip
    parallel = shared_config(study).parallel
    devices = Devices() if parallel.accelerator == "cpu" else find_devices()
    processes, most = processes_per_run(study), largest_round(study)
    slots = local_slots(options.at_once, processes, devices, most, parallel.threads)
    return LocalRuns(folder, LocalLauncher(lock), slots)


def check_data(study: Study) -> tuple[int, int]:
    """The numbers of training and validation samples. Raises ``InputError`` if the dataset is missing or too small.

    A dataset that is not on this machine is left to the jobs of a site; its size is what the settings say.
    """
    from hpcbench.train.build import open_data

    config, application = shared_config(study), find_application(study.application)
    root, site = config.data.root, find_site(study.site)
    elsewhere = dataset_size(application, config) if site.scheduler != "local" and not Path(root).exists() else None
    if root and elsewhere is not None:
        training, validation = elsewhere.train_samples, elsewhere.validation_samples
        if elsewhere.basis == "preset":  # a guess, for which nothing is refused
            return training, validation
    else:
        training, validation = map(len, open_data(application, config))
    largest = max(*study.batch_sizes, *(borrowed.batch for borrowed in study.borrow), 0)
    if largest > training:
        raise InputError(
            f"--batch-sizes: {largest} is more than the {training} training samples; lower it or use more samples"
        )
    evaluations, steps = config.train.evaluations_per_epoch, -(-training // largest)
    if evaluations > steps:
        raise InputError(
            f"train.evaluations_per_epoch ({evaluations}) is more than the {steps} optimizer steps of an epoch at "
            f"batch {largest}; lower it or --batch-sizes, or use more samples"
        )
    return training, validation


def check_same_data(study: Study, path: Path, statuses: Statuses, samples: int) -> None:
    """Raise ``InputError`` if runs of the study in ``path`` had other data than ``data.root`` has now.

    A relative ``data.root`` means another dataset in another directory: with another number of training samples than
    ``samples``, or simulated in another way. Nothing is refused if the dataset is not on this machine, or an
    optimizer's own settings choose its samples.
    """
    root = shared_config(study).data.root
    if not Path(root).exists() or any(key.startswith("data.") for own in study.own_settings.values() for key in own):
        return
    simulated, where = record_text(root), Path(root).resolve()
    advice = "continue the study in the directory where it began, or give another --study-dir"
    for name, state in statuses.items():
        summary = state.summary if state.done else None
        if summary is None:
            continue
        if summary.train_samples not in (0, samples):
            raise InputError(
                f"data.root ({where}) gives {samples} training samples, and {path / 'runs' / name} had "
                f"{summary.train_samples}; {advice}"
            )
        if differing := difference_of_texts(summary.simulated_data, simulated):
            setting, before, now = differing
            raise InputError(
                f"data.root ({where}) was simulated with {setting} {now}, and the data of {path / 'runs' / name} with "
                f"{before}; {advice}"
            )


def shared_config(study: Study) -> RunConfig:
    """What all runs have in common, apart from optimizer and schedule."""
    return study_config(study, beside_the_recipe(study.settings))


def show_plan(
    study: Study, folder: StudyFolder, statuses: Statuses, options: ExecutionOptions, executor: Executor,
    samples: tuple[int, int],
) -> None:  # fmt: skip
    """Print the matrix, and what the runs that are left take: time here, jobs and node-hours on a site."""
    say(f"{size(study)}\n\n{plan_table(study, statuses)}\n")
    todo = sum(count for _, count in left(study, statuses))
    if not todo:
        say("nothing is left to run")
    elif isinstance(executor, PackedJobs):
        site = find_site(study.site)
        say("\n".join([cost(study, executor.site, statuses), "", *fit_lines(study, site, packing_of(study, site))]))
    elif isinstance(executor, LocalRuns) and options.estimate:
        slots = executor.slots
        speed = speed_of_runs(statuses, folder) or first_speed(study, executor.launcher, slots, samples)
        say(speed.words(todo, len(slots)))


def first_speed(study: Study, launcher: Launcher, slots: Sequence[Slot], samples: tuple[int, int]) -> Speed:
    """The speed, measured with a short run of the study's first row."""
    say("measuring the speed with a short run")
    row = next(point for point in points(study) if not point.source)
    first = study_run(study, PlannedRun(row, study.lr_search[0], 1))
    with tempfile.TemporaryDirectory() as temporary:
        return calibrate(first, launcher, Path(temporary), samples, slots, shared_config(study).train)


def cost(study: Study, site: Site, statuses: Statuses) -> str:
    """The jobs for the runs that are left, and their node-hours at most; a search includes the runs that follow it."""
    packing, planned = packing_of(study, site), next_runs(study, statuses)
    total = sum(count for _, count in left(study, statuses))
    waiting = sum(state.under_way for state in statuses.values())
    now = sum(not statuses[run.name].under_way for run in planned)
    later = total - len(planned)
    jobs = -(-now // packing.runs_per_job) + -(-later // packing.runs_per_job)
    one = packed_job(study, site, packing, [study_run(study, run) for run in planned[:1]], Path("jobs/0001"), False)
    gpus = f" and {counted(packing.gpus, 'GPU')}" if packing.gpus else ""
    share = f"{packing.side_by_side} side by side on a node, {counted(packing.cores, 'core')}{gpus} each"
    words = (
        f"{site.title}: {counted(jobs, 'job')} of at most {counted(packing.runs_per_job, 'run')} ({share}), at most "
        f"{jobs * one.node_hours:.3g} node-hours an attempt ({one.time_s / 3600:.3g} h each)"
        + (f"; {counted(waiting, 'run')} under way" if waiting else "")
        + ("; more where searches widen" if may_widen(study, statuses) else "")
    )
    return wrapped(words)


def make_runs(
    study: Study, folder: StudyFolder, options: ExecutionOptions, executor: Executor, statuses: Statuses
) -> dict[str, RunStatus]:
    """Make all missing runs, and print a line for each one that ends; returns the status of all runs."""
    slots = len(executor.slots) if isinstance(executor, LocalRuns) else None
    ended = sum(state.final and not (options.retry and state.status == "failed") for state in statuses.values())
    progress = Progress(ended, slots or 0)

    def finished(name: str, state: RunStatus, seconds: float | None) -> None:
        progress.finished(name, state, seconds, sum(count for _, count in left(study, runner.statuses)))

    queue = study.job_request().queue
    most_jobs = executor.site.most_jobs_in(queue) if isinstance(executor, PackedJobs) else None
    runner = StudyRunner(
        folder, executor, runs_of(study), slots or options.at_once or most_jobs, options.wait or slots is not None,
        options.retry, options.keep, finished,
    )  # fmt: skip
    return runner.run(statuses)


def runs_of(study: Study) -> Callable[[Statuses], list[StudyRun]]:
    """A function that returns the runs to make next, as the runner calls it."""
    return lambda statuses: [study_run(study, run) for run in next_runs(study, statuses)]


def read_statuses(study: Study, folder: StudyFolder) -> dict[str, RunStatus]:
    """The status of all runs that the study could have."""
    return study_statuses(folder, possible_names(study))


def conclude(study: Study, folder: StudyFolder, statuses: Statuses) -> None:
    """Write the report, or, while runs are under way, print the commands that show and continue the study."""
    if not any(state.under_way for state in statuses.values()):
        report(folder)
        if any(count for _, count in left(study, statuses)):
            say(f"continue: hpcbench study resume {folder.path}")
        return
    say(f"\n{status_line(study, statuses)}\nstatus: hpcbench study status {folder.path}\n"
        f"tables and page, also before the end: hpcbench study report {folder.path}\n"
        f"what is left, when they have ended: hpcbench study resume {folder.path}")  # fmt: skip


def status(study: Study, folder: StudyFolder) -> tuple[str, int]:
    """The plan with its progress, and why runs failed, were interrupted or are unknown; and the exit code.

    The code is 2 if the record of a job is damaged, since the runs of that job are not known.
    """
    damaged: list[DataError] = []
    statuses = study_statuses(folder, possible_names(study), damaged)
    told = [*map(str, damaged), *reasons(statuses)]
    again = [f"continue: hpcbench study resume {folder.path}"] if told else []
    at_work = [state.job.folder for state in statuses.values() if state.job_runs and state.job is not None]
    hours = total_words(worked_in(folder), at_work, "job")
    plan = [size(study), "", plan_table(study, statuses), "", status_line(study, statuses)]
    return "\n".join([*plan, *([hours] if hours else []), *told, *again]), BAD_INPUT if damaged else DONE


def reasons(statuses: Statuses) -> list[str]:
    """Why runs failed, were interrupted or are unknown; a reason that the runs of a job share takes one line."""
    run_counts: Counter[tuple[str, str, str]] = Counter()
    for name, state in statuses.items():
        if state.reason and state.status in ("failed", "interrupted", "unknown", "absent"):
            is_of_run = state.job is None or state.status == "failed"
            title = name if is_of_run or state.job is None else f"jobs/{state.job.folder.name}"
            run_counts[title, WORDS.get(state.status, state.status), state.reason] += 1
    return [
        f"{title}: {word}: {reason}" if title in statuses else f"{title}: {counted(count, 'run')} {word}: {reason}"
        for (title, word, reason), count in run_counts.items()
    ]


def status_line(study: Study, statuses: Statuses) -> str:
    """How many runs have which status; ``left`` have neither ended nor are they under way."""
    run_counts = counted_by_status(list(statuses.values()))
    run_counts["left"] = sum(count for _, count in left(study, statuses)) - sum(
        state.under_way for state in statuses.values()
    )
    return "runs: " + ", ".join(f"{count} {name}" for name, count in run_counts.items())


def cancel_study(folder: StudyFolder) -> int:
    """Cancel every job of the study that waits or runs; returns the exit code."""
    return cancel_jobs(folder, possible_names(read_study(folder)))


def report(folder: StudyFolder) -> None:
    """Write tables, plots and page from the run folders, and print where they are."""
    from hpcbench.study.page import write_study

    study = read_study(folder)
    statuses = read_statuses(study, folder)
    text = write_study(study, folder, statuses)
    done = counts(study, statuses)
    ends = ", ".join(f"{count} {name}" for name, count in done.items() if count or name == "left")
    say(f"\n{text}\n\nruns: {ends}\npage: {folder.page}")
    if done["failed"]:
        say(f"{done['failed']} failed: see {folder.logs}; again: hpcbench study resume {folder.path}")


def read_study(folder: StudyFolder) -> Study:
    """The definition in a study's folder. Raises ``InputError`` if there is none."""
    definition = folder.read()
    if definition is None:
        raise InputError(f"{folder.path} holds no study.json; give the --study-dir of a study")
    return Study.from_dict(definition, folder.definition)
