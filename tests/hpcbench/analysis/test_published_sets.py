"""Bytes and operations of the published sets, against the suite's own networks and formats."""

from __future__ import annotations

import pytest
import torch

from apps.cosmoflow import sizes as cosmoflow_sizes
from apps.cosmoflow.model import CosmoFlow
from apps.deepcam.model import DeepCAM
from hpcbench.analysis.published_sets import COSMOFLOW_SAMPLE, DEEPCAM_SAMPLE, SETS, set_of
from hpcbench.measure.flops import count_flops
from tests.hpcbench.analysis.made_runs import run

META = torch.device("meta")


def test_operations_are_those_of_the_networks() -> None:
    with META:
        old, new = (CosmoFlow(128, 4, 5, 32, kernel, 0.5) for kernel in (2, 3))
        climate = DeepCAM(16, 1.0, 16)
    cube, image = torch.empty(1, 4, 128, 128, 128, device=META), torch.empty(1, 16, 768, 1152, device=META)
    counts = [count_flops(old, cube), count_flops(new, cube), count_flops(climate, image)]
    assert [each.training_flops for each in SETS] == [count.training for count in counts]


def test_bytes_are_those_of_samples() -> None:
    """int16 cubes; float32 fields and two sets of labels. Published: 5.1 TB, 1.7 TB, and 8.8 TB with test samples."""
    assert COSMOFLOW_SAMPLE == 16 * 2**20
    assert DEEPCAM_SAMPLE == 60.75 * 2**20
    old, new, climate = SETS
    assert old.stored_bytes / 2**40 == pytest.approx(5.1, rel=0.03)
    assert new.stored_bytes == pytest.approx((524_288 + 65_536) * cosmoflow_sizes.PUBLISHED_GZIP_BYTES, rel=0.03)
    assert new.decoded_bytes / new.stored_bytes == pytest.approx(5.8, rel=0.01)
    assert climate.stored_bytes * 151_583 / 136_424 / 2**40 == pytest.approx(8.8, rel=0.01)


def test_a_set_is_known_by_its_samples() -> None:
    assert set_of(run(application="cosmoflow", train_samples=262_144)) is SETS[0]
    assert set_of(run(application="cosmoflow", train_samples=524_288)) is SETS[1]
    assert set_of(run(train_samples=121_216)) is SETS[2]
    assert set_of(run(train_samples=1000)) is None
    assert set_of(run(application="oc20", train_samples=2_000_000)) is None
