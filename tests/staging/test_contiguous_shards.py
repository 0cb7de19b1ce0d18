"""Shards that are runs of the sorted names, as scripts cut them: what each node gets, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from staging.errors import InputError
from staging.first_reads import words_again
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.planning.plan import make_plan
from staging.reshuffle import reshuffle
from staging.source.listing import Listing, Names
from staging.stage import stage
from tests.staging.staged_by_threads import run_ranks


def listing_of(sizes: list[int], names: list[str] | None = None) -> Listing:
    """Files of these sizes, sorted by name."""
    zeros = np.zeros(len(sizes), np.int64)
    given_names = names or [f"{number:06d}.tfrecord" for number in range(len(sizes))]
    return Listing(Names.of(given_names), np.array(sizes, np.int64), zeros, zeros)


def homes_of(listing: Listing, nodes: int, seed: int = 0, **more: Any) -> list[int]:
    plan = make_plan(listing, nodes, [1] * nodes, "shard", "direct", seed, contiguous=True, **more)
    homes: list[int] = plan.home.tolist()
    return homes


@given(st.lists(st.integers(1, 2**30), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 5))
def test_each_node_has_a_run_of_the_names_as_large_as_the_others_to_the_largest_file(
    sizes: list[int], nodes: int, seed: int
) -> None:
    homes = homes_of(listing_of(sizes), nodes, seed)
    assert homes == sorted(homes), "one run each, in the order of the nodes"
    assert homes == homes_of(listing_of(sizes), nodes, seed + 1), "nothing is drawn"
    loads = np.bincount(homes, weights=sizes, minlength=nodes)
    assert np.abs(loads - sum(sizes) / nodes).max() <= max(sizes)


def test_a_drawn_shard_knows_nothing_of_the_order_and_a_contiguous_one_all_of_it() -> None:
    """Labels that grow with the name: shards of 256 of 2,048 have the same mean label, or one eighth of them each."""
    listing, label = listing_of([9] * 2048), np.linspace(-1, 1, 2048)
    drawn = make_plan(listing, 8, [1] * 8, "shard", "direct", 1).home
    means = [label[drawn == node].mean() for node in range(8)]
    assert np.abs(means).max() < 4 * label.std() / np.sqrt(256)
    cut = np.array(homes_of(listing, 8))
    assert [label[cut == node].mean() for node in range(8)] == pytest.approx(np.arange(-7, 8, 2) / 8, abs=1e-3)


def test_files_of_one_sample_stay_together() -> None:
    names = sorted(f"{number}_{kind}.npy" for number in range(10, 50) for kind in ("data", "label"))
    homes = homes_of(listing_of([7, 1] * 40, names), 4)
    assert homes[::2] == homes[1::2] == [node for node in range(4) for _ in range(10)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(12):
        file = tmp_path / "source" / f"{number:02d}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]) * 100)
    return tmp_path / "source"


def stage_on_three(options: StageOptions) -> None:
    run_ranks([1, 1, 1], lambda world: stage(options, world, quiet=True))


@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_three_nodes_have_a_third_of_the_names_each(source: Path, tmp_path: Path, path: Any) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), "shard", path, contiguous=True)
    for _ in range(2):  # the second finds all there
        stage_on_three(options)
        for node in range(3):
            found = sorted(record.source for record in load_records(tmp_path / f"node{node}"))
            assert found == [f"{number:02d}" for number in range(4 * node, 4 * node + 4)]
    assert words_again(tmp_path / "node0")[2:] == ["--placement", "shard", "--seed", "0", "--contiguous"]


@pytest.mark.parametrize("first", [False, True])
def test_drawn_and_contiguous_shards_do_not_mix(source: Path, tmp_path: Path, first: bool) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), "shard", contiguous=first)
    stage_on_three(options)
    with pytest.raises(InputError, match="contiguous"):
        stage_on_three(replace(options, contiguous=not first))


def test_they_are_not_drawn_again(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), "shard", contiguous=True)
    stage_on_three(options)
    with pytest.raises(InputError, match="contiguous shards are not drawn"):
        run_ranks([1, 1, 1], lambda world: reshuffle(options, 1, world))
    with pytest.raises(InputError, match="not drawn"):
        make_plan(listing_of([1, 2]), 2, [1, 1], "shard", "direct", 0, shuffle=1, contiguous=True)


def test_the_command_takes_it_with_shards_only(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stage", str(source), str(tmp_path / "out"), "--contiguous"]
    assert main(words) == 2
    assert "--contiguous is for shards; give --placement shard" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*words, "--placement", "shard"]) == 0
    assert len(list(load_records(tmp_path / "out"))) == 12
