"""What a run puts into its checkpoints, when, and how it goes on from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcbench.parallel.sharded import gathered, sharded_optimizer_state
from hpcbench.train import checkpoint as checkpoints
from hpcbench.train.state import State

if TYPE_CHECKING:
    from hpcbench.train.context import Run


def save_checkpoint(run: Run, last: bool = False) -> None:
    """Write a checkpoint if one is due. Rank 0 writes; the others go on."""
    every = run.config.train.checkpoint_every
    if not every or (run.state.epoch % every and not last and not run.state.micro_batch):
        return
    model, optimizer = gathered(run.model.state_dict()), gathered(run.optimizer.state_dict())
    if run.is_first:
        statistics = run.statistics.state() if run.data_ranks.turns > 1 else []
        content = checkpoints.Checkpoint(
            model=model,
            optimizer=optimizer,
            precision=run.fabric._precision.state_dict(),
            state=run.state.as_dict(),
            setup=setup_of(run),
            statistics=statistics,
        )
        checkpoints.save(content, run.folder.checkpoints, run.config.train.keep_checkpoints)
        run.checkpoints_written += 1


def restore(run: Run, found: checkpoints.Checkpoint) -> None:
    """Continue from a checkpoint. Raises ``InputError`` if it is another run's."""
    if checkpoints.check_setup(found.setup, setup_of(run), int(found.state["micro_batch"])):
        run.console.say(f"goes on as {run.mesh.shape.words} ranks (data x spatial), which rounds differently")
    checkpoints.load_model(run.model, found.model)
    run.optimizer.load_state_dict(sharded_optimizer_state(found.optimizer, run.optimizer))
    run.fabric._precision.load_state_dict(found.precision)
    if found.statistics:
        run.statistics.load(found.statistics)
    run.state = State.from_dict(found.state)
    run.state.resumed += 1
    if run.noise_scale is not None and run.is_first and run.folder.noise_scale.exists():
        run.noise_scale.restore(run.folder.read_noise_scale()[["gradient_sq", "tr_sigma"]].to_numpy())


def stop_if_asked(run: Run) -> None:
    """End the run for a signal; one process alone can save what it has done of the epoch."""
    if run.interrupts.received is not None:
        if run.launch.world_size == 1:
            run.flush_losses()
            save_checkpoint(run)
        run.interrupts.check()


def setup_of(run: Run) -> dict[str, Any]:
    """What decides rounding and the sharing of data, and so must agree on resuming, by the names that an error uses."""
    train = run.config.train
    return {
        "application": run.application.name,
        "seed": run.seed,
        "train.precision": run.precision,
        "train.channels_last": train.channels_last,
        "parallel.threads": run.threads,
        "world size": run.launch.world_size,
        "parallel.spatial": run.config.parallel.spatial,
        "global batch size": run.global_batch_size,
        "parallel.simulated_ranks": run.config.parallel.simulated_ranks,
        "train.batchnorm_group_size": train.batchnorm_group_size,
        "train.local_batch_size": train.local_batch_size,
        "train.accumulation": train.accumulation,
        "training samples": len(run.training),
        "staging.placement": run.config.staging.placement,
        "staging.reshuffle": run.config.staging.reshuffle,
        "nodes of shards": run.shard_nodes,
    }
