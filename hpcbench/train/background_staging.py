"""Samples that a thread stages during training.

If a sample has not landed when its turn comes, the run waits for it, so that samples keep the order of any other run.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from staging.errors import EveryRankError, InputError
from staging.prepare import Prepared
from staging.ranks.abort import AbortWatcher
from staging.report import StagingReport
from staging.stage import carry_out

LOOK_EVERY_S = 0.002
NOTICE_S = 3.0
"""How long the training may take to notice that the staging failed, before that ends all ranks."""


Stop = Callable[[], object]
"""Whether a wait should end early."""


def never() -> bool:
    """Never end a wait early."""
    return False


@dataclass
class NoOthers:
    """Takes the place of the watcher if there is only one process."""

    on_abort: Callable[[str], None] | None = None


class BackgroundStaging:
    """A staging in a thread of this process; ``lacking`` are the files of samples that this node does not have yet.

    Making one is collective. It raises on all ranks the error that keeps the staging from moving anything.
    """

    def __init__(self, prepared: Prepared, lacking: Iterable[Path], watcher: AbortWatcher | None) -> None:
        self.world, self.destination = prepared.world, prepared.destination
        self.files_of: Sequence[list[Path]] = []
        """The files of each sample, by its number in the set."""
        # A file with such a name was left by a staging that did not finish, and will be replaced.
        self._stale = {path: inode for path in lacking if (inode := inode_of(path)) is not None}
        self._watcher = watcher if self.world.place.size > 1 else None
        self._alone = NoOthers()
        self._report: StagingReport | None = None
        self._error: BaseException | None = None
        self._moving, self._noticed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._stage, args=(prepared,), name="staging", daemon=True)
        self._thread.start()
        while self._goes_on() and not self._moving.wait(LOOK_EVERY_S):
            pass
        self.check()

    def _stage(self, prepared: Prepared) -> None:
        try:
            self._report = carry_out(
                prepared, quiet=True, watcher=self._watcher or self._alone, on_move=self._moving.set
            )
        except BaseException as error:
            # the ranks then notice at different times, so that each has to tell the others
            late = isinstance(error, EveryRankError) and self._moving.is_set()
            self._error = InputError(str(error)) if late else error
            # The training may hang if another rank waits for samples that will not come.
            if self._watcher is not None and not self._noticed.wait(NOTICE_S):
                self._watcher.end_all(self._error)

    def _goes_on(self) -> bool:
        return self._error is None and self._thread.is_alive()

    def close(self) -> None:
        """Record that a staging in progress ends with the training; with several ranks, the watcher does so."""
        if self._goes_on() and self._alone.on_abort is not None:
            self._alone.on_abort("the training that it was for has ended")

    def check(self) -> None:
        """Raise the error that ended the staging, if there is one."""
        if self._error is not None:
            self._noticed.set()
            raise self._error

    def have_landed(self, paths: Iterable[Path], most_s: float = math.inf, stop: Stop = never) -> bool:
        """Wait until all ``paths`` have landed, ``most_s`` seconds have passed or ``stop()`` is true.

        Returns whether all have landed. Raises the error that ended the staging before that.
        """
        missing = [path for path in paths if not self._has_landed(path)]
        until = time.monotonic() + most_s
        while missing and self._goes_on() and time.monotonic() < until and not stop():
            time.sleep(LOOK_EVERY_S)
            missing = [path for path in missing if not self._has_landed(path)]
        self.check()
        return not missing

    def _has_landed(self, path: Path) -> bool:
        inode = inode_of(path)
        return inode is not None and inode != self._stale.get(path)

    def has_ended(self, most_s: float = math.inf, stop: Stop = never) -> bool:
        """Whether all files have landed; waits as ``have_landed`` does. Raises the error that ended the staging."""
        until = time.monotonic() + most_s
        while self._goes_on() and time.monotonic() < until and not stop():
            self._thread.join(LOOK_EVERY_S)
        self.check()
        return not self._thread.is_alive()

    @property
    def report(self) -> StagingReport:
        """What was staged, once it ``has_ended``."""
        assert self._report is not None
        return self._report


def inode_of(path: Path) -> int | None:
    """The inode of a file; ``None`` if it does not exist."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


class ArrivingSamples(Dataset[Any]):
    """``samples``, each read when all its files, ``parts[index]``, have landed; batches are made as those of them."""

    def __init__(self, samples: Any, parts: list[list[Path]], arrivals: BackgroundStaging) -> None:
        self._samples = samples
        self._parts = parts
        self._arrivals = arrivals
        for name in ("collate", "files", "file_of", "check"):  # what a dataset may say about batches and its files
            if hasattr(samples, name):
                setattr(self, name, getattr(samples, name))

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        self._arrivals.have_landed(self._parts[index])
        return self._samples[index]
