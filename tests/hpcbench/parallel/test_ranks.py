"""Three ranks against one process: messages, gradients, batch-norm statistics, and what happens when they disagree."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hpcbench.parallel.group import connect
from staging.ranks.launch import Launch
from tests.hpcbench.parallel.programs.collectives import moved_without_a_gradient
from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).parent / "programs" / "collectives.py"

RANKS = 3


def run_program(*command: object, timeout_s: float = 120) -> list[dict[str, Any]]:
    """What each rank reports. The last line of output is the program's."""
    done = subprocess.run(
        [str(part) for part in command], env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True,
        timeout=timeout_s, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def rank_results() -> list[dict[str, Any]]:
    """Three ranks in the environment that `--parallel.devices 3` gives them."""
    return run_program(*spawned(RANKS, PROGRAM))


def program_parts() -> SimpleNamespace:
    """The model and data of the program, without running it."""
    return SimpleNamespace(**runpy.run_path(str(PROGRAM), run_name="parts"))


def test_ranks_know_their_place(rank_results: list[dict[str, Any]]) -> None:
    assert [rank["launch"] for rank in rank_results] == [
        {"rank": r, "world_size": 3, "local_rank": r, "local_size": 3, "node_rank": 0, "nodes": 1, "source": "torchrun"}
        for r in range(RANKS)
    ]


def test_messages(rank_results: list[dict[str, Any]]) -> None:
    for rank in rank_results:
        assert rank["rows"] == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
        assert rank["sum"] == [3.0, 3.0]
        assert rank["max"] == 3.0
        assert rank["object"] == {"rank": 1}


def test_gradients_equal_those_of_one_process(rank_results: list[dict[str, Any]]) -> None:
    parts = program_parts()
    model = parts.make_model(seed=0)
    parts.loss_sum(model, parts.DATA).backward()
    expected = torch.tensor(parts.gradients(model), dtype=torch.float64)
    for rank in rank_results:
        for step in range(2):
            reduced = torch.tensor(rank["reducer"][f"gradients of step {step}"], dtype=torch.float64)
            torch.testing.assert_close(reduced, expected, rtol=1e-12, atol=1e-15)


def test_ranks_have_identical_gradients(rank_results: list[dict[str, Any]]) -> None:
    for step in range(2):
        name = f"gradients of step {step}"
        assert all(rank["reducer"][name] == rank_results[0]["reducer"][name] for rank in rank_results)


def test_nothing_is_sent_before_the_last_micro_batch(rank_results: list[dict[str, Any]]) -> None:
    # In reverse, buckets of 200 bytes: the last layer (18 numbers of 8 bytes) with the bias before it (8), then that
    # layer's kernel (384), then the convolution. The last rank has nothing in the last micro-batch.
    buckets = 3
    for number, rank in enumerate(rank_results):
        for step in range(2):
            assert rank["reducer"][f"sent during the backward pass of step {step}"] == (0 if number == 2 else buckets)
            assert rank["reducer"][f"sent in micro-batch 0 of step {step}"] == 0
            assert rank["reducer"][f"sent in micro-batch 1 of step {step}"] == 0
            assert rank["reducer"][f"sent in step {step}"] == buckets
        assert rank["reducer"]["sent after close"] == 0


def test_gradients_keep_the_layout_of_their_parameters(rank_results: list[dict[str, Any]]) -> None:
    assert all(rank["reducer"]["strides"] == [True, True] for rank in rank_results)


def test_a_parameter_without_gradient_holds_nobody_up(rank_results: list[dict[str, Any]]) -> None:
    assert all(rank["unused"] == [6.0, 6.0, 0.0, 0.0] for rank in rank_results)


def test_a_parameter_without_gradient_decays_alike_on_one_rank_and_three(rank_results: list[dict[str, Any]]) -> None:
    alone = moved_without_a_gradient(connect(Launch()))
    assert alone == pytest.approx([0.95**2 - 0.1 * 0.95 - 0.1, 0.95**2])
    assert all(rank["moved"] == pytest.approx(alone, abs=1e-15) for rank in rank_results)


def test_gradients_travel_rounded_where_that_is_asked_and_keep_their_dtype(rank_results: list[dict[str, Any]]) -> None:
    # 1 + 2^-10 has one more digit than bfloat16 has room for (8), and one that float16 has room for (11). Of three
    # of them, 3 + 3 * 2^-10, float16 keeps multiples of 2^-9.
    exact, halved = 3 * (1 + 2**-10), {3.0 + 2**-9, 3.0 + 2**-8}
    for rank in rank_results:
        assert rank["rounded"]["gradient"] == [[exact, exact], "torch.float32"]
        assert rank["rounded"]["bfloat16"] == [[3.0, 3.0], "torch.float32"]
        values, dtype = rank["rounded"]["float16"]
        assert set(values) <= halved
        assert dtype == "torch.float32"


def test_in_their_own_order_buckets_wait_for_the_first_layer(rank_results: list[dict[str, Any]]) -> None:
    assert all(rank["sent"] == [2, 0] for rank in rank_results)


def test_batch_norm_statistics_are_means_over_ranks(rank_results: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(rank_results):
        assert rank["batchnorm"] == {
            "0.running_mean": [1.0] * 3,
            "0.running_var": [37.0] * 3,
            "0.num_batches_tracked": number,
            "2.running_mean": [2.0] * 2,
            "2.running_var": [370.0] * 2,
            "2.num_batches_tracked": number,
        }


def test_values_that_differ_stop_all_ranks(rank_results: list[dict[str, Any]]) -> None:
    for rank in rank_results:
        assert rank["disagreement"].startswith("the seed differs between ranks: 7 on rank 0, 8 on rank 2; start all")


@pytest.mark.slow
@pytest.mark.mpi
def test_mpiexec_gives_the_same(rank_results: list[dict[str, Any]], mpiexec: str) -> None:
    under_mpi = run_program(mpiexec, "-n", RANKS, sys.executable, PROGRAM)
    assert [rank.pop("launch")["source"] for rank in under_mpi] == ["PMI"] * RANKS
    assert under_mpi == [{name: value for name, value in rank.items() if name != "launch"} for rank in rank_results]


@pytest.mark.slow
def test_torchrun_gives_the_same(rank_results: list[dict[str, Any]]) -> None:
    assert (
        run_program(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, PROGRAM) == rank_results
    )
