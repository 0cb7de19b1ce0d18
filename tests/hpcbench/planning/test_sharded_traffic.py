"""What a step of a sharded model puts into collectives, as it is planned and as torch does it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.parallel.sharded import size, units
from hpcbench.planning import sharded_bytes
from tests.hpcbench.parallel.spawned import spawned
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAMS = Path(__file__).parent / "programs"
MANY_UNITS, ONE_UNIT = 1000, 10**6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "spatial", "micro_batches", "at_least"),
    slow_except([(2, "1", 3, MANY_UNITS)], [
        (2, "1", 3, MANY_UNITS), (3, "1", 1, MANY_UNITS), (4, "2", 1, MANY_UNITS), (2, "2", 1, MANY_UNITS),
        (2, "1", 1, ONE_UNIT),
    ]),
)  # fmt: skip
def test_planned_bytes_are_those_of_a_step(
    ranks: int, spatial: str, micro_batches: int, at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several micro-batches, shards that do not divide the weights, ranks that share a sample, and a small model."""
    monkeypatch.setattr(sharded_bytes, "UNIT", at_least)
    application = find_application("cosmoflow")
    model = application.module("model").build_model(resolve(application, "smoke"))
    assert len(list(units(model, at_least))) == (4 if at_least == MANY_UNITS else 0)
    planned = sharded_bytes.sharded_traffic(model, mesh_shape(ranks, spatial), micro_batches)
    sent = run(ranks, "cosmoflow", spatial, micro_batches, at_least)
    assert planned == sum(sent.values())
    if ranks == 2 and spatial == "1":
        assert sent["_reduce_scatter_base_"] == 4 * size(model), "once, whatever the number of micro-batches"


def run(ranks: int, *words: object) -> dict[str, int]:
    """Bytes that rank 0 put into each kind of collective."""
    command = spawned(ranks, PROGRAMS / "sharded_traffic.py", *words)
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, timeout=300, check=True
    )
    found: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
