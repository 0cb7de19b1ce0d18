"""``hpcbench submit`` and ``hpcbench study`` say what a job needs, and refuse what its nodes cannot hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcbench.application import find_application
from hpcbench.batch.job import make_job
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.site import find_site, known_sites
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.planning.job_fit import GIB, memory_taken, rank_room, staged_by

pytestmark = pytest.mark.usefixtures("forked_processes")

PERLMUTTER = ["--site", "perlmutter-gpu", "--account", "m1", "--preset", "mlperf", "--data.root", "/nowhere/set"]
POLARIS = ["--site", "polaris", "--account", "m1", "--preset", "mlperf", "--data.root", "/nowhere/set"]
DRY = ["--dry-run", "--nodes"]


def submitted(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code of a dry run of ``submit``, its script, and what it says beside."""
    code = main(["submit", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def unwrapped(said: str) -> str:
    """The lines as they are before they are made to fit a terminal."""
    return re.sub(r"\n +", " ", said)


@pytest.mark.slow
def test_the_figures_of_a_job_stand_beside_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the published set, which is not on this machine; the script alone is on standard output."""
    monkeypatch.chdir(tmp_path)
    code, script, said = submitted(["deepcam", *POLARIS, *DRY, "10", "--staging.placement", "shard"], capsys)
    assert code == 0
    assert script.startswith("#!/bin/bash -l\n#PBS ")
    assert said.splitlines()[:3] == [
        "batch    80 = 40 ranks x 2; peak rate 0.00155 (for batch 128; see optim.scaling)",
        "recipe   none published for batch 80; the nearest: mlperf-128",
        "staging  1.74 TB to each node (for 121,266 + 15,158 samples), of the 3.20 TB of /local/scratch",
    ]
    assert max(map(len, said.splitlines())) <= 100
    memory, cost = unwrapped(said).splitlines()[3:]
    assert re.fullmatch(
        r"memory   \d\.\d\d GiB for a rank \(counted without the workspace of kernels, which is unmeasured\), of "
        r"the 40.0 GiB of an accelerator",
        memory,
    )
    assert cost == "cost     at most 10.0 node-hours an attempt of 01:00:00"
    gib = re.search(r"--check-job \S+,local_gib=(\S+) \\$", script, re.MULTILINE)
    assert gib is not None
    assert float(gib[1]) * 2**30 == pytest.approx((7_725_012_848_640 / 10) + 965_610_680_320, rel=1e-3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cosmoflow", *PERLMUTTER, *DRY, "16"],
         "staging brings 1.67 TB to each node (for 524,288 + 65,536 samples), more than the 128 GB of /dev/shm (memory "
         "of the node); what fits: --no-stage, which reads the dataset where it lies"),
        (["cosmoflow", *PERLMUTTER, *DRY, "16", "--data.validation_samples", "8192"],
         "what fits: 23 nodes or more with --staging.placement shard; --no-stage"),
        (["deepcam", *POLARIS, *DRY, "10"],
         "staging brings 8.69 TB to each node (for 121,266 + 15,158 samples), more than the 3.20 TB of /local/scratch; "
         "what fits: --staging.placement shard; --no-stage"),
        (["deepcam", *POLARIS, *DRY, "2", "--staging.placement", "shard"],
         "what fits: 7 nodes or more with --staging.placement shard"),
        (["deepcam", *POLARIS, *DRY, "10", "--no-stage", "--samples", "79"],
         "a global batch of 80 is more than the 79 training samples; lower --nodes or train.local_batch_size"),
        pytest.param(
            ["deepcam", *POLARIS, *DRY, "10", "--no-stage", "--train.local_batch_size", "32"],
            "what fits: --train.local_batch_size 8; more ranks for a sample (--parallel.spatial)",
            marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_line_that_names_what_does(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, script, error = submitted(words, capsys)
    assert (code, script) == (2, "")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_job_on_nodes_with_more_memory_is_held_against_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    """It takes some 70 GiB, on a machine with accelerators of 40 and, for those who ask, of 80."""
    words = ["deepcam", *PERLMUTTER, *DRY, "10", "--no-stage", "--train.local_batch_size", "32"]
    assert submitted(words, capsys)[0] == 2
    code, _, said = submitted([*words, "--constraint", "gpu&hbm80g"], capsys)
    assert code == 0
    assert "the 80.0 GiB of an accelerator" in unwrapped(said)


KNOWN_MEMORY = [name for name in known_sites() if find_site(name).node.memory_gib is not None]


@pytest.mark.parametrize("site", KNOWN_MEMORY)
def test_dev_shm_is_memory_of_the_node_on_every_machine(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether its file has an entry for it, which may say less than the memory, or not."""
    words = ["deepcam", "--site", site, "--account", "m1", "--preset", "mlperf", "--data.root", "/nowhere/set"]
    shard = ["--local-path", "/dev/shm/me", "--staging.placement", "shard"]
    code, script, error = submitted([*words, *DRY, "2", *shard], capsys)
    assert (code, script) == (2, "")
    assert re.search(r"4\.83 TB to each node \(.*\), more than the \S+ [GT]B of /dev/shm \(memory of the node\)", error)


def test_the_memory_tier_of_a_study_is_refused_where_it_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "strong", "deepcam", *POLARIS, "--nodes", "10", "--steps", "100", "--vary", "tier=memory"]
    assert main([*words, "--study-dir", str(tmp_path / "study"), "--dry-run"]) == 2
    assert "more than the 550 GB of /dev/shm (memory of the node)" in capsys.readouterr().err


def test_every_tier_goes_together_with_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tier of the dataset itself stages nothing, and has no use for a placement."""
    words = ["study", "weak", *FRONTIER, "--nodes", "16", "--steps", "100", "--vary", "tier=shared,node,memory"]
    words += ["--staging.placement", "shard", "--study-dir", str(tmp_path / "study"), "--dry-run"]
    assert main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert all(room in said for room in ("none", "278 GB of 3.84 TB", "278 GB of 550 GB"))


@pytest.mark.parametrize("by_job", [True, False], ids=["--local-path", "staging.destination"])
def test_what_is_staged_to_memory_is_no_room_for_ranks(by_job: bool) -> None:
    site, application = find_site("polaris"), find_application("cosmoflow")
    request = JobRequest(nodes=2, account="m1", gpus_per_rank=0, ranks_per_node=4, local_path="/dev/shm")
    job = make_job(site, request, Path("run"), ("hpcbench",), (), "", by_job)
    settings = {"data.train_samples": "4096", "data.validation_samples": "1024", "staging.destination": "/dev/shm/x"}
    config = resolve(application, "mlperf", None, settings)
    staged = staged_by(application, config, job)
    assert staged is not None
    assert memory_taken(config, job, site, staged) == staged.per_node > GIB
    room = rank_room(job, site, staged.per_node)
    assert room.limit == (512 * GIB - staged.per_node) // 4


def test_unknown_facts_are_said_and_refuse_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["cosmoflow", "--site", "generic-slurm", "--cores-per-rank", "4", "--preset", "mlperf", *DRY, "4"]
    code, _, said = submitted(words, capsys)
    assert code == 0
    assert "1.67 TB to each node (for 524,288 + 65,536 samples); room unknown at /tmp" in unwrapped(said)
    assert max(map(len, said[said.index("batch ") :].splitlines())) <= 100
    how = "(counted with kernels and heap, up to 11 % low where it was measured)"
    assert f"{how}; memory of a rank's share of its node's memory unknown" in unwrapped(said)


@pytest.mark.slow
def test_what_is_close_to_a_limit_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    """Seven nodes of Polaris hold shards of DeepCAM, but 2.07 of 2.24 TB that are 70 % of their room; eight more."""
    code, _, said = submitted(["deepcam", *POLARIS, *DRY, "5", "--staging.placement", "shard"], capsys)
    assert code == 0
    assert max(map(len, said.splitlines())) <= 100
    said = unwrapped(said)
    assert "staging  warning: 2.51 TB to each node (for 121,266 + 15,158 samples), close to the 3.20 TB" in said
    assert "what fits: 7 nodes or more with --staging.placement shard" in said


OVER_NODES = {
    "shard": ["--staging.placement", "shard"],
    "slabs": ["--staging.slabs", "true", "--staging.transform", "tfrecord-to-npy", "--parallel.spatial", "8"],
    "overlap": ["--staging.overlap", "true"],
}
FRONTIER = ["cosmoflow", "--site", "frontier", "--account", "m1", "--preset", "mlperf", "--data.root", "/nowhere/set"]


@pytest.mark.parametrize("name", OVER_NODES)
def test_ways_to_stage_go_together_with_the_place_that_the_job_gives(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are checked as the script completes them; slabs of eight ranks of one node are whole samples."""
    fits = ["--data.train_samples", "65536"] if name == "slabs" else []
    code, script, said = submitted([*FRONTIER, *DRY, "16", *OVER_NODES[name], *fits], capsys)
    assert code == 0, said
    assert '--staging.destination "$local_path"' in script
    assert ",local_gib=" in script
    code, _, said = submitted([*FRONTIER, *DRY, "16", *OVER_NODES[name], *fits, "--no-stage"], capsys)
    assert code == 2
    assert "needs staging.destination" in said


@pytest.mark.parametrize("name", OVER_NODES)
def test_ways_to_stage_in_a_study(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the dataset is not at hand; nothing is made."""
    fits = ["--samples", "65536"] if name == "slabs" else []
    words = ["study", "weak", *FRONTIER, *OVER_NODES[name], *fits, "--nodes", "16,32", "--steps", "20"]
    assert main([*words, "--study-dir", str(tmp_path / "study"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert "staged to a node" in said
    assert {"shard": "278 GB of 3.84 TB", "slabs": "2.20 TB of 3.84 TB", "overlap": "1.67 TB of 3.84 TB"}[name] in said
    assert not (tmp_path / "study").exists()


def test_a_study_that_does_not_fit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "strong", "deepcam", *POLARIS, "--nodes", "2,4", "--steps", "20", "--staging.placement", "shard"]
    assert main([*words, "--study-dir", str(tmp_path / "study")]) == 2
    error = capsys.readouterr().err
    assert "--nodes 2: staging brings 4.83 TB to each node" in error
    assert "7 nodes or more with --staging.placement shard" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "study").exists()
