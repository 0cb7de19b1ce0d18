"""Combinations of settings that cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.config.schema import ParallelConfig, RunConfig
from hpcbench.config.validate import validate_run
from hpcbench.phase_names import MESSAGE_KINDS
from staging.errors import InputError


def test_rounded_sums_do_not_go_with_sharded_states() -> None:
    config = RunConfig(parallel=ParallelConfig(reduce_dtype="bfloat16", shard_states=True))
    with pytest.raises(InputError, match=r"parallel\.reduce_dtype bfloat16 does not go with parallel\.shard_states"):
        validate_run(config)


IN_PASSES = {
    "halo": ("parallel.spatial", "1x2", "1"),
    "batch_norm": ("train.batchnorm_group_size", "2", "1"),
    "sharding": ("parallel.shard_states", "true", "false"),
}
"""Messages within the forward and backward pass, and of the setting that has them its value, and the one without."""
BETWEEN_PASSES = {"gradients", "losses", "noise_scale"}


def test_every_message_is_within_the_passes_or_between_them() -> None:
    assert IN_PASSES.keys() | BETWEEN_PASSES == set(MESSAGE_KINDS)


@pytest.mark.parametrize(("key", "value", "without"), IN_PASSES.values())
@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
def test_a_graph_captures_no_messages(
    app: str, key: str, value: str, without: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", app, "--preset", "smoke", "--run-dir", str(tmp_path / "run"), "--data.root", str(tmp_path)]
    assert main([*words, "--train.cuda_graph", "--data.last_batch", "drop", f"--{key}", value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "train.cuda_graph captures no messages" in line
    assert f"{key} ({value})" in line
    assert f"set it to {without}, or cuda_graph false" in line
    assert not (tmp_path / "run").exists()
