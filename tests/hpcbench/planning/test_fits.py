"""What a job needs against what its nodes have, and that what is named as fitting does fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.planning.dataset_size import DatasetSize, dataset_size
from hpcbench.planning.fits import Room, judge_batch, judge_memory, judge_staging, what_fits
from hpcbench.planning.rank_memory import rank_memory
from hpcbench.planning.staged_bytes import StagedBytes, rows_share, staged_bytes
from hpcbench.train.slab_staging import rows_of_node

TB, GB = 10**12, 10**9
COSMOFLOW, DEEPCAM = find_application("cosmoflow"), find_application("deepcam")


def a_set(train: int = 1000, validation: int = 100, sample_bytes: int = GB) -> DatasetSize:
    """So many samples of so many bytes."""
    return DatasetSize(train, validation, train * sample_bytes, validation * sample_bytes, "settings")


def test_staging_is_refused_beyond_the_room_and_warned_of_near_it() -> None:
    whole = StagedBytes(a_set(), nodes=4, sharded=False)
    levels = {
        limit: judge_staging(whole, Room("/local", limit)).level
        for limit in (1099 * GB, 1101 * GB, 1570 * GB, 1572 * GB)
    }
    assert levels == {1099 * GB: "refuse", 1101 * GB: "warn", 1570 * GB: "warn", 1572 * GB: "ok"}
    unknown = judge_staging(whole, Room("/local", None))
    assert (unknown.level, unknown.text) == (
        "ok",
        "1.10 TB to each node (for 1,000 + 100 samples); room unknown at /local",
    )


def test_what_fits_is_named() -> None:
    whole = StagedBytes(a_set(), nodes=4, sharded=False)
    others = [Room("/dev/shm", 50 * GB), Room("/big", 2 * TB), Room("/what", None)]
    said = judge_staging(whole, Room("/local", 300 * GB), others).text
    assert said == (
        "staging brings 1.10 TB to each node (for 1,000 + 100 samples), more than the 300 GB of /local; what fits: "
        "10 nodes or more with --staging.placement shard; --local-path /big (2.00 TB); --no-stage, which reads the "
        "dataset where it lies"
    )
    assert what_fits(replace(whole, nodes=10), Room("/local", 300 * GB), [])[0] == "--staging.placement shard"
    assert len(what_fits(whole, Room("/local", 99 * GB), [])) == 1, "validation samples alone are too many"
    assert len(what_fits(replace(whole, may_shard=False), Room("/local", 300 * GB), [])) == 1


def test_a_guess_refuses_nothing() -> None:
    guessed = StagedBytes(replace(a_set(), basis="preset"), nodes=4, sharded=False)
    found = judge_staging(guessed, Room("/local", GB))
    assert found.level == "warn"
    assert "that the preset simulates" in found.text
    assert "say how many samples there are (--samples)" in found.text


@given(
    train=st.integers(1, 10**6), validation=st.integers(0, 10**5), sample_bytes=st.integers(1, 10**8),
    room=st.integers(1, 10**14), copies=st.integers(1, 8),
)  # fmt: skip
def test_the_nodes_that_are_named_are_the_fewest_that_fit(
    train: int, validation: int, sample_bytes: int, room: int, copies: int
) -> None:
    staged = StagedBytes(a_set(train, validation, sample_bytes), nodes=1, sharded=True, copies=copies)
    nodes = staged.nodes_for(room)
    if nodes is None:
        assert copies * staged.on(train) > room
        return
    assert replace(staged, nodes=nodes).per_node <= room
    assert nodes == 1 or replace(staged, nodes=nodes - 1).per_node > room


def test_memory_is_refused_beyond_the_limit() -> None:
    room = Room("an accelerator", 100)
    assert [judge_memory(need, room, 8, None).level for need in (70, 71, 100, 101)] == ["ok", "warn", "warn", "refuse"]
    refused = judge_memory(101, room, 8, 4).text
    assert (
        "a rank needs 101 B at train.local_batch_size 8 (counted without the workspace of kernels, which is "
        "unmeasured), more than" in refused
    )
    on_host = judge_memory(101, Room("a rank's share", 100), 8, 4, processor=True).text
    how = "(counted with kernels and heap, up to 11 % low where it was measured)"
    assert f"{how}, more than the 100 B of a rank's share; what fits:" in on_host
    assert "what fits: --train.local_batch_size 4; more ranks for a sample (--parallel.spatial)" in refused
    assert "what fits: more ranks" in judge_memory(101, room, 1, 0).text
    unknown = judge_memory(101, Room("an accelerator", None), 8, None)
    assert (unknown.level, unknown.short) == ("ok", "101 B, room unknown")


def test_a_batch_that_is_larger_than_the_set() -> None:
    assert judge_batch(100, 100) is None
    assert judge_batch(100, None) is None
    found = judge_batch(101, 100)
    assert found is not None
    assert found.level == "refuse"


def test_the_published_sets_need_no_files() -> None:
    for application in (COSMOFLOW, DEEPCAM):
        config = resolve(application, "mlperf", overrides={"data.root": "/nowhere"})
        found = dataset_size(application, config)
        assert found is not None
        assert (found.basis, found.train_samples) == ("settings", config.data.train_samples)
    simulated = dataset_size(COSMOFLOW, resolve(COSMOFLOW, "smoke"))
    assert simulated is not None
    assert simulated.basis == "preset"


@pytest.mark.parametrize(
    ("settings", "nodes", "expected"),
    [
        ({}, 16, 1_669.2),
        ({"staging.placement": "shard"}, 16, 278.2),
        ({"staging.transform": "gunzip"}, 16, 9_895.8),
        ({"staging.placement": "shard", "staging.transform": "gunzip"}, 128, 1_168.2),
        ({"staging.slabs": "true", "staging.transform": "tfrecord-to-npy", "parallel.spatial": "8"}, 2, 4_948.1),
        ({"data.train_samples": "1000", "data.validation_samples": "500"}, 4, 4.245),
    ],
)
def test_bytes_of_a_node(settings: dict[str, str], nodes: int, expected: float) -> None:
    """In GB, of the published CosmoFlow set; slabs of 8 ranks on two nodes of 4 are halves."""
    config = resolve(COSMOFLOW, "mlperf", overrides={**settings, "staging.destination": "/local"})
    staged = staged_bytes(COSMOFLOW, config, nodes, 4)
    assert staged is not None
    assert staged.per_node / GB == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("spatial", "ranks"), [((2,), 4), ((4,), 2), ((8,), 4), ((3,), 2), ((2, 2), 2), ((2, 4), 4)])
def test_the_part_of_a_sample_that_a_node_has(spatial: tuple[int, ...], ranks: int) -> None:
    """As the staging of slabs itself finds it."""
    shape = MeshShape(4, spatial)
    nodes = [rank // ranks for rank in range(4 * shape.spatial_size)]
    most = max(rows_of_node(shape, nodes, node, 840).length for node in set(nodes)) / 840
    assert rows_share(shape, ranks) == pytest.approx(most, abs=1e-5)


def test_the_memory_of_a_rank_is_that_of_the_plan() -> None:
    from hpcbench.planning.plan import Machine, plan_meshes

    config = resolve(COSMOFLOW, "smoke")
    plans = plan_meshes(COSMOFLOW, config, Machine(1, 2))
    found = {each.shape.spatial_size: each.memory for each in plans.meshes if each.local_batch == 4}
    assert rank_memory(COSMOFLOW, config, 1, 2) == found[1]
    on_host = resolve(COSMOFLOW, "smoke", overrides={"parallel.accelerator": "cpu"})
    need, counted = rank_memory(COSMOFLOW, on_host, 1, 2), rank_memory(COSMOFLOW, config, 1, 2)
    assert need is not None
    assert counted is not None
    assert need > counted, "kernels and heap come on top"
