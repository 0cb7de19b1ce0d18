"""What pages say of simulated studies is what their records hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from typing import Any

import pytest

from tests.documented_commands import ROOT

METHODS = " ".join(
    (ROOT / "docs/convergence.md").read_text(encoding="utf-8").split("## What a methods chapter")[1].split()
)


def settings(name: str) -> list[dict[str, Any]]:
    """The settings of a recorded benchmark, with what was measured in each."""
    record = json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = record["results"]["settings"]
    return found


def percent(shares: Iterable[float | None], digits: int = 0) -> str:
    """The smallest and the largest share, as a page says them: ``94.7 to 100 %``."""
    known = [100 * share for share in shares if share is not None]
    return f"{min(known):.{digits}f} to {max(known):.{digits}f} %".replace(".0 ", " ")


def test_how_often_comparisons_are_right() -> None:
    found = settings("comparison_coverage")
    assert (len(found), {each["trials"] for each in found}) == (15, {300})
    equal = percent((each["equal_told_apart"] for each in found), 1)
    assert f"wrongly called different in {equal} of studies" in METHODS
    assert f"contains it in {percent((each['coverage'] for each in found), 1)}." in METHODS
    alone, among = (percent(each[name] for each in found) for name in ("power", "power_among_ten"))
    assert f"is found in {alone} of studies by a comparison that is made alone, and in {among} by one of ten" in METHODS


def test_how_often_a_trend_of_the_spread_is_seen() -> None:
    found = [each for each in settings("comparison_coverage") if "trend_seen" in each]
    least, most = (f(100 * each["no_trend_seen"] for each in found) for f in (min, max))
    assert f"one is seen in {least:.1f} to {most:.1f} % of studies" in METHODS
    few, some, many = (percent(each["trend_seen"] for each in found if each["seeds"] == seeds) for seeds in (3, 5, 10))
    assert f"is seen in {few} with three seeds, in {some} with five and in {many} with ten" in METHODS


def test_the_record_is_of_every_setting_that_the_benchmark_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the benchmark sets where it is unset
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark: Any = import_module("interval_coverage")
    wanted = [asdict(each) for kind in benchmark.all_settings() for each in kind]
    wanted = [each | {"cut": None if math.isinf(each["cut"]) else each["cut"]} for each in wanted]
    recorded = [{name: each.get(name) for name in wanted[0]} for each in settings("interval_coverage")]
    assert json.loads(json.dumps(wanted)) == recorded


def test_how_often_intervals_of_the_fit_hold() -> None:
    """Of seven batches; the two settings at the end show what goes wrong without the method."""
    found = [each for each in settings("interval_coverage") if not each["leave_out"]]
    found = [each for each in found if each["evaluations_per_epoch"] == 8 and len(each["batches"]) == 7]
    assert (len(found), {each["trials"] for each in found}) == (12, {300})
    held = percent(share for each in found for share in each["coverage"].values())
    assert f"they contain the true value in {held} of studies" in METHODS
