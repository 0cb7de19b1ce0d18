"""Records what this attempt of a run has taken so far, in addition to earlier attempts."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import asdict

from hpcbench.measure.memory import peak_memory_bytes
from hpcbench.measure.process_age import process_age_s
from hpcbench.phase_names import PHASES
from hpcbench.results.attempts import Attempt, Attempts, summed
from hpcbench.train.checkpoint_times import CheckpointTimes
from hpcbench.train.context import RunContext
from hpcbench.train.rank_metrics import NodesEnergy, RankMetrics, gather_rank_metrics
from staging.errors import DataError


class AttemptRecorder:
    """The figures of a run over its attempts; this process is the last attempt, and rank 0 keeps ``attempts.json``."""

    def __init__(
        self, run: RunContext, rank_metrics: RankMetrics, checkpoints: CheckpointTimes, earlier: Attempts, step: int
    ) -> None:
        """``earlier`` are the attempts before, and ``step`` the last optimizer step that this one need not repeat."""
        self.run, self.rank_metrics, self.earlier = run, rank_metrics, earlier
        self.checkpoints = checkpoints
        started = time.time() - process_age_s()
        self.attempt = Attempt(
            started=started, ended=started, first_step=step, last_step=step, world_size=run.launch.world_size
        )
        self._rows_before = self._ranks = earlier.rows_before(run.launch.world_size)
        self._on_the_clock = False
        """Whether this attempt takes energy that counts: from ``begin`` on, unless the clock had stopped before."""
        unknown = NodesEnergy(None, "", "not measured: an attempt ended before its first checkpoint")
        self._collected = self._no_energy() if earlier.attempts else unknown
        self._at_end = False
        self._peak = 0
        self._evaluations = 0
        self._lock = threading.Lock()
        """Held to change and write ``attempt``, by the loop or by the thread that writes a checkpoint."""

    def begin(self, *, on_the_clock: bool) -> None:
        """Record that this attempt exists, so that it counts even if it is killed before its first checkpoint.

        A run's first attempt would leave nothing to resume. One that begins after the clock stopped takes no energy.
        """
        self._on_the_clock = on_the_clock
        if not self.earlier.attempts:
            return
        if self.run.is_first:
            self.record(self.attempt.first_step)

    def _no_energy(self) -> NodesEnergy:
        """Zero energy so far, with the source of the attempt before; unknown if that attempt's energy is unknown."""
        before = self.earlier.attempts[-1]
        joules = None if before.energy_j is None else 0.0
        return NodesEnergy(joules, before.energy_source, before.energy_note)

    def evaluated(self) -> None:
        """Count a finished evaluation."""
        self._evaluations += 1

    def collect(self, *, at_end: bool = False) -> None:
        """Gather what all ranks have measured; collective. ``at_end``: no step follows in this attempt."""
        rows, energy = gather_rank_metrics(self.rank_metrics)
        if not self._on_the_clock and self.earlier.attempts:
            energy = self._no_energy()
        self._collected, self._at_end = energy, at_end
        self._ranks = summed(self._rows_before, rows)
        self._peak = int(self.run.group.max(float(peak_memory_bytes(self.run.device))))

    def record(self, step: int, cause: str | None = None, *, stands_in: bool = False) -> Attempts:
        """Record and return all attempts up to now, with what ``collect`` last gathered and the phases of rank 0.

        A rank that ``stands_in`` for rank 0 records nothing, and reads from the record which checkpoints rank 0 wrote.
        """
        with self._lock:
            self._update(step, cause)
            if stands_in:
                self._take_saves_of_first()
            attempts = Attempts([*self.earlier.attempts, self.attempt], self._ranks)
            if self.run.is_first:
                attempts.write(self.run.folder.path)
                if self._ranks:
                    self.run.folder.write_ranks(self._ranks)
        return attempts

    def record_written(self) -> None:
        """Record that a checkpoint is on disk; ``record`` may have seen it in progress. Runs in its writer thread."""
        with self._lock:
            if len(self.attempt.saves) == len(self.checkpoints.saves):
                self._update_saves()
                Attempts([*self.earlier.attempts, self.attempt], self._ranks).write(self.run.folder.path)

    def _update(self, step: int, cause: str | None) -> None:
        """Update what this attempt has taken up to now."""
        spans = self.run.phases.timer.summary()
        now = self.attempt
        now.wall_s = spans.pop("wall")
        now.phases_s = {name: spans.get(name, 0.0) for name in PHASES}
        now.ended = now.started + now.wall_s
        now.last_step, now.cause, now.evaluations = step, cause, self._evaluations
        self._update_saves()
        now.energy_j, now.energy_source, now.energy_note = (
            self._collected.joules, self._collected.source, self._collected.note,
        )  # fmt: skip
        now.energy_to_end = self._at_end or not self._on_the_clock
        now.peak_memory_bytes = self._peak or peak_memory_bytes(self.run.device)

    def _update_saves(self) -> None:
        self.attempt.checkpoint = self.checkpoints.summary()
        self.attempt.saves = [asdict(save) for save in self.checkpoints.saves]

    def _take_saves_of_first(self) -> None:
        """Take over the checkpoints of this attempt as rank 0 recorded them."""
        with contextlib.suppress(OSError, DataError):
            written = Attempts.read(self.run.folder.path).attempts[len(self.earlier.attempts) :]
            for attempt in written:
                self.attempt.checkpoint, self.attempt.saves = attempt.checkpoint, attempt.saves


def started_at(attempts: Attempts) -> str:
    """When the first attempt started: ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(attempts.attempts[0].started))
