"""The recorded steps of the layer-wise optimizers meet their bounds, and the page shows what was measured."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from optimizers import CPU_BOUND, MEMORY_BOUND, PEER, TIMM_BOUND

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks" / "results" / "optimizers.json").read_text(encoding="utf-8"))["results"]


def ratios(pair: dict[str, Any]) -> list[float]:
    """Time of ours over that of the peer, by round."""
    return [ours / peer for ours, peer in zip(pair["ours_s"], pair["peer_s"], strict=True)]


@pytest.mark.parametrize("name", ["nvlamb", "lamb"])
def test_a_step_takes_at_most_the_bound_of_the_fused_adamw(name: str) -> None:
    pair = RECORD[f"{name}_against_adamw"]
    assert (RECORD["device"], pair["ours"], pair["peer"]) == ("cpu", name, PEER)
    assert pair["rounds"] == len(pair["ours_s"]) >= 9
    assert statistics.median(ratios(pair)) <= CPU_BOUND
    assert pair["target"] == pytest.approx(1 / CPU_BOUND)


def test_timm_takes_longer_and_memory_is_that_of_adamw() -> None:
    pair = RECORD["nvlamb_against_timm"]
    assert statistics.median(ratios(pair)) <= 1 / TIMM_BOUND
    assert RECORD["peak_ratio"] <= MEMORY_BOUND


def test_the_page_has_the_bound_and_the_ratios_of_the_record() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\| `optimizers.py` .* \| at most ([\d.]+) \| ([\d.]+) \(([\d.]+) to ([\d.]+)\)", page, re.M)
    assert found is not None
    measured = ratios(RECORD["nvlamb_against_adamw"])
    expected = (CPU_BOUND, statistics.median(measured), min(measured), max(measured))
    assert found.groups() == tuple(f"{value:.2f}" for value in expected)
