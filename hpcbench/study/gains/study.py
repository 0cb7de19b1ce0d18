"""A gains study from first to last: plan, show, run, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench.exits import DONE
from hpcbench.results.units import counted
from hpcbench.study.folder import StudyFolder, begun, held
from hpcbench.study.gains.definition import KIND, Gains, grow
from hpcbench.study.gains.plan import PLAIN_OPTION, PlannedRun, alone, due, status, study_run, together
from hpcbench.study.gains.plan_text import missing_text, plan_table
from hpcbench.study.local_runs import Launcher, LocalLauncher, LocalRuns
from hpcbench.study.preset_values import refuse_changed_preset, study_config
from hpcbench.study.progress import Progress, say
from hpcbench.study.run_slots import Devices, Slot, find_devices, local_slots
from hpcbench.study.run_status import RunStatus, Statuses, counted_by_status
from hpcbench.study.runner import ExecutionOptions, StudyRunner
from hpcbench.study.study_jobs import study_statuses
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError


def run_study(study: Gains, path: Path, options: ExecutionOptions, *, dry_run: bool = False) -> int:
    """Make the missing runs of the study in the folder ``path``, one at a time; ``dry_run`` only shows the plan.

    Returns the exit code. Raises ``InputError`` for a folder of another study or one in use, ``Aborted`` for a signal.
    """
    folder = StudyFolder(path)
    if dry_run:
        study = merged(study, folder)
        refuse_changed_preset(study, path)
        say(plan(study, study_statuses(folder, names(study))))
        return DONE
    with held(folder) as lock:
        study = merged(study, folder)
        refuse_changed_preset(study, path)
        with begun(folder, study.as_dict(), lambda: report(folder)):
            say(plan(study, study_statuses(folder, names(study))))
            make_runs(study, folder, options, LocalLauncher(lock), [slot(study)])
        report(folder)
    return DONE


def slot(study: Gains) -> Slot:
    """The cores and accelerators of a run: all that the study has. Raises ``InputError`` if there are fewer now."""
    devices = find_devices() if study.accelerators else Devices()
    if len(devices.ids) < study.accelerators:
        raise InputError(
            f"the study began with {counted(study.accelerators, 'accelerator')}, and this machine has "
            f"{len(devices.ids)}; continue where it began"
        )
    return local_slots(1, study.ranks if study.accelerators else 1, devices)[0]


def make_runs(
    study: Gains, folder: StudyFolder, options: ExecutionOptions, launcher: Launcher, slots: list[Slot],
    speak: Callable[[str], None] = say,
) -> dict[str, RunStatus]:  # fmt: skip
    """Make all missing runs, and print a line for each one that ends; returns the status of all runs.

    Every option runs alone first; when these runs have ended, the options that helped run together.
    """

    stages = Stages(study, folder)

    def finished(name: str, state: RunStatus, seconds: float | None) -> None:
        progress.finished(name, state, seconds, len(stages.due(runner.statuses)))

    statuses = read_statuses(study, folder)
    ended = sum(state.final and not (options.retry and state.status == "failed") for state in statuses.values())
    progress = Progress(ended, len(slots), speak)
    runner = StudyRunner(folder, LocalRuns(folder, launcher, slots), stages.next_runs, len(slots), True,
                         options.retry, options.keep, finished)  # fmt: skip
    return runner.run(statuses)


@dataclass
class Stages:
    """The runs that are due: first every option alone, then those that helped together, which are determined once."""

    study: Gains
    folder: StudyFolder
    second: list[PlannedRun] | None = None

    def due(self, statuses: Statuses) -> list[PlannedRun]:
        """The runs that can be made: of the first stage while it lasts, then of the second."""
        first = alone(self.study)
        left = due(first, statuses)
        if left or any(status(statuses, run).under_way for run in first):
            return left
        if self.second is None:
            self.second = second_stage(self.study, self.folder, statuses)
        # Some of these may exist already, from before the first stage grew or lost a run.
        new = [run.name for run in self.second if run.name not in statuses]
        return due(self.second, {**study_statuses(self.folder, new), **statuses})

    def next_runs(self, statuses: Statuses) -> list[StudyRun]:
        """The same runs, as the runner calls for them."""
        return [study_run(self.study, run) for run in self.due(statuses)]


def second_stage(study: Gains, folder: StudyFolder, statuses: Statuses) -> list[PlannedRun]:
    """The runs of the options that helped, together, and the baseline beside them; none before all have run alone."""
    from hpcbench.study.gains.results import chosen, read_alone

    option = chosen(read_alone(study, folder, statuses))
    return [] if option is None else together(study, option)


def names(study: Gains) -> list[str]:
    """Names of the runs of the first stage."""
    return [run.name for run in alone(study)]


def read_statuses(study: Gains, folder: StudyFolder) -> dict[str, RunStatus]:
    """The status of all runs, including those of the second stage if the first has ended."""
    statuses = study_statuses(folder, names(study))
    if not all(state.final for state in statuses.values()):
        return statuses
    return statuses | study_statuses(folder, [run.name for run in second_stage(study, folder, statuses)])


def merged(study: Gains, folder: StudyFolder) -> Gains:
    """The study merged with the one in the folder. Raises ``InputError`` if the two cannot be compared."""
    before = folder.read()
    if before is None:
        return study
    if before.get("kind") != KIND:
        raise InputError(
            f"{folder.path} holds another study: its kind is {before.get('kind')}, this one's {KIND}; give another "
            "--study-dir"
        )
    return grow(Gains.from_dict(before, folder.definition), study, folder.path)


def read_study(folder: StudyFolder) -> Gains:
    """The definition in a study's folder. Raises ``InputError`` if there is none."""
    definition = folder.read()
    if definition is None:
        raise InputError(f"{folder.path} holds no study.json; give the --study-dir of a study")
    return Gains.from_dict(definition, folder.definition)


def plan(study: Gains, statuses: Statuses) -> str:
    """The options with what each sets, those that are not measured, and how many runs there are."""
    runs = alone(study)
    rows = [
        (option.label, option.name, sets(option.settings, option.ranks), f"{done} of {study.repeats}")
        for option in (PLAIN_OPTION, *study.options)
        for done in [sum(status(statuses, run).final for run in runs if run.option.name == option.name)]
    ]
    head = (
        f"{study.application}, preset {study.preset}: {counted(study.ranks, 'rank')} of "
        f"{counted(max(1, study.cores // study.ranks), 'thread')}, global batch {study.global_batch_size}, "
        f"{study.steps} steps, {counted(study.repeats, 'repeat')}"
    )
    left = len(due(runs, statuses))
    more = f"{counted(left, 'run')} to make, then what helped together: {2 * study.repeats} more at most"
    missing = missing_text([(unmeasured.label, unmeasured.reason) for unmeasured in study.missing])
    return "\n\n".join(part for part in (head, plan_table(rows), missing, f"{more}\n") if part)


def sets(settings: Mapping[str, str], ranks: int | None) -> str:
    """What an option changes, as dotted settings."""
    changes = [f"{key} {value}" for key, value in settings.items()]
    return ", ".join([*changes, *([f"--ranks {ranks}"] if ranks else [])]) or "-"


def status_text(study: Gains, folder: StudyFolder) -> str:
    """The plan with its progress, and why runs failed or were interrupted."""
    statuses = read_statuses(study, folder)
    counts = counted_by_status(list(statuses.values()))
    counts["left"] = len(Stages(study, folder).due(statuses))
    told = [f"{name}: {state.status}: {state.reason}" for name, state in statuses.items()
            if state.reason and state.status in ("failed", "interrupted")]  # fmt: skip
    again = [f"continue: hpcbench study resume {folder.path}"] if told or counts["left"] else []
    line = "runs: " + ", ".join(f"{count} {name}" for name, count in counts.items())
    return "\n".join([plan(study, statuses), line, *told, *again])


def report(folder: StudyFolder) -> None:
    """Write tables, plots and page from the run folders, and print where they are.

    Raises ``InputError`` if no run is done.
    """
    from hpcbench.study.gains.page import PAGE, write_gains
    from hpcbench.study.gains.results import read_results

    study = read_study(folder)
    statuses = read_statuses(study, folder)
    first = next((state.summary for state in statuses.values() if state.done and state.summary is not None), None)
    if first is None:
        reasons = [state.reason for state in statuses.values() if state.reason]
        raise InputError(f"{folder.path} has no run that is done{': ' + reasons[0] if reasons else ''}")
    config = study_config(study, study.settings, study.files)
    text = write_gains(study, read_results(study, folder, statuses), first, config.measure.warmup_steps, folder.path)
    say(f"\n{text}\n\npage: {folder.path / PAGE}")
    if Stages(study, folder).due(statuses) or any(state.status == "failed" for state in statuses.values()):
        say(f"continue: hpcbench study resume {folder.path}")
