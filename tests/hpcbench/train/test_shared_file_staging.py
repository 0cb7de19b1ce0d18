"""Ranks of one node share a large file in a staging of the training, as they do in ``hpcbench stage``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from staging.ledger.manifest import manifest_path
from tests.hpcbench.train.conftest import arguments

PROGRAM = """
import sys
import staging.prepare as prepare
import staging.stage as stage
from hpcbench.cli.main import main
from staging.planning import slices
prepare.CUT_BYTES = slices.CUT_BYTES = 8192
settle = stage.settle_shared

def told(shared, world, places):
    wrote = {entry: len(each) for entry, each in shared.written.items()}
    landed = settle(shared, world, places)
    print("SHARED", type(world).__name__, world.place.rank, len(wrote), len(landed), file=sys.stderr)
    return landed

stage.settle_shared = told
sys.exit(main(sys.argv[1:]))
"""
"""Trains with files of 8 KiB shared by ranks, and says for each rank how many it wrote to, and how many it named."""


@pytest.mark.slow
def test_two_ranks_write_one_file_and_its_node_has_all_of_it(tmp_path: Path) -> None:
    """Of 33 samples of one size, each rank brings sixteen, and a half of the one between them."""
    data, local = tmp_path / "data", tmp_path / "local"
    samples = ("--simulate.train_samples", "24", "--simulate.validation_samples", "9", "--processes", "1")
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(data), *samples]) == 0
    settings = ("--staging.destination", str(local), "--staging.path", "direct", "--train.max_epochs", "1")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    command = [*launch, sys.executable, "-c", PROGRAM, *arguments(data, tmp_path / "run", *settings)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    told = sorted(line.split()[1:] for line in done.stderr.splitlines() if line.startswith("SHARED"))
    assert told == [["GroupWorld", "0", "1", "1"], ["GroupWorld", "1", "1", "0"]], (
        "the first rank names what both wrote"
    )
    staged = [path for folder in ("train", "validation") for path in sorted((local / folder).iterdir())]
    assert len(staged) == 33
    assert all(path.read_bytes() == (data / path.relative_to(local)).read_bytes() for path in staged)
    assert manifest_path(local).exists()
