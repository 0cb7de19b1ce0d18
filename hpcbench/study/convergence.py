"""A convergence study from first to last: plan, show, run, report."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.exits import DONE, Aborted
from hpcbench.study.definition import Study, grow
from hpcbench.study.estimate import Speed, calibrate, speed_of_runs
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.job import Job
from hpcbench.study.launcher import Launcher, LocalLauncher
from hpcbench.study.outcome import Outcome
from hpcbench.study.page import write_study
from hpcbench.study.plan import Outcomes, PlannedRun, Point, job, left, next_runs, possible_names
from hpcbench.study.progress import Progress, say
from hpcbench.study.request import beside_the_recipe
from hpcbench.study.runner import Runner
from hpcbench.study.table import counts, plan_table, size
from staging.errors import InputError


@dataclass(frozen=True)
class Ways:
    """How a study is run; nothing of it changes a result."""

    at_once: int
    threads: int
    """Of each run."""
    keep: bool = False
    """Keep checkpoints and per-step tables of runs that are done."""
    retry: bool = False
    """Run again what crashed."""
    estimate: bool = True
    """Say how long it takes, from a short run where none is done."""


def run_study(study: Study, path: Path, ways: Ways, *, dry_run: bool = False) -> int:
    """Run what is missing of the study in the folder ``path`` and write its pages; ``dry_run`` only shows the plan.

    Returns the exit code. Raises ``InputError`` for a folder of another study or one in use, ``Aborted`` for a signal.
    """
    folder = StudyFolder(path)
    if dry_run:
        study = merged(study, folder)
        show_plan(study, folder, ways, LocalLauncher(), check_data(study))
        return DONE
    with held(folder) as lock:
        study = merged(study, folder)
        samples = check_data(study)
        folder.write(study.as_dict())
        show_plan(study, folder, ways, LocalLauncher(lock), samples)
        try:
            make_runs(study, folder, ways, LocalLauncher(lock))
        except (InputError, Aborted):
            with contextlib.suppress(InputError):  # why it ended is more than why there is no page
                report(folder)
            raise
        report(folder)
    return DONE


def merged(study: Study, folder: StudyFolder) -> Study:
    """The study together with what the folder has of it. Raises ``InputError`` where that is another."""
    before = folder.read()
    return study if before is None else grow(Study.from_dict(before, folder.definition), study, folder.path)


def check_data(study: Study) -> tuple[int, int]:
    """Training and validation samples. Raises ``InputError`` where there is no dataset, or one that is too small."""
    from hpcbench.train.build import open_data

    config = shared_config(study)
    training, validation = open_data(find_application(study.application), config)
    largest = max(*study.batch_sizes, *(each.batch for each in study.borrow), 0)
    if largest > len(training):
        raise InputError(
            f"--batch-sizes: {largest} is more than the {len(training)} training samples; lower it or use more samples"
        )
    evaluations, steps = config.train.evaluations_per_epoch, -(-len(training) // largest)
    if evaluations > steps:
        raise InputError(
            f"train.evaluations_per_epoch ({evaluations}) is more than the {steps} optimizer steps of an epoch at "
            f"batch {largest}; lower it or --batch-sizes, or use more samples"
        )
    return len(training), len(validation)


def shared_config(study: Study) -> RunConfig:
    """What all runs have in common beside optimizer and schedule."""
    return resolve(find_application(study.application), study.preset, None, beside_the_recipe(study.settings))


def show_plan(study: Study, folder: StudyFolder, ways: Ways, launcher: Launcher, samples: tuple[int, int]) -> None:
    """Print the matrix, and how long what is left of it takes."""
    outcomes = read_outcomes(study, folder)
    say(f"{size(study)}\n\n{plan_table(study, outcomes)}\n")
    todo = sum(count for _, count in left(study, outcomes))
    if todo and ways.estimate:
        speed = speed_of_runs(outcomes, folder) or first_speed(study, launcher, ways, samples)
        say(speed.words(todo, ways.at_once))
    elif not todo:
        say("nothing is left to run")


def first_speed(study: Study, launcher: Launcher, ways: Ways, samples: tuple[int, int]) -> Speed:
    """The speed of a short run of the study's first row."""
    say("measuring the speed with a short run")
    first = job(study, PlannedRun(Point(study.batch_sizes[0], study.optimizers[0]), study.lr_search[0], 1))
    with tempfile.TemporaryDirectory() as temporary:
        return calibrate(
            first, launcher, Path(temporary), samples, ways.at_once, ways.threads, shared_config(study).train
        )


def make_runs(study: Study, folder: StudyFolder, ways: Ways, launcher: Launcher) -> Outcomes:
    """Run everything that is missing, a line for each."""
    outcomes = read_outcomes(study, folder)
    done = sum(each.final and not (ways.retry and each.status == "crashed") for each in outcomes.values())
    progress = Progress(done, ways.at_once)
    runner = Runner(folder, launcher, ways.at_once, ways.threads, ways.keep, ways.retry)

    def finished(done: Job, outcome: Outcome, seconds: float) -> None:
        progress.finished(done, outcome, seconds, sum(count for _, count in left(study, runner.outcomes)))

    runner.finished = finished
    return runner.run(possible_names(study), jobs_of(study))


def jobs_of(study: Study) -> Callable[[Outcomes], list[Job]]:
    """What is to be run next, as the runner asks for it."""
    return lambda outcomes: [job(study, run) for run in next_runs(study, outcomes)]


def read_outcomes(study: Study, folder: StudyFolder) -> Outcomes:
    """How all runs stand that the study could have."""
    return {name: folder.outcome(name) for name in possible_names(study)}


def report(folder: StudyFolder) -> None:
    """Write tables, plots and page from the run folders, and say where they are."""
    study = read_study(folder)
    outcomes = read_outcomes(study, folder)
    text = write_study(study, folder, outcomes)
    done = counts(study, outcomes)
    ends = ", ".join(f"{count} {name}" for name, count in done.items() if count or name == "left")
    say(f"\n{text}\n\nruns: {ends}\npage: {folder.page}")
    if done["crashed"]:
        say(f"{done['crashed']} crashed: see {folder.logs}; the same command with --retry runs them again")


def read_study(folder: StudyFolder) -> Study:
    """The definition in a study's folder. Raises ``InputError`` where there is none."""
    found = folder.read()
    if found is None:
        raise InputError(f"{folder.path} holds no study.json; give the --study-dir of a study")
    return Study.from_dict(found, folder.definition)
