"""Staging under the first epoch: a thread brings the dataset, in the order in which the epoch takes it.

A sample that is not there yet is waited for, in its turn, so that the order of samples is that of any other run. What
is waited is charged to staging: the exposed part. Shared files are read from the source, which all ranks see.
"""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from staging.options import StageOptions
from staging.ranks.world import World
from staging.report import StagingReport
from staging.stage import stage

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
