"""Studies on this machine whose simulated nodes are staged to as those of a machine are, from command to page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from hpcbench.study.folder import StudyFolder

STEPS = 6
WAYS = {
    "shard": ("1,2", ["--staging.placement", "shard"]),
    "overlap": ("1,2", ["--staging.overlap", "true"]),
    "slabs": ("2", ["--staging.slabs", "true", "--staging.transform", "tfrecord-to-npy", "--parallel.spatial", "2",
                    "--data.augment", "false", "--data.apply_log", "true"]),
}  # fmt: skip
"""Nodes and settings of a study; a sample that is split needs two ranks."""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, one for each simulated node")
@pytest.mark.parametrize("way", WAYS)
def test_a_real_study_stages_and_has_a_page(way: str, small_cosmos: Path, tmp_path: Path) -> None:
    nodes, settings = WAYS[way]
    local, study = tmp_path / "local", StudyFolder(tmp_path / "study")
    local.mkdir()
    words = ["study", "strong", "cosmoflow", "--nodes", nodes, "--repeats", "1", "--steps", str(STEPS),
             "--measure.warmup_steps", "1", "--data.root", str(small_cosmos), "--local-path", str(local),
             "--study-dir", str(study.path)]  # fmt: skip
    command = [sys.executable, "-m", "hpcbench", *words, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"page: {study.path / 'scaling.html'}" in done.stdout
    assert (study.path / "scaling.html").stat().st_size > 10_000
    names = sorted(path.name for path in study.runs.iterdir())
    assert names == [f"n{int(size):04}-r1" for size in nodes.split(",")]
    landed = {}
    for name in names:
        summary = RunFolder.open(study.run(name)).read_summary()
        assert (summary.status, summary.steps) == ("success", STEPS)
        landed[name] = json.loads((study.run(name) / "staging.json").read_text())["bytes_landed"]
    assert all(landed.values())
    if way == "shard":  # on two nodes training samples land once, as on one
        assert landed["n0002-r1"] < 1.5 * landed["n0001-r1"]
    if way == "overlap":
        assert landed["n0002-r1"] == 2 * landed["n0001-r1"]
    assert list(local.iterdir()) == []
