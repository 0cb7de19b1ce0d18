"""Messages, the largest of many, and counts: against closed forms, simulation and what was published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.planning.counting import build
from hpcbench.planning.dataset_size import dataset_size
from hpcbench.prediction.messages import all_reduce_s
from hpcbench.prediction.step_time import slowest_rank
from hpcbench.prediction.training import share_batch
from hpcbench.prediction.workload import published_work, work_of
from hpcbench.probability import expected_largest
from staging.errors import InputError


def test_an_all_reduce_of_two_nodes_sends_each_rank_s_part_once() -> None:
    # S/n bytes in a ring of two: 2 (1/2) S/n = S/n over a share 1/n of the network, so S over the node's network
    assert all_reduce_s(8e9, 4, 2, np.inf, 100e9, 0.0) == pytest.approx(8e9 / 100e9)
    assert all_reduce_s(8e9, 1, 1, 1e9, 1e9, 1.0) == 0


@given(st.integers(1, 16), st.integers(1, 4096), st.floats(1e9, 1e12), st.floats(0, 1e-3))
def test_more_nodes_never_make_messages_shorter(devices: int, nodes: int, network: float, latency: float) -> None:
    def seconds(count: int) -> float:
        return float(all_reduce_s(1e8, devices, count, 3e11, network, latency))

    assert seconds(nodes) <= seconds(2 * nodes)
    assert seconds(nodes) <= 2 * 1e8 / 3e11 + 2 * 1e8 / network + latency * np.log2(nodes) + 1e-12


def test_the_largest_of_many_is_that_of_a_simulation() -> None:
    rng = np.random.default_rng(1)
    for count in (2, 10, 200):
        simulated = rng.standard_normal((20_000, count)).max(axis=1).mean()
        assert expected_largest(count) == pytest.approx(simulated, abs=0.04)
    assert expected_largest(1) == 0
    assert slowest_rank(0.1, 1) == 1


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_counts_of_the_published_size_are_those_of_the_application(name: str) -> None:
    application = find_application(name)
    config = resolve(application, "mlperf")
    work = published_work()[name]
    assert sum(each.numel() for each in build(application, config).parameters()) == work.parameters
    size = dataset_size(application, config)
    assert size is not None
    assert (size.train_samples, size.validation_samples) == (work.train_samples, work.validation_samples)
    assert size.total == work.dataset_bytes
    landed = dataset_size(application, resolve(application, "mlperf", overrides={"data.format": "npy"}))
    assert landed is not None
    assert landed.train_bytes == work.train_samples * work.landed_bytes


def test_arithmetic_intensity_is_the_published_one() -> None:
    # FLOP per HBM byte as measured: 38.6 and 55.5 (Ibrahim et al., PMBS 2021)
    assert work_of("cosmoflow").flop / work_of("cosmoflow").memory_bytes == pytest.approx(38.6, rel=0.01)
    assert work_of("deepcam").flop / work_of("deepcam").memory_bytes == pytest.approx(55.5, rel=0.01)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16))
def test_passes_share_the_batch_within_the_most(ranks: int, share: int, most: int) -> None:
    passes = share_batch(ranks * share, ranks, most)
    assert share % passes == 0
    assert share // passes <= most


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(InputError, match=r"batch of 100 cannot be shared evenly by 32 accelerators; 25 is the next"):
        share_batch(100, 32, 8)
    with pytest.raises(InputError, match=r"batch of 512 cannot be shared evenly by 2,048 .*; 512 is the next"):
        share_batch(512, 2048, 8)


def test_an_application_that_no_round_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"no published round has 'cosmoflo'.*did you mean 'cosmoflow'\?"):
        work_of("cosmoflo")
