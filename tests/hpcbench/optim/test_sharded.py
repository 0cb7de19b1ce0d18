"""Optimizers on sharded parameters (FSDP2): the same numbers as on whole ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from hpcbench.config.optimizers import OPTIMIZERS
from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).parent / "programs" / "sharded.py"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_sharded_equals_whole_with_clipping_uneven_shards_and_empty_ones(ranks: int) -> None:
    done = subprocess.run(
        spawned(ranks, PROGRAM), env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, timeout=300, check=True,
    )  # fmt: skip
    everyone = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(everyone) == ranks
    for found in everyone:
        assert {name.split()[0] for name in found} == set(OPTIMIZERS)
        assert len(found) == len(OPTIMIZERS) * (2 if ranks == 4 else 1)
        for name, values in found.items():
            assert values["weights"] < 1e-11, name
            assert values["clipped"] > 0, name
            assert values.get("ratios", 0.0) < 1e-9, name
            assert values.get("adapted", 1.0) > 0, name
