"""What a job gets by itself, and what a site cannot give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.job import make_job
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.site import Node, Site
from staging.errors import InputError
from tests.hpcbench.batch.conftest import a_job, a_site


def test_a_job_takes_whole_nodes_by_itself(tmp_path: Path) -> None:
    job = a_job(a_site(), tmp_path / "run")
    assert (job.ranks, job.ranks_per_node, job.cores_per_rank, job.gpus_per_rank) == (4, 2, 2, 1)
    assert (job.gpus_per_node, job.cores_per_node) == (2, 4)
    assert job.node_hours == pytest.approx(2 * 10 / 60)


def test_ranks_may_leave_the_gpus_alone(tmp_path: Path) -> None:
    job = a_job(a_site(), tmp_path / "run", ranks_per_node=4, gpus_per_rank=0)
    assert (job.ranks, job.cores_per_rank, job.gpus_per_node) == (8, 1, 0)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"nodes": 0}, r"--nodes \(0\) must be at least 1"),
        ({"ranks_per_node": 0}, r"--ranks-per-node \(0\) must be at least 1"),
        ({"ranks_per_node": 3}, r"--ranks-per-node \(3\) is more than the 2 GPUs of a node of here"),
        ({"ranks_per_node": 5, "gpus_per_rank": 0}, r"--ranks-per-node \(5\) is more than the 4 cores"),
        ({"gpus_per_rank": 2}, r"--gpus-per-rank \(2\) for 2 ranks is more than the 2 GPUs"),
        ({"cores_per_rank": 3}, r"--cores-per-rank \(3\) for 2 ranks is more than the 4 cores"),
        ({"memory_gib": 65}, r"--memory-gib \(65\) is more than the 64 GiB"),
        ({"time": "00:02:00"}, r"--time \(00:02:00\) must be longer than --warn-s \(120 s\)"),
        ({"time": "25h"}, r"--time \(25h\) is more than the 24:00:00 of here; lower it, or name another --queue"),
        ({"attempts": 0}, r"--attempts \(0\) must be at least 1"),
        ({"account": "a b"}, r"--account \('a b'\) has the character ' '"),
        ({"queue": "$(x)"}, r"--queue .* has the character '\$'"),
        ({"environment": {"1A": "x"}}, r"--env \('1A'\) must be the name of a variable"),
        ({"environment": {"A": "$"}}, "begins no variable"),
        ({"local_path": "/tmp/$(x)"}, "begins no variable"),
        ({"image": "x.sif"}, "does not say how containers run"),
    ],
)
def test_what_cannot_be_had_is_told_in_a_line(tmp_path: Path, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        a_job(a_site(max_time="24:00:00"), tmp_path / "run", **asked)


def test_another_queue_has_limits_of_its_own(tmp_path: Path) -> None:
    site = a_site(max_time="24:00:00", queue="short")
    assert a_job(site, tmp_path / "run", time="25h", queue="long").time_s == 25 * 3600
    with pytest.raises(InputError, match="is more than"):
        a_job(site, tmp_path / "run", time="25h", queue="short")


def test_an_account_that_the_site_needs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="charges every job to a project; name yours with --account"):
        a_job(a_site(account_required=True), tmp_path / "run")
    assert a_job(a_site(account_required=True), tmp_path / "run", account="m1").account == "m1"


def test_a_site_that_does_not_know_its_nodes(tmp_path: Path) -> None:
    site = Site("any", "any", "slurm", "srun", Node())
    with pytest.raises(InputError, match="does not know the cores of its nodes; give --cores-per-rank"):
        make_job(site, JobRequest(), tmp_path, ("hpcbench",), (), "a title", stages=False)
    request = JobRequest(cores_per_rank=8, ranks_per_node=4, gpus_per_rank=1)
    job = make_job(site, request, tmp_path, ("hpcbench",), (), "a title", stages=False)
    assert (job.cores_per_node, job.gpus_per_node) == (32, 4)
