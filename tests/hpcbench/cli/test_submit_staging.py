"""Every way to stage, through ``hpcbench submit`` and for real: a job of two ranks on this machine."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from hpcbench.batch.job_record import read_job
from hpcbench.batch.submission import job_status
from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("forked_processes")

LIMIT_S = 600
WAYS = {
    "shard": ["--staging.placement", "shard", "--train.local_batch_size", "2"],
    "slabs": ["--staging.slabs", "true", "--staging.transform", "tfrecord-to-npy", "--parallel.spatial", "2",
              "--data.augment", "false"],
    "overlap": ["--staging.overlap", "true", "--train.local_batch_size", "2"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_job_stages_so_and_trains(name: str, small_cosmos: Path, mpiexec: str, tmp_path: Path) -> None:
    """The doctor is asked for the space of the files, and what was staged is gone in the end."""
    run, local = tmp_path / "run", tmp_path / "local"
    words = ["submit", "cosmoflow", "--site", "local", "--preset", "smoke", "--data.root", str(small_cosmos)]
    words += ["--run-dir", str(run), "--local-path", str(local), "--ranks-per-node", "2", "--cores-per-rank", "1"]
    short = [
        "--train.max_epochs",
        "1",
        "--train.target",
        "null",
        "--train.baselines",
        "false",
        "--parallel.hang_s",
        "0",
    ]
    assert main([*words, *short, *WAYS[name]]) == 0
    deadline = time.monotonic() + LIMIT_S
    while job_status(read_job(run)).state == "running":
        assert time.monotonic() < deadline, (run / "job.log").read_text()
        time.sleep(0.5)
    log = (run / "job.log").read_text()
    assert RunFolder.open(run).read_summary().status == "success", log
    report = json.loads((run / "staging.json").read_text())
    asked = re.search(r",local_gib=(\S+)", (run / "job.sh").read_text())
    assert asked is not None
    landed = max(node["counters"]["bytes_landed"] for node in report["nodes"])
    assert float(asked[1]) * 2**30 == pytest.approx(landed, rel=0.05)
    assert not list(local.iterdir())
