"""Names the sample, and its file, behind a score or a loss that is not a finite number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Subset

from hpcbench.data.loader import collate_of
from hpcbench.data.shard import Shard
from staging.errors import InputError

LARGEST = torch.finfo(torch.float32).max ** 0.5
"""Numbers above this one, 1.8e19, have no finite square in float32."""


class Preparing(Protocol):
    """The part of a ``Task`` that ``blame`` uses."""

    def prepare(self, inputs: Tensor, targets: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a batch as the model and the loss expect it."""
        ...


def file_of_sample(samples: Any, index: int) -> str:
    """Where sample ``index`` of ``samples``, a dataset of a split, is stored, in words for a message.

    A dataset says so with ``file_of(index)``, such as ``all.h5, row 17``, or lists one file per sample in ``files``.
    For any other dataset the answer is ``sample 17``. Subsets and shards are followed to their underlying dataset.
    """
    if isinstance(samples, Shard):
        place = samples.place(index)
        return f"sample {index}, on another node" if place is None else file_of_sample(samples.items, place)
    if isinstance(samples, Subset):
        return file_of_sample(samples.dataset, int(samples.indices[index]))
    if hasattr(samples, "file_of"):
        return str(samples.file_of(index))
    files = getattr(samples, "files", None)
    if isinstance(files, Sequence) and len(files) == len(samples):
        return str(files[index])
    return f"sample {index}"


def bad_rows(scores: Tensor) -> Tensor:
    """Indices of the rows of ``scores`` (samples, columns) that are not all finite."""
    return torch.nonzero(~torch.isfinite(scores).all(dim=1)).flatten()


def first_bad_score(scores: Tensor, samples: Any, columns: Sequence[str]) -> str | None:
    """One line that names the first sample whose scores are not all finite, and its file; ``None`` if there is none.

    ``scores`` (samples, columns) float64 are those of all ``samples`` in order; ``columns`` are the names of the
    columns. The line is for samples in which ``blame`` finds nothing wrong: then the model is the likelier cause.
    """
    rows = bad_rows(scores)
    if not len(rows):
        return None
    row = int(rows[0])
    column = int(torch.nonzero(~torch.isfinite(scores[row]))[0])
    problem = f"{columns[column]} of {file_of_sample(samples, row)} is {float(scores[row, column])}"
    if len(rows) == len(scores):
        return f"{problem}, and no sample has finite scores: the model has diverged; lower --optim.lr"
    others = f", and those of {len(rows) - 1} other samples are not finite" if len(rows) > 1 else ""
    return (
        f"{problem}{others}, though the stored values are in range; lower --optim.lr, or take a wider --train.precision"
    )


def blame(samples: Any, indices: Iterable[int], task: Preparing | None = None) -> str | None:
    """One line that names the first of these samples whose values cannot give a finite loss; ``None`` if all can.

    Reads the samples again: once, for a loss that is not finite. Looks at inputs and targets as stored and, with
    ``task``, as it prepares them on the CPU. Also calls ``check(index)`` of a dataset that checks more than reading
    does. Leaves out samples that this node does not have. Does not raise ``InputError``, but returns its message.
    """
    for index in dict.fromkeys(int(index) for index in indices):
        try:
            problem = _wrong(samples, index, task)
        except InputError as error:
            return str(error)
        if problem:
            return f"{file_of_sample(samples, index)}: {problem}; check the file with `hpcbench data verify`"
    return None


def _wrong(samples: Any, index: int, task: Preparing | None) -> str | None:
    if isinstance(samples, Shard):
        place = samples.place(index)
        return None if place is None else _wrong(samples.items, place, task)
    if isinstance(samples, Subset):
        return _wrong(samples.dataset, int(samples.indices[index]), task)
    collate = collate_of(samples)
    inputs, targets = (
        (torch.as_tensor(part) for part in samples[index][:2])
        if collate is None
        else (part[0] for part in collate([samples[index]]))
    )
    if hasattr(samples, "check"):
        samples.check(index)
    problem = _unusual("input", inputs) or _unusual("target", targets)
    if problem or task is None:
        return problem
    inputs, targets = task.prepare(inputs[None], targets[None], None)
    return _unusual("prepared input", inputs[0]) or _unusual("prepared target", targets[0])


def _unusual(name: str, values: Tensor) -> str | None:
    """What is wrong with the values of a sample, and where."""
    if not values.is_floating_point() or not values.numel():
        return None
    fine = values.abs() <= LARGEST  # false for NaN, too
    if bool(fine.all()):
        return None
    place = tuple(torch.nonzero(~fine)[0].tolist())
    return f"{name} {float(values[place])} at {place}" if place else f"{name} {float(values)}"
