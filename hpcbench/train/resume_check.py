"""Checks that the tables and the log of a run folder reach as far as the checkpoint that a run resumes from.

A checkpoint is declared complete after the tables and the log up to it are on disk. Folders of earlier versions, or
files that were changed since, may still end before it; a run that continued would have a gap that nobody notices.
"""

from __future__ import annotations

from pathlib import Path

from hpcbench.results.checkpoint_files import advice_if_unusable, refusal
from hpcbench.results.mllog_reader import parse_events
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.state import State

QUALITY = ("eval_error", "eval_accuracy")
"""Keys of an evaluation's metric in the log."""


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
