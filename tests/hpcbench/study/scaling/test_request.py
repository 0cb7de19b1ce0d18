"""From options to a scaling study: what follows from site and preset, and one line for each thing that cannot run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.batch import job
from hpcbench.batch.job_request import JobRequest
from hpcbench.study.preset_values import preset_values
from hpcbench.study.scaling import request
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.request import ScalingRequest, define
from hpcbench.study.scaling.run_matrix import all_runs, local_batch_size
from staging.errors import InputError

COSMOFLOW = find_application("cosmoflow")
HERE = ScalingRequest(mode="strong", preset="smoke", site="local", nodes="1,2,4", request=JobRequest(), steps=60)
THERE = replace(HERE, site="perlmutter-gpu", request=JobRequest(account="m1"))
INSTANCES = replace(HERE, mode="throughput", instance_nodes=2, nodes="2,4")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The setting of a dataset of 64 training samples, whose files are listed and never read."""
    root = tmp_path_factory.mktemp("set")
    for split, samples in (("train", 64), ("validation", 8)):
        (root / split).mkdir()
        for number in range(samples):
            (root / split / f"univ_{number:03}.tfrecord").touch()
    return {"data.root": str(root)}


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has eight."""
    for module in (job, request):
        monkeypatch.setattr(module, "cores_allowed", lambda: set(range(8)))


def defined(asked: ScalingRequest, data: dict[str, str], **settings: str) -> Scaling:
    """The study of the request, with ``data__prefetch`` for ``data.prefetch``."""
    return define(COSMOFLOW, asked, data | {key.replace("__", "."): value for key, value in settings.items()})


def test_simulated_nodes_have_the_same_share_of_this_machine_at_every_size(data: dict[str, str]) -> None:
    study = defined(HERE, data)
    assert (study.nodes, study.ranks_per_node, study.cores_per_rank, study.gpus_per_rank) == ((1, 2, 4), 1, 2, 0)
    assert (study.local_batch_size, study.global_batch_size) == (4, 4)
    assert study.preset_values == preset_values(COSMOFLOW, study.preset)
    assert {study.job_request(nodes).cores_per_rank for nodes in study.nodes} == {2}
    assert defined(replace(HERE, request=JobRequest(ranks_per_node=2)), data).cores_per_rank == 1
    assert defined(replace(HERE, request=JobRequest(cores_per_rank=1)), data).cores_per_rank == 1
    assert defined(INSTANCES, data).cores_per_rank == 2, "all instances together have the machine"


def test_a_site_gives_ranks_cores_and_gpus(data: dict[str, str]) -> None:
    study = defined(replace(THERE, nodes="1,2"), data)
    assert (study.ranks_per_node, study.cores_per_rank, study.gpus_per_rank) == (4, 16, 1)
    assert study.global_batch_size == 16
    assert study.request == {"account": "m1"}, "what is the default is not kept"
    assert [local_batch_size(study, nodes) for nodes in study.nodes] == [4, 2]


def test_settings_decide_the_batch(data: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("train: {accumulation: 2, target: 0.3}\n", encoding="utf-8")
    study = defined(replace(HERE, mode="weak", files=(file,), steps=None), data, train__local_batch_size="2")
    assert (study.local_batch_size, study.accumulation, study.global_batch_size) == (2, 2, None)
    assert study.files == (str(file),)
    split = defined(replace(HERE, nodes="1,2", request=JobRequest(ranks_per_node=2)), data, parallel__spatial="2")
    assert (split.spatial_size, split.global_batch_size) == (2, 4), "two ranks share a sample"


def test_the_target_may_be_another_where_runs_train_to_it(data: dict[str, str]) -> None:
    study = defined(replace(HERE, steps=None), data, train__target="0.3")
    assert study.settings["train.target"] == "0.3"


def test_an_axis_of_the_dataset_and_one_of_storage(data: dict[str, str]) -> None:
    study = defined(replace(HERE, vary=("tier=shared,/fast", "data.train_samples=16,64")), data)
    assert len(all_runs(study)) == 3 * 4 * 3
    assert study.vary == {"tier": ("shared", "/fast"), "data.train_samples": ("16", "64")}


REFUSED: list[tuple[ScalingRequest, dict[str, str], str]] = [
    # the ladder
    (replace(HERE, nodes="1;2"), {}, "--nodes (1;2) must be numbers of at least 1 with commas between: 1,2,4,8"),
    (replace(HERE, nodes="1,3"), {}, "--nodes 3: a global batch of 4 does not divide among 3 ranks x 1 micro-batch; "
     "4 does on 1, 2 nodes, and 6 on all of --nodes: change --nodes or --global-batch-size"),
    (replace(HERE, global_batch_size=3), {}, "--nodes 2: a global batch of 3 does not divide among 2 ranks"),
    (replace(INSTANCES, nodes="2,3"), {}, "--nodes 3 is not a multiple of the 2 nodes of an instance"),
    (replace(HERE, nodes="1,2", request=JobRequest(ranks_per_node=3)), {"parallel.spatial": "2"},
     "--nodes 1: 1 x 3 ranks are not a multiple of the 2 that share a sample (parallel.spatial)"),
    (replace(HERE, nodes="16"), {}, "--nodes 16: 16 x 1 ranks are more than the 8 cores of this machine, which "
     "simulates the nodes of site local; lower it, or name another --site"),
    (replace(HERE, mode="weak", nodes="1,8"), {"train.local_batch_size": "16"},
     "--nodes 8: a global batch of 128 is more than the 64 training samples; lower --nodes or "
     "train.local_batch_size, or use more samples"),
    (replace(HERE, global_batch_size=8, vary=("data.train_samples=64,4",)), {},
     "a global batch of 8 is more than the 4 training samples"),
    # options
    (replace(HERE, repeats=0), {}, "--repeats (0) must be at least 1"),
    (replace(HERE, seed=-1), {}, "--seed (-1) must be at least 0"),
    (replace(HERE, seed=2**32 - 1, repeats=2), {}, "--seed (4294967295) must be at most 4294957295, since the last"),
    (replace(HERE, steps=5), {}, "--steps (5) must be more than the 5 steps of the warm-up (measure.warmup_steps), "
     "which no figure counts; raise it"),
    (replace(HERE, steps=None), {"train.target": "null"},
     "train.target is unset and no --steps given, so that no run would know its end; give one"),
    (replace(HERE, mode="weak", global_batch_size=8), {},
     "--global-batch-size is for strong scaling; weak keeps train.local_batch_size"),
    (replace(HERE, global_batch_size=0), {}, "--global-batch-size (0) must be at least 1"),
    (replace(INSTANCES, instance_nodes=None), {}, "study throughput needs --instance-nodes"),
    (replace(INSTANCES, instance_nodes=0), {}, "--instance-nodes (0) must be at least 1"),
    (replace(HERE, instance_nodes=1), {}, "--instance-nodes is for throughput studies, not strong ones; leave it out"),
    # settings
    (HERE, {"train.sed": "1"}, "unknown key 'train.sed'; did you mean 'train.seed'"),
    (HERE, {"train.seed": "1"}, "train.seed is for the study to set; use --seed"),
    (HERE, {"train.max_steps": "9"}, "train.max_steps is for the study to set; use --steps"),
    (HERE, {"staging.destination": "/x"}, "use --vary tier=DIR or --local-path"),
    (HERE, {"parallel.devices": "2"}, "use --nodes and --ranks-per-node"),
    (HERE, {"parallel.simulated_nodes": "2"}, "parallel.simulated_nodes is for the study to set; use --nodes"),
    (HERE, {"parallel.simulated_ranks": "2"}, "parallel.simulated_ranks is for the study to set; leave it out"),
    (HERE, {"measure.probe": "false"}, "measure.probe is for the study to set; leave it out"),
    (HERE, {"train.target": "0.3"}, "train.target ends no run of --steps (60); leave out one of them"),
    (replace(HERE, preset="smok"), {}, "cosmoflow has no preset 'smok'; did you mean 'smoke'"),
    # axes
    (replace(HERE, vary=("tier",)), {}, "--vary ('tier') must be KEY=VALUE,VALUE,... with every value once"),
    (replace(HERE, vary=("tier=node", "tier=shared")), {}, "--vary tier is given twice"),
    (replace(HERE, vary=("data.prefech=1",)), {}, "unknown setting 'data.prefech'; did you mean 'data.prefetch'"),
    (replace(HERE, vary=("tier=nod",)), {}, "'nod' must be shared, node, memory, or a folder beginning with /"),
    (replace(HERE, vary=("train.seed=1,2",)), {}, "--vary train.seed is for the study to set; use --seed"),
    (replace(HERE, vary=("train.accumulation=1,2",)), {},
     "--vary train.accumulation would change the batch of a size; give each value a study of its own"),
    (replace(HERE, vary=("parallel.bucket_bytes=1,x",)), {}, "parallel.bucket_bytes (x) must be a whole number"),
    (replace(HERE, vary=("tier=/a/b,/a_b",)), {}, "two values of tier would share the run n0001-tier__a_b-r1"),
    # the site
    (replace(HERE, site="perlmuter-gpu"), {}, "unknown site 'perlmuter-gpu'; did you mean 'perlmutter-gpu'"),
    (replace(THERE, site="polaris", request=JobRequest()), {},
     "charges every job to a project; name yours with --account"),
    (replace(THERE, request=JobRequest(ranks_per_node=5)), {},
     "--ranks-per-node (5) is more than the 4 GPUs of a node of perlmutter-gpu; lower it, or give --gpus-per-rank 0"),
    (replace(THERE, request=JobRequest(ranks_per_node=65, gpus_per_rank=0)), {}, "is more than the 64 cores of a node"),
    (replace(THERE, request=JobRequest(cores_per_rank=17)), {},
     "--cores-per-rank (17) for 4 ranks is more than the 64 cores"),
    (replace(THERE, request=JobRequest(gpus_per_rank=2)), {},
     "--gpus-per-rank (2) for 4 ranks is more than the 4 GPUs"),
    (replace(THERE, request=JobRequest(time="72:00:00")), {},
     "--time (72:00:00) is more than the 48:00:00 of perlmutter-gpu"),
    (replace(HERE, site="generic-slurm"), {}, "does not know the cores of its nodes; give --cores-per-rank"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "settings", "message"), REFUSED, ids=[message[:40] for *_, message in REFUSED])
def test_what_cannot_run_is_refused_in_a_line(
    asked: ScalingRequest, settings: dict[str, str], message: str, data: dict[str, str]
) -> None:
    with pytest.raises(InputError) as caught:
        define(COSMOFLOW, asked, data | settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {seed: 3}\n", "train.seed is for the study to set; use --seed"),
        ("staging: {destination: /x}\n", "staging.destination is for the study to set; use --vary tier=DIR"),
        ("train: {target: 0.1}\n", "train.target ends no run of --steps (60); leave out one of them"),
    ],
)
def test_what_a_study_decides_may_not_stand_in_a_file(
    text: str, message: str, data: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        defined(replace(HERE, files=(file,)), data)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_without_a_dataset_there_is_nothing_to_train(data: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"no dataset: set --data.root DIR"):
        define(COSMOFLOW, HERE, {})
    with pytest.raises(InputError, match="nowhere"):
        define(COSMOFLOW, HERE, {"data.root": "nowhere"})


def test_a_request_touches_nothing(data: dict[str, str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    defined(replace(THERE, vary=("tier=shared,node",)), data)
    assert not list(tmp_path.iterdir())
