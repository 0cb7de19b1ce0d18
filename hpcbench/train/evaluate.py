"""Evaluation over the whole validation set, exact for any number of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpcbench.data.loader import BatchLoader
from hpcbench.data.sampler import rank_share

if TYPE_CHECKING:
    from hpcbench.train.context import Run

EXAMPLES = 6
"""Validation samples that are kept for the report's pictures."""


@torch.no_grad()
def evaluate(run: Run) -> dict[str, float]:
    """Metrics of all validation samples. Every rank scores its share; the scores are gathered in sample order."""
    run.average_statistics()
    run.model.eval()
    scores = [torch.empty(0, len(run.task.columns), dtype=torch.float64, device=run.device)]
    for inputs, targets in validation_batches(run):
        prepared, target = run.task.prepare(inputs, targets, None)
        output = run.forward(run.own_part(prepared, run.validation_loader))
        scores.append(run.task.score(output, target))
        run.interrupts.check()
    run.model.train()
    # Ranks that share samples have equal scores, of which one counts.
    own = torch.cat(scores) if run.mesh.spatial_rank == 0 else scores[0]
    run.scores = run.group.all_gather_rows(own).cpu()
    return run.task.metrics(run.scores)


@torch.no_grad()
def keep_examples(run: Run) -> dict[str, Tensor]:
    """What the task keeps of the first validation samples, computed by the ranks that share them with the first."""
    run.model.eval()
    count = min(EXAMPLES, len(run.validation))
    batches = [rank_share(count, number, count) for number in range(count)]
    kept: dict[str, list[Tensor]] = {}
    loader = BatchLoader(run.validation, 0, pin=False)  # of whole samples, which are seen in the pictures
    for inputs, targets in loader.load(batches):
        prepared, target = run.task.prepare(run.to_device(inputs), run.to_device(targets), None)
        output = run.forward(run.own_part(prepared, loader))
        for name, value in run.task.example(prepared, output, target).items():
            kept.setdefault(name, []).append(value.cpu())
    run.model.train()
    return {name: torch.cat(values) for name, values in kept.items()}


def validation_batches(run: Run):  # type: ignore[no-untyped-def]
    """This rank's share of the validation set, on the device."""
    size = run.config.train.eval_batch_size or run.config.train.local_batch_size
    share = rank_share(len(run.validation), run.mesh.data_rank, run.mesh.shape.data)
    # Passes of sharded parameters are for all ranks: those with fewer samples take part in as many, with none.
    sharded = run.config.parallel.shard_states
    longest = -(-len(run.validation) // run.mesh.shape.data) if sharded else len(share)
    batches = [share[start : start + size] for start in range(0, longest, size)]
    for inputs, targets in run.validation_loader.load(batches):
        yield run.to_device(inputs), run.to_device(targets)
