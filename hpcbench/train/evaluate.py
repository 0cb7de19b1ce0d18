"""Evaluation over the whole validation set, exact for any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from hpcbench.data.bad_samples import bad_rows, first_bad_score
from hpcbench.data.loader import BatchLoader
from hpcbench.data.sampler import rank_share
from hpcbench.exits import Aborted
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import DataPath
from hpcbench.train.not_finite import end_for_bad_sample
from hpcbench.train.task import Task
from hpcbench.train.training_step import TrainingStep

EXAMPLES = 6
"""Validation samples that are kept for the report's pictures."""


@torch.no_grad()
def evaluate(
    run: RunContext, data: DataPath, step: TrainingStep, after_batch: Callable[[], None] = lambda: None
) -> tuple[Tensor, dict[str, float]]:
    """Scores (samples, columns) float64 of all validation samples on the host, in sample order, and their metrics.

    Every rank scores its share, and all ranks call ``after_batch`` equally often. Raises ``Aborted`` if an output of
    the model, a score or the task's own metric is not finite, with the file of a sample that explains it.
    """
    step.average_statistics()
    step.model.eval()
    columns = (*run.task.columns, "output")
    scores = [torch.empty(0, len(columns), dtype=torch.float64, device=run.device)]
    for inputs, targets in data.validation_batches():
        prepared, target = run.task.prepare(inputs, targets, None)
        part = run.precision.as_input(data.local_part(prepared, data.validation_loader))
        output = step.forward(part, target)
        run.task.check_batch(step.model, part, target)
        scores.append(torch.cat((run.task.score(output, target), values_not_finite(output)), dim=1))
        after_batch()
    for _ in range(data.evaluation_batches - len(scores) + 1):
        after_batch()
    step.model.train()
    # Ranks that share samples have equal scores, of which one counts.
    local = torch.cat(scores) if run.mesh.spatial_rank == 0 else scores[0]
    gathered = run.group.all_gather_rows(local).cpu()
    if first_bad_score(gathered, data.validation, columns) is not None:  # on all ranks, since all have all scores
        end_for_bad_scores(run, data.validation, gathered, columns)
    gathered = gathered[:, :-1].contiguous()
    metrics = run.task.metrics(gathered)
    value = metrics[run.task.metric]
    if not math.isfinite(value):
        advice = "check how the task computes it, or lower --optim.lr"
        reason = f"{run.task.metric} of the validation set is {value}, though all scores are finite; {advice}"
        raise Aborted(reason, cause="diverged", everywhere=True)
    return gathered, metrics


def values_not_finite(output: Tensor) -> Tensor:
    """A value that is not finite for each sample whose ``output`` (batch, ...) has one, else 0: (batch, 1) float64.

    A task may turn such an output into finite scores, as ``argmax`` does. Nothing waits for the device.
    """
    output = output.unsqueeze(1)
    inner = tuple(range(1, output.dim()))
    middle = (output.amax(inner).double() / 2 + output.amin(inner).double() / 2).unsqueeze(1)
    return torch.where(middle.isfinite(), 0.0, middle)


def end_for_bad_scores(run: RunContext, validation: Any, scores: Tensor, columns: tuple[str, ...]) -> NoReturn:
    """Raise ``Aborted`` for the ``scores`` of all samples; each rank checks the files of its own share."""
    own_rows = set(rank_share(len(scores), run.mesh.data_rank, run.mesh.shape.data).tolist())
    indices = [row for row in bad_rows(scores).tolist() if row in own_rows]
    end_for_bad_sample(run.group, run.task, validation, indices, str(first_bad_score(scores, validation, columns)))


@torch.no_grad()
def keep_examples(task: Task, data: DataPath, step: TrainingStep) -> dict[str, Tensor]:
    """What the task keeps of the first validation samples, computed by the ranks that share samples with rank 0."""
    step.model.eval()
    count = min(EXAMPLES, len(data.validation))
    batches = [rank_share(count, number, count) for number in range(count)]
    examples: dict[str, list[Tensor]] = {}
    # of whole samples, which the pictures show
    loader = BatchLoader(data.validation, 0, pin=False, first_reads=data.first_reads)
    for inputs, targets in loader.load(batches):
        prepared, target = task.prepare(data.to_device(inputs), data.to_device(targets), None)
        output = step.forward(data.local_part(prepared, loader), target)
        for name, value in task.example(prepared, output, target).items():
            examples.setdefault(name, []).append(value.cpu())
    step.model.train()
    return {name: torch.cat(values) for name, values in examples.items()}
