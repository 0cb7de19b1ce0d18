"""The ladder of a scaling study: the batch of every size, the runs, their seeds, and what two studies share."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.config.schema import LARGEST_SEED
from hpcbench.study.scaling.definition import Scaling, grow
from hpcbench.study.scaling.run_matrix import (
    PlannedRun,
    Point,
    all_runs,
    axes,
    check_seeds,
    checked,
    data_parallel_size,
    groups,
    instances,
    local_batch_size,
    nodes_list,
    points,
    run_nodes,
    seed_of,
    tier_of,
    variant_settings,
)
from staging.errors import DataError, InputError

STUDY = Scaling(
    mode="strong", application="cosmoflow", preset="smoke", site="perlmutter-gpu", nodes=(1, 2, 4), ranks_per_node=4,
    local_batch_size=4, cores_per_rank=16, gpus_per_rank=1, global_batch_size=16, repeats=2, steps=60,
    settings={"data.root": "set"}, request={"account": "m1", "modules": ("pytorch",), "environment": {"A": "1"}},
    commands=("hpcbench study strong cosmoflow",),
)  # fmt: skip
VARIED = replace(STUDY, vary={"tier": ("shared", "memory"), "parallel.overlap": ("true", "false")})
MANY = replace(STUDY, mode="throughput", instance_nodes=2, nodes=(2, 4, 8), global_batch_size=None)
SIZES = st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True).map(lambda sizes: tuple(sorted(sizes)))
SMALL = st.integers(1, 8)


@given(SIZES, SMALL, SMALL, SMALL, SMALL)
def test_in_strong_scaling_ranks_and_micro_batches_share_the_global_batch(
    nodes: tuple[int, ...], ranks: int, local: int, accumulation: int, spatial: int
) -> None:
    study = replace(
        STUDY, nodes=nodes, ranks_per_node=ranks * spatial, local_batch_size=local, accumulation=accumulation,
        global_batch_size=None, spatial_size=spatial,
    )  # fmt: skip
    smallest = local * accumulation * nodes[0] * ranks
    try:
        found = checked(study)
    except InputError as error:
        offered = int(re.search(r"and (\d+) on all of --nodes", str(error))[1])  # type: ignore[index]
        assert any(smallest % (accumulation * size * ranks) for size in nodes)
        found = checked(replace(study, global_batch_size=offered))
        assert found.global_batch_size == offered >= smallest
    else:
        assert found.global_batch_size == smallest, "the default is that of the smallest size"
    for size in nodes:
        assert data_parallel_size(found, size) == size * ranks
        assert local_batch_size(found, size) * accumulation * data_parallel_size(found, size) == found.global_batch_size


@given(SIZES, SMALL, SMALL, st.sampled_from(["weak", "throughput"]))
def test_in_weak_scaling_and_throughput_the_local_batch_stays(
    nodes: tuple[int, ...], ranks: int, local: int, mode: Any
) -> None:
    alone = 1 if mode == "throughput" else None
    study = replace(STUDY, mode=mode, nodes=nodes, ranks_per_node=ranks, local_batch_size=local,
                    global_batch_size=None, instance_nodes=alone)  # fmt: skip
    assert checked(study) == study
    assert {local_batch_size(study, run_nodes(study, run)) for run in all_runs(study)} == {local}


def test_a_size_that_does_not_divide_is_refused_with_those_that_do() -> None:
    with pytest.raises(InputError) as caught:
        checked(replace(STUDY, nodes=(1, 3, 4), ranks_per_node=2, global_batch_size=8))
    assert str(caught.value) == (
        "--nodes 3: a global batch of 8 does not divide among 6 ranks x 1 micro-batch; 8 does on 1, 2, 4 nodes, and "
        "24 on all of --nodes: change --nodes or --global-batch-size"
    )


def test_ranks_that_share_samples_must_fill_the_nodes() -> None:
    with pytest.raises(InputError, match=r"--nodes 1: 1 x 3 ranks are not a multiple of the 2 that share a sample"):
        checked(replace(STUDY, ranks_per_node=3, spatial_size=2))


@given(SMALL, st.lists(SMALL, min_size=1, max_size=4, unique=True), st.integers(1, 3))
def test_throughput_fills_its_nodes_with_instances(size: int, counts: list[int], repeats: int) -> None:
    nodes = tuple(sorted(size * count for count in counts))
    study = checked(replace(MANY, nodes=nodes, instance_nodes=size, repeats=repeats))
    for group in groups(study):
        total = group[0].point.nodes
        assert instances(study, total) == len(group)
        assert sum(run_nodes(study, run) for run in group) == total
        assert [run.instance for run in group] == list(range(1, len(group) + 1))
    for point in points(study):
        own = [run for run in all_runs(study) if run.point == point]
        assert len({seed_of(study, run) for run in own}) == len(own), "every training of a point is another one"
    assert len({run.name for run in all_runs(study)}) == len(all_runs(study))


def test_instances_must_fill_the_nodes() -> None:
    with pytest.raises(InputError, match=r"--nodes 3 is not a multiple of the 2 nodes of an instance; change --nodes"):
        checked(replace(MANY, nodes=(2, 3)))


def test_every_point_has_its_repeats_and_names_of_its_own() -> None:
    runs = all_runs(VARIED)
    assert len(runs) == 3 * 4 * 2
    assert len({run.name for run in runs}) == len(runs)
    assert [run.repeat for run in runs] == sorted(run.repeat for run in runs), "first come all first repeats"
    assert runs[0].name == "n0001-tier_shared-overlap_true-r1"
    assert runs[0].point.label == "tier shared, overlap true"
    assert all(a.nodes < b.nodes for a, b in pairwise(points(VARIED)) if a.variant == b.variant)
    assert PlannedRun(Point(2, (("tier", "/a b/c"),)), 3, 7).name == "n0002-tier__a_b_c-r3-i007"


def test_sizes_and_variants_share_the_seeds_of_their_repeats() -> None:
    for run in all_runs(VARIED):
        assert seed_of(VARIED, run) == {1: 1, 2: 10_001}[run.repeat]


def test_the_tier_is_no_setting() -> None:
    variant = (("tier", "memory"), ("data.prefetch", "4"))
    assert variant_settings(variant) == {"data.prefetch": "4"}
    assert (tier_of(variant), tier_of(())) == ("memory", None)


def test_sizes_are_read_smallest_first() -> None:
    assert nodes_list("8,1,2,8") == (1, 2, 8)
    for text in ("", "1,", "0,1", "1, 2", "-1", "two", "1.5"):
        with pytest.raises(InputError, match=r"must be numbers of at least 1 with commas between: 1,2,4,8"):
            nodes_list(text)


def test_sizes_are_bounded_in_number_and_nodes() -> None:
    assert len(nodes_list(",".join(map(str, range(1, 101))))) == 100
    with pytest.raises(InputError, match=r"^--nodes has 3,000 sizes and may have at most 100; leave some out$"):
        nodes_list(",".join(map(str, range(1, 3001))))
    assert nodes_list("1,1000000") == (1, 1_000_000)
    for text in ("999999,1000001", "2,10000000"):
        with pytest.raises(InputError, match=r"^--nodes \(10+1?\) must be at most 1,000,000; lower it$"):
            nodes_list(text)
    with pytest.raises(InputError, match="must be at most 1,000,000") as caught:
        nodes_list("9" * 5000)
    assert len(str(caught.value)) < 500


def test_axes_are_read() -> None:
    known = ["parallel.overlap", "data.prefetch"]
    assert axes(["tier=shared,node", "data.prefetch=1,4"], known) == {
        "tier": ("shared", "node"), "data.prefetch": ("1", "4"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (["tier"], "('tier') must be KEY=VALUE,VALUE,... with every value once"),
        (["tier=node,node"], "must be KEY=VALUE,VALUE,... with every value once"),
        (["parallel.overlp=true"], "unknown setting 'parallel.overlp'; did you mean 'parallel.overlap'?"),
        (["teir=node"], "unknown setting 'teir'; did you mean 'tier'?"),
        (["tier=node", "tier=memory"], "--vary tier is given twice; name all its values in one"),
    ],
)
def test_axes_that_are_none_are_refused(given_: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        axes(given_, ["parallel.overlap"])


@pytest.mark.parametrize("study", [STUDY, VARIED, MANY])
def test_a_definition_comes_back_from_its_file(study: Scaling) -> None:
    back = Scaling.from_dict(json.loads(json.dumps(study.as_dict())), Path("study.json"))
    assert replace(back, request=study.request) == study
    assert back.job_request(4) == study.job_request(4)
    assert (back.job_request(4).nodes, back.job_request(4).account, back.job_request(4).modules) == (
        4,
        "m1",
        ("pytorch",),
    )
    assert grow(back, study, Path("s")) == study


def test_a_definition_of_another_kind_or_damaged_is_refused() -> None:
    with pytest.raises(DataError, match="is a study of the kind 'convergence', not of scaling"):
        Scaling.from_dict({"kind": "convergence"}, Path("study.json"))
    for damage in ({"nodes": None}, {"vary": ["tier"]}):
        with pytest.raises(DataError, match="is damaged"):
            Scaling.from_dict(STUDY.as_dict() | damage, Path("study.json"))
    lacking = {name: value for name, value in STUDY.as_dict().items() if name != "application"}
    with pytest.raises(DataError, match="is damaged"):
        Scaling.from_dict(lacking, Path("study.json"))


def test_a_study_grows_by_sizes_repeats_and_values() -> None:
    more = replace(VARIED, nodes=(4, 8), repeats=1, commands=("again",),
                   vary={"tier": ("memory", "node"), "parallel.overlap": ("true",)})  # fmt: skip
    both = grow(VARIED, more, Path("s"))
    assert (both.nodes, both.repeats) == ((1, 2, 4, 8), 2)
    assert both.vary == {"tier": ("shared", "memory", "node"), "parallel.overlap": ("true", "false")}
    assert both.commands == (*VARIED.commands, "again")
    assert {run.name for run in all_runs(VARIED)} < {run.name for run in all_runs(both)}
    reordered = grow(VARIED, replace(more, vary=dict(reversed(more.vary.items()))), Path("s"))
    assert [run.name for run in all_runs(reordered)] == [run.name for run in all_runs(both)]


DIFFERENT: dict[str, Any] = {
    "mode": "weak", "application": "deepcam", "preset": "node", "site": "polaris", "ranks_per_node": 2,
    "cores_per_rank": 8, "gpus_per_rank": 0, "local_batch_size": 2, "accumulation": 2, "global_batch_size": 32,
    "instance_nodes": 1, "steps": None, "vary": {"tier": ("shared",)}, "files": ("own.yaml",), "stages": False,
    "seed": 2,
}  # fmt: skip
FREE = {"nodes", "repeats", "commands", "settings", "request", "spatial_size", "convergence", "preset_values"}
"""May differ, or are compared by what is in them; spatial_size follows from the settings, and test_preset_values is
about the preset's."""


def test_every_part_of_a_definition_is_compared_or_may_differ() -> None:
    assert {each.name for each in fields(Scaling)} == DIFFERENT.keys() | FREE


@pytest.mark.parametrize("change", [
    *({name: value} for name, value in DIFFERENT.items()),
    *({"settings": {"data.root": "set", name: value}} for name, value in {
        "optim.lr": "1", "parallel.overlap": "false", "data.workers": "2", "parallel.threads": "2",
        "train.checkpoint_every": "0", "data.root": "elsewhere"}.items()),
    *({"request": {**STUDY.request, name: value}} for name, value in {
        "constraint": "a100", "modules": ("other",), "environment": {"A": "2"}, "image": "x.sif",
        "local_path": "/nvme"}.items()),
])  # fmt: skip
def test_what_would_make_runs_incomparable_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^mine holds another study: its .* is .*, this one's .*; give another --st"):
        grow(STUDY, replace(STUDY, **change), Path("mine"))


def test_what_a_job_costs_and_how_the_dataset_is_written_is_no_other_study() -> None:
    same = replace(
        STUDY, settings={"data.root": str(Path("set").resolve()), "train.keep_checkpoints": "1"},
        request={**STUDY.request, "account": "m2", "time": "02:00:00", "queue": "debug", "memory_gib": 8},
    )  # fmt: skip
    assert grow(STUDY, same, Path("s")).request == same.request


def test_the_seeds_of_all_repeats_and_instances_are_seeds() -> None:
    check_seeds(replace(STUDY, seed=LARGEST_SEED - 10_000))
    with pytest.raises(InputError, match=rf"--seed \({LARGEST_SEED}\) must be at most {LARGEST_SEED - 10_000}, "):
        check_seeds(replace(STUDY, seed=LARGEST_SEED))
    check_seeds(replace(MANY, seed=LARGEST_SEED - 10_003))
    with pytest.raises(InputError, match=rf"must be at most {LARGEST_SEED - 10_003}, .* has seed {LARGEST_SEED + 1} "):
        check_seeds(replace(MANY, seed=LARGEST_SEED - 10_002))
