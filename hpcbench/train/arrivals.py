"""Staging under the first epoch: a thread brings the dataset, in the order in which the epoch takes it.

A sample that is not there yet is waited for, in its turn, so that the order of samples is that of any other run. What
is waited is charged to staging: the exposed part. Shared files are read from the source, which all ranks see.
"""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from hpcbench.data.files import split_files
from hpcbench.data.loader import BatchLoader
from hpcbench.data.sampler import epoch_order
from staging.errors import InputError
from staging.options import StageOptions
from staging.report import StagingReport
from staging.stage import stage
from staging.world import World

if TYPE_CHECKING:
    from hpcbench.train.context import Run

LOOK_EVERY_S = 0.002


class Arrivals:
    """A staging in a thread of this process, and how long training waited for it."""

    def __init__(self, options: StageOptions, world: World, names: list[str]) -> None:
        self.world = world
        self.waited_s = 0.0
        """Seconds that readers waited for samples."""
        self._report: StagingReport | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._stage, args=(options, world, names), name="staging", daemon=True)
        self._thread.start()

    def _stage(self, options: StageOptions, world: World, names: list[str]) -> None:
        try:
            self._report = stage(options, world, names, quiet=True)
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """Raise what ended the staging, if anything did."""
        if self._error is not None:
            raise self._error

    def wait_for(self, path: Path) -> None:
        """Return when ``path`` has landed. Raises what ended the staging before."""
        if path.exists():
            return
        start = time.perf_counter()
        while self._thread.is_alive() and not path.exists():
            time.sleep(LOOK_EVERY_S)
        self.check()
        self.waited_s += time.perf_counter() - start

    def finish(self) -> StagingReport:
        """Wait for the end. Raises what ended the staging."""
        self._thread.join()
        self.check()
        assert self._report is not None
        return self._report


class ArrivingSamples(Dataset[Any]):
    """The samples of ``source``, a dataset with ``files``, read where they land; all files of one are waited for."""

    def __init__(self, source: Any, parts: list[list[str]], root: Path, destination: Path, arrivals: Arrivals) -> None:
        self._samples = copy.copy(source)
        self._samples.files = [destination / path.relative_to(root) for path in source.files]
        self._parts = [[destination / name for name in names] for names in parts]
        self._arrivals = arrivals

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        for path in self._parts[index]:
            self._arrivals.wait_for(path)
        return self._samples[index]


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
