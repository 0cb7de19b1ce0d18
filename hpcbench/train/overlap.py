"""Trains from what lands: the first epoch reads samples as a staging beside it brings them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.data.files import split_files
from hpcbench.data.loader import BatchLoader
from hpcbench.data.sampler import epoch_order
from hpcbench.train.arrivals import Arrivals, ArrivingSamples
from staging.errors import InputError
from staging.options import StageOptions
from staging.ranks.world import World

if TYPE_CHECKING:
    from hpcbench.train.context import Run


def begin(run: Run, options: StageOptions, world: World, destination: Path, names: list[str]) -> None:
    """Start to stage ``names``, and train from what lands; collective. Raises ``InputError`` where that cannot work."""
    parts = files_of_samples(run)
    order = epoch_order(len(parts), run.seed, run.state.epoch + 1)
    first = [name for index in order for name in parts[int(index)]]
    others = sorted(set(names) - set(first))
    run.arrivals = Arrivals(options, world, first + others)
    # Without worker processes, so that what is waited for can be measured; an epoch that waits for data has no use
    # for more readers.
    root = Path(run.config.data.root)
    run.training_loader = BatchLoader(
        ArrivingSamples(run.training, parts, root, destination, run.arrivals), 0, pin=False
    )


def files_of_samples(run: Run) -> list[list[str]]:
    """The files of each training sample, relative to ``data.root``. Raises ``InputError`` where that is not known."""
    root, number = Path(run.config.data.root), len(run.training)
    names = [path.relative_to(root).as_posix() for path in split_files(run.application, run.config, "train")]
    if not hasattr(run.training, "files") or not number or len(names) % number:
        raise InputError(
            f"staging.overlap: {run.application.name} does not say which files a sample is in; give its dataset a list "
            "`files`, one per sample, or set staging.overlap false"
        )
    each = len(names) // number
    return [names[start : start + each] for start in range(0, len(names), each)]
