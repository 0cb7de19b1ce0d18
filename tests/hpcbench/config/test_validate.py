"""Combinations of settings that cannot run."""

from __future__ import annotations

import pytest

from hpcbench.config.schema import ParallelConfig, RunConfig
from hpcbench.config.validate import validate_run
from staging.errors import InputError


def test_rounded_sums_do_not_go_with_sharded_states() -> None:
    config = RunConfig(parallel=ParallelConfig(reduce_dtype="bfloat16", shard_states=True))
    with pytest.raises(InputError, match=r"parallel\.reduce_dtype bfloat16 does not go with parallel\.shard_states"):
        validate_run(config)
