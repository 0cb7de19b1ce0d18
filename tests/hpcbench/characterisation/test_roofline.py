"""Bounds of a step and of kernels, from round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcbench.characterisation.roofline import bound_of, bounds, limited_by, lost_s, ranked
from hpcbench.characterisation.tables import touches
from tests.hpcbench.characterisation.made import CONVOLUTION, RELU, UPDATE, made


def test_each_part_of_a_step() -> None:
    found = {bound.part: bound for bound in bounds(made())}
    # 6 GFLOP at 20 GFLOP/s; 33 MB at 1 GB/s; 4 samples of 2.5 MB at 100 MB/s; 4 MB at 1 GB/s and twice 10 us.
    assert found["compute"].bound_s == pytest.approx(0.3)
    assert found["memory"].bound_s == pytest.approx(0.033)
    assert found["input"].bound_s == pytest.approx(0.1)
    assert found["network"].bound_s == pytest.approx(0.00402)
    # The step takes 1.25 s.
    assert found["compute"].attained == pytest.approx(4.8e9)
    assert found["compute"].utilisation == pytest.approx(0.24)


def test_without_steps_nothing_is_attained() -> None:
    assert {bound.attained for bound in bounds(made(steps=()))} == {None}
    assert bounds(made(roofs=(), curves=())) == []


def test_kernels_are_held_against_the_higher_of_their_times() -> None:
    found = made()
    assert bound_of(CONVOLUTION, found) == pytest.approx(0.15)  # 3 GFLOP, where 10 MB take 0.01 s
    assert bound_of(RELU, found) == pytest.approx(0.008)
    tiny = replace(RELU, read_bytes=8.0, written_bytes=8.0)
    assert bound_of(tiny, found) == 1e-5
    assert [limited_by(each, found) for each in (CONVOLUTION, RELU, tiny)] == ["compute", "memory", "launch"]
    assert bound_of(RELU, made(roofs=())) is None


def test_kernels_by_the_time_that_they_lose() -> None:
    found = made()
    assert lost_s(CONVOLUTION, found) == pytest.approx(2 * (0.5 - 0.15))
    assert lost_s(RELU, found) == pytest.approx(0.004)
    assert lost_s(replace(RELU, alone_s=0.001), found) == 0.0  # in a cache
    assert lost_s(replace(RELU, alone_s=None), found) is None
    assert [each.operation for each in ranked(found)] == ["convolution", "sgd", "relu_"]


def test_how_often_activations_are_touched() -> None:
    # Two convolutions of 10 MB and 8 MB of an activation over 7 MB; the update touches none.
    assert touches(made()) == pytest.approx(28 / 7)


def test_another_batch() -> None:
    assert CONVOLUTION.at_batch(4, 8) == (6e9, 2e6 + 2 * 8e6)
    assert UPDATE.at_batch(4, 8) == (0.0, 5e6)
