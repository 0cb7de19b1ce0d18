"""When a run writes checkpoints, what goes into them, and how it continues from one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hpcbench.data.simulated_set import record_text
from hpcbench.optim.registry import load_optimizer_state
from hpcbench.parallel.sharded import sharded_optimizer_state
from hpcbench.results.checkpoint_files import resume_advice
from hpcbench.train import checkpoint_io
from hpcbench.train.checkpoint_io import SIMULATED, TRAINING, VALIDATION, Checkpoint
from hpcbench.train.checkpoint_times import CheckpointTimes, SaveTime
from hpcbench.train.checkpoint_writer import CheckpointWriter
from hpcbench.train.context import RunContext
from hpcbench.train.host_copy import tree_bytes
from hpcbench.train.state import State
from hpcbench.train.training_step import TrainingStep

THREADS = "parallel.threads"
"""The key of the setup that may differ between ranks."""


class Checkpoints:
    """The checkpoints of a run. Rank 0 writes, in a thread; the others take part if states are sharded.

    Making it is collective.
    """

    def __init__(self, run: RunContext, step: TrainingStep, samples: tuple[int, int], times: CheckpointTimes) -> None:
        """For a run on so many training and validation ``samples``.

        ``times`` has the time taken to read the checkpoint that the run continues from.
        """
        train, parallel = run.config.train, run.config.parallel
        self.run, self.step = run, step
        self.setup = setup_of(run, *samples)
        self.writer = CheckpointWriter(
            run.folder.checkpoints, train.keep_checkpoints, run.group, sharded=parallel.shard_states,
            asynchronous=train.checkpoint_async, timeout_s=parallel.timeout_s, times=times,
            sync_records=run.folder.sync,
        )  # fmt: skip
        self.writer.check, self.writer.on_left = self.check_time, self.say_left

    @property
    def times(self) -> CheckpointTimes:
        """What the checkpoints of this process cost."""
        return self.writer.times

    def check_time(self) -> None:
        """Raise ``Interrupted`` if a signal came and the time left to write after it is over."""
        if self.run.interrupts.seconds_left() <= 0:
            raise self.run.interrupts.abort()

    def say_left(self, save: SaveTime) -> None:
        """Report that a checkpoint is no longer waited for, and what the run can continue from."""
        advice = resume_advice(self.run.folder.checkpoints)
        self.run.console.say(f"the checkpoint of step {save.step} is not on the disk in time, and is lost; {advice}")

    def is_due(self, state: State, *, last: bool) -> bool:
        """Whether a checkpoint is due between epochs; the ``last`` of a run always is, if any are written."""
        every = self.run.config.train.checkpoint_every
        return every > 0 and (last or state.epoch % every == 0)

    def save(self, state: State, *, wait: bool = False) -> None:
        """Write a checkpoint of the current state; with ``wait`` it is on disk when this returns."""
        state.observers, state.averaged = self.step.observers.state_dict(), self.step.statistics.are_averaged
        statistics = self.statistics(state)
        if self.writer.takes_part:
            self.writer.save(self.content(state, statistics), wait=wait)

    def statistics(self, state: State) -> list[list[Tensor]]:
        """Batch-norm statistics of all ranks, which are equal only after an evaluation; collective within an epoch."""
        step, run = self.step, self.run
        if not state.micro_batch or run.launch.world_size == 1:
            return step.statistics.state() if run.data_ranks.passes > 1 else []
        # Ranks that share samples have statistics of the same samples.
        own_statistics = [[tensor.cpu() for tensor in tensors] for tensors in step.statistics.state()]
        own_statistics = own_statistics if any(own_statistics) and run.mesh.spatial_rank == 0 else []
        return [tensors for rank in run.group.all_gather_object(own_statistics) for tensors in rank]

    def content(self, state: State, statistics: list[list[Tensor]]) -> Checkpoint:
        """The content of a checkpoint of ``state`` with the batch-norm ``statistics`` of ranks, not yet copied."""
        step = self.step
        return Checkpoint(
            model=step.model.state_dict(),
            optimizer=step.optimizer.state_dict(),
            precision=self.run.precision.state_dict(),
            state=state.as_dict(),
            setup=self.setup,
            statistics=statistics,
        )

    def expected_s(self, state: State) -> float:
        """Seconds until a checkpoint begun now would be on disk; 0 on ranks that write none."""
        if not self.run.is_first:
            return 0.0
        return self.writer.expected_write_s(tree_bytes(vars(self.content(state, []))))

    def restore(self, checkpoint: Checkpoint) -> State:
        """Continue from a checkpoint; returns its state. Raises ``InputError`` if it is another run's."""
        run, step = self.run, self.step
        before, now = (setup_of_rank(setup, run.launch.rank) for setup in (checkpoint.setup, self.setup))
        if checkpoint_io.check_setup(before, now, int(checkpoint.state["micro_batch"])):
            run.console.say(f"continues as {run.mesh.shape.words} ranks (data x spatial), which rounds differently")
        checkpoint_io.load_model(step.model, checkpoint.model)
        load_optimizer_state(step.optimizer, sharded_optimizer_state(checkpoint.optimizer, step.optimizer))
        run.precision.load_state_dict(checkpoint.precision)
        if checkpoint.statistics:
            passes = run.data_ranks.passes
            first = run.mesh.data_rank * passes if len(checkpoint.statistics) > passes else 0
            step.statistics.load(checkpoint.statistics[first : first + passes])
        state = State.from_dict(checkpoint.state)
        state.resumed += 1
        step.statistics.are_averaged = state.averaged
        step.observers.load_state_dict(state.observers)
        return state


def setup_of(run: RunContext, training_samples: int, validation_samples: int) -> dict[str, Any]:
    """What decides rounding, the sharing of data and metrics, and must agree on resuming, by its names in errors.

    Collective. Threads are a number if all ranks have as many, else a list by rank.
    """
    train, dtype = run.config.train, run.config.parallel.reduce_dtype
    threads = run.group.all_gather_object(run.threads)
    return {
        "application": run.application.name,
        "seed": run.seed,
        "train.precision": run.precision.name,
        "train.tf32": train.tf32,
        "train.channels_last": train.channels_last,
        # Unset, as in checkpoints made before there was a choice.
        "parallel.reduce_dtype": None if dtype == "gradient" else dtype,
        "world size": run.launch.world_size,
        THREADS: threads if len(set(threads)) > 1 else run.threads,
        "parallel.spatial": run.config.parallel.spatial,
        "global batch size": run.global_batch_size,
        "parallel.simulated_ranks": run.config.parallel.simulated_ranks,
        "train.batchnorm_group_size": train.batchnorm_group_size,
        "train.local_batch_size": train.local_batch_size,
        "train.accumulation": train.accumulation,
        TRAINING: training_samples,
        VALIDATION: validation_samples,
        SIMULATED: run.group.broadcast_object(record_text(run.config.data.root) if run.is_first else ""),
        "staging.placement": run.config.staging.placement,
        "staging.reshuffle": run.config.staging.reshuffle,
        "nodes of shards": run.shard_nodes,
    }


def setup_of_rank(setup: dict[str, Any], rank: int) -> dict[str, Any]:
    """``setup`` with the threads of one rank in place of those of all."""
    threads = setup.get(THREADS)
    if not isinstance(threads, list):
        return setup
    return {**setup, THREADS: threads[rank] if rank < len(threads) else None}
