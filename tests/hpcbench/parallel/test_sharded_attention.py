"""A sharded model with attention and containers computes what the whole one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hpcbench.parallel.spawned import spawned
from tests.hpcbench.parallel.test_ranks import run_program

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).with_name("programs") / "sharded_attention.py"
LAYERS = ["TransformerEncoderLayer"] * 2


def test_attention_is_gathered_as_a_whole_and_containers_with_what_is_around_them() -> None:
    """torch takes the weights of an attention's projection without calling it, and nobody calls a list of modules."""
    for found in run_program(*spawned(2, PROGRAM)):
        assert found["unused"] == [0.0] * 4  # as GradientReducer leaves it, so that weight decay moves it alike
        assert found["1000"]["units"] == [*LAYERS, "MultiheadAttention", *["Linear"] * 3]
        assert found["3000"]["units"] == [*LAYERS, "MultiheadAttention"]
        for case in (found["1000"], found["3000"]):
            assert case["gradients"] < 1e-9
            assert case["outputs"] < 1e-12
