"""Whether a run may be resumed: all ranks see the same checkpoint, its records reach that far, and something is left.

A checkpoint is declared complete after the tables and the log up to it are on disk. Folders of earlier versions, or
files that were changed since, may still end before it; a run that continued would have a gap that nobody notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcbench.config.schema import RunConfig
from hpcbench.measure.mllog_resume import FinishedLog, logged_target
from hpcbench.results.checkpoint_files import advice_if_unusable, complete, refusal
from hpcbench.results.mllog_reader import parse_events
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.units import counted, counted_epochs
from hpcbench.train.state import State
from hpcbench.train.targets import epochs_to_target, is_over
from hpcbench.train.task import Task
from staging.errors import InputError

QUALITY = ("eval_error", "eval_accuracy")
"""Keys of an evaluation's metric in the log."""


def newest_checkpoint(run_dir: Path) -> str:
    """The name of the newest checkpoint of a run folder, as this rank sees it; empty if there is none."""
    return "".join(path.name for path in complete(RunFolder(run_dir).checkpoints)[-1:])


def check_same(seen: Sequence[str]) -> None:
    """Raise ``InputError`` unless all ranks, in order, have ``seen`` the same newest checkpoint (empty: none).

    Otherwise some would wait for what others never send, or continue from other weights.
    """
    other = next((rank for rank, name in enumerate(seen) if name != seen[0]), None)
    if other is not None:
        names = [f"{name or 'no checkpoint'} on rank {rank}" for rank, name in ((0, seen[0]), (other, seen[other]))]
        raise InputError(
            f"ranks see different newest checkpoints in the run folder: {' and '.join(names)}; give a --run-dir on a "
            "filesystem that all nodes share, or try again in a minute, when all see the same"
        )


def check_records(folder: RunFolder, state: State, checkpoint: Path) -> None:
    """Raise ``InputError`` if a table or the log lacks what precedes ``checkpoint``, which holds ``state``."""
    lacks = missing_rows(folder, state) or missing_events(folder.mllog, state)
    if lacks is not None:
        advice = advice_if_unusable(checkpoint)
        raise refusal(f"{lacks}, which is before the checkpoint {checkpoint.name}; {advice}")


def missing_rows(folder: RunFolder, state: State) -> str | None:
    """The first step or evaluation up to ``state`` that a table lacks, in words."""
    steps, evaluated = folder.steps_of("steps.csv"), folder.steps_of("epochs.csv")
    step = next((step for step in range(1, state.step + 1) if step not in steps), None)
    if step is not None:
        return f"{folder.steps} lacks step {step}"
    row = next((row for row in state.history if int(row["step"]) not in evaluated), None)
    return None if row is None else f"{folder.epochs} lacks the evaluation at step {int(row['step'])}"


def missing_events(log: Path, state: State) -> str | None:
    """The start of the clock or the first evaluation up to ``state`` that the log lacks, in words."""
    if not log.is_file():
        return None  # refused where the run continues the log
    events, _ = parse_events(log.read_text(encoding="utf-8", errors="replace").split("\n"))
    if not any(event.key == "run_start" for event in events):
        return f"{log} lacks run_start"
    logged = {event.epoch for event in events if event.key in QUALITY}
    row = next((row for row in state.history if row["epoch"] not in logged), None)
    return None if row is None else f"{log} lacks the evaluation at epoch {row['epoch']:g}"


def refuse_met_before(folder: RunFolder, config: RunConfig, task: Task, state: State) -> None:
    """Raise ``InputError`` if the run is given another target that one of its evaluations met before.

    Its clock went on after that evaluation, so the log has no time to that target.
    """
    met = epochs_to_target(config, task, state)
    if met is not None and logged_target(folder.mllog) != config.train.target:
        raise InputError(
            f"the run in {folder.path} met train.target {config.train.target:g} after {counted_epochs(met)} already, "
            "when it had another target, and went on; give a target that it has not met, or start a new run with "
            "--run-dir"
        )


def wants_more(config: RunConfig, task: Task, state: State, end: FinishedLog) -> bool:
    """Whether a run that reached its end is asked to train longer, or to another target; else it lacks its report."""
    return not has_met(config, task, state, end) and not is_over(config, state)


def has_met(config: RunConfig, task: Task, state: State, end: FinishedLog) -> bool:
    """Whether a run that reached its end met the target of ``config``, even if only after its last checkpoint."""
    again = end.cause == "target" and config.train.target == end.target
    return again or epochs_to_target(config, task, state) is not None


def refuse_complete(folder: RunFolder, config: RunConfig, *, met: bool) -> None:
    """Raise ``InputError`` for a run that reached its end and wrote everything; ``met``: whether it met its target."""
    if not folder.summary.exists():
        return
    summary = folder.read_summary()
    if not summary.complete or summary.status == "aborted":
        return
    if summary.status == "target_not_reached":
        if met:
            return
        by_steps = config.train.max_steps is not None
        made = counted(summary.steps, "step") if by_steps else counted_epochs(summary.epochs)
        raise InputError(
            f"the run in {folder.path} has made its {made} and not reached its target; raise "
            f"--train.{'max_steps' if by_steps else 'max_epochs'} to extend it"
        )
    if met:
        raise InputError(f"the run in {folder.path} has reached its target; leave out --resume and use a new --run-dir")
    raise InputError(
        f"the run in {folder.path} has made its {counted_epochs(summary.epochs)}; raise --train.max_epochs to extend it"
    )
