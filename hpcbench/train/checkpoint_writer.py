"""Writes checkpoints while the training continues: a copy in host memory, which a thread then writes.

The loop is held only while the state is copied. What is written is bit-identical to the state when ``save`` was called.
One checkpoint is in progress at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch.distributed as dist

from hpcbench.exits import Aborted
from hpcbench.parallel.group import Group
from hpcbench.parallel.shard_gathering import own_group
from hpcbench.train import checkpoint_io
from hpcbench.train.checkpoint_io import Checkpoint
from hpcbench.train.checkpoint_times import ASSUMED_BANDWIDTH, CheckpointTimes, SaveTime
from hpcbench.train.host_copy import HostCopy, without_shards
from staging.ranks.process_exit import leave_at_exit

CHECK_S = 0.5
"""How often a wait for a checkpoint checks whether it may continue."""


class CheckpointWriter:
    """Writes the checkpoints of a run into ``folder`` and keeps the newest ``keep``. Rank 0 writes.

    ``sharded`` says that parameters are sharded over ranks (FSDP2): then all ranks take part in each checkpoint, and
    making the writer, ``save`` and ``wait`` are collective. ``timeout_s`` bounds the messages between them, including
    the wait for rank 0's disk. Unless ``asynchronous``, each ``save`` waits until everything is on disk.
    ``sync_records`` is called on the writing rank, before a checkpoint is declared complete (``checkpoint_io.save``).
    """

    def __init__(
        self, folder: Path, keep: int, group: Group, *, sharded: bool = False, asynchronous: bool = True,
        timeout_s: float = 1800, times: CheckpointTimes | None = None,
        sync_records: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.folder, self.keep, self.asynchronous = folder, keep, asynchronous
        self.times = CheckpointTimes() if times is None else times
        self.sync_records = sync_records
        self.on_written: Callable[[], object] = lambda: None
        """Called in the thread of the rank that writes, when a checkpoint is complete and its times are known."""
        self.check: Callable[[], object] = lambda: None
        """Called repeatedly during a wait for a checkpoint; raises ``Aborted`` if there is no time to wait longer."""
        self.on_left: Callable[[SaveTime], object] = lambda step: None
        """Called with a checkpoint that is abandoned for that reason."""
        self.rank = group.rank
        self.takes_part = group.is_main or sharded
        """Whether this rank has anything to do in ``save``."""
        self._group: Any = own_group(timeout_s) if sharded and group.world_size > 1 else None
        self._world_size = group.world_size
        self._host = HostCopy()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._current: SaveTime | None = None
        self._started = 0.0
        self._expected_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
        else:
            # Whatever ended the run, a checkpoint in progress can still complete; its error would hide the other one.
            with contextlib.suppress(Aborted):
                self._join()

    @property
    def host_bytes(self) -> int:
        """Host memory that the copies of this rank take."""
        return self._host.nbytes

    @property
    def completed(self) -> int:
        """Checkpoints that are on disk by now; 0 on ranks that write none."""
        return sum(save.write_bytes > 0 for save in self.times.saves)

    def save(self, checkpoint: Checkpoint, *, wait: bool = False) -> None:
        """Copy ``checkpoint``, whose tensors may be sharded or on an accelerator, and write it in a thread.

        First waits for a checkpoint in progress, so this raises what ``wait`` raises. With ``wait`` it also waits for
        this one. Ranks that do not take part return at once.
        """
        if not self.takes_part:
            return
        started = time.perf_counter()
        self._finish()
        copying = time.perf_counter()
        copied = replace(checkpoint, **self._host.copy(vars(checkpoint)))
        now = time.perf_counter()
        step = SaveTime(checkpoint.state["epoch"], checkpoint.state["step"], now - started, now - copying)
        self.times.saves.append(step)
        self._current, self._started = step, now
        self._expected_s = self._seconds_for(self._host.nbytes)
        # A daemon, so that a process whose time is up can end without it; otherwise the process waits for it.
        self._thread = threading.Thread(target=self._write, args=(copied, step), name="checkpoint", daemon=True)
        self._thread.start()
        if wait or not self.asynchronous:
            self._finish()
            step.stall_s = time.perf_counter() - started

    def wait(self) -> None:
        """Return when the checkpoint in progress is on disk, on all ranks that take part.

        Raises an error once: ``OSError`` with the file's name for the disk, ``Aborted`` for a parameter that is not
        finite. Ranks that take part without writing raise ``Aborted`` with the same reason. If ``check`` raises, the
        checkpoint is abandoned: the process ends at its exit, whether the checkpoint is written or not.
        """
        started = time.perf_counter()
        try:
            self._finish()
        finally:
            if self.times.saves:
                self.times.saves[-1].stall_s += time.perf_counter() - started

    def expected_write_s(self, nbytes: int) -> float:
        """Seconds until a checkpoint of ``nbytes`` would be on disk if it were begun now.

        Estimated from the slowest bandwidth of this attempt, else of earlier ones, and before any is known from
        ``ASSUMED_BANDWIDTH``; includes the rest of one in progress. If that one takes longer than expected, the next is
        assumed to need as long. ``host_copy.tree_bytes`` gives the bytes of a state. Only rank 0 has measured anything.
        """
        left, write_s = 0.0, self._seconds_for(nbytes)
        if self._thread is not None and self._thread.is_alive():
            passed = time.perf_counter() - self._started
            left, write_s = max(self._expected_s - passed, 0.0), max(write_s, passed)
        copy_s = max((save.copy_s for save in self.times.saves), default=0.0)
        return left + copy_s + write_s

    def _seconds_for(self, nbytes: int) -> float:
        return nbytes / (self.times.slowest_write or ASSUMED_BANDWIDTH)

    def _write(self, copied: Checkpoint, step: SaveTime) -> None:
        """Gather shards, write, and keep any error; runs in the thread. No operation of torch may run here.

        Torch would use as many threads as the training does, and take its cores.
        """
        try:
            started = time.perf_counter()
            wholes = self._host.shards.gather(self._group)
            if self.rank == 0:
                assert wholes is not None
                whole = replace(copied, **without_shards(vars(copied), iter(wholes)))
                path = checkpoint_io.save(whole, self.folder, self.keep, self.sync_records)
                step.write_s = time.perf_counter() - started
                step.write_bytes = path.stat().st_size
                self.on_written()
        except BaseException as error:
            self._error = error

    def _finish(self) -> None:
        """Wait for the checkpoint in progress and raise its error, at the same time on all ranks."""
        self._join()
        if self._current is None:
            return
        self._current, error, self._error = None, self._error, None
        if self._group is not None:
            reasons: list[Any] = [None] * self._world_size
            dist.all_gather_object(reasons, None if error is None else str(error), group=self._group)
            failures = [(rank, reason) for rank, reason in enumerate(reasons) if reason is not None]
            if failures and error is None:
                raise Aborted(f"checkpoint of rank {failures[0][0]}: {failures[0][1]}")
        if error is not None:
            raise error

    def _join(self) -> None:
        """Wait for the thread for as long as ``check`` allows; if that raises, leave the thread to itself."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(CHECK_S)
            if self._thread.is_alive():
                try:
                    self.check()
                except Aborted:
                    self._leave()
                    raise
        self._thread = None

    def _leave(self) -> None:
        """Leave the checkpoint in progress to its thread, which ends with the process."""
        step, self._thread, self._current = self._current, None, None
        leave_at_exit()
        if step is not None:
            self.on_left(step)
