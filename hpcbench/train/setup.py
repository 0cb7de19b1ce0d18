"""What decides rounding and the sharing of data, and so must agree when a run is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcbench.train.context import Run


def setup_of(run: Run) -> dict[str, Any]:
    """The setup of a run by the names that an error would use."""
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
