"""What a scaling study and its plots are said to show follows from its repeats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.study.scaling.figure_findings import (
    efficiency_finding,
    headline,
    phases_finding,
    solution_finding,
    staging_finding,
    throughput_finding,
    variants_finding,
)
from hpcbench.study.scaling.page import write_scaling
from hpcbench.study.scaling.point_results import PointResult
from tests.hpcbench.study.scaling.test_page import PLAIN, ROWS
from tests.hpcbench.study.scaling.test_table import point, run, solved

BOTH = [point(1, 100.0, variant="a"), point(4, 200.0, variant="a"), point(1, 100.0, variant="b"),
        point(4, 300.0, variant="b")]  # fmt: skip


def test_growth_is_against_the_smallest_size() -> None:
    """A step of 100 ms becomes one of 32.5 ms, in which 22.5 ms are computation."""
    assert throughput_finding(ROWS) == "4 nodes train 3.08 times as fast as 1 (efficiency 77 %)"
    assert efficiency_finding(ROWS, simulated=True) == "The efficiency on 4 simulated nodes is 77 %"
    assert phases_finding(ROWS) == "Compute takes 69 % of a step on 4 nodes"
    assert throughput_finding(BOTH) == "4 nodes train 2.00 (a) to 3.00 (b) times as fast as 1"
    assert efficiency_finding(BOTH) == "The efficiency on 4 nodes is 50 % (a) to 75 % (b)"
    assert throughput_finding([point(2, 100.0)]) == "100 samples/s on 2 nodes"
    assert efficiency_finding([point(2, 100.0)]) == ""
    assert throughput_finding([point(2, left=3)]) == ""


def test_the_longest_part_of_most_variants_is_named() -> None:
    slow = {"compute": 0.1, "communication": 0.3}
    rows = [point(1, 1.0, variant=name) for name in "ab"] + [PointResult(1, "c", [run(1.0, step_s=slow)])]
    assert phases_finding(rows) == "Compute is the longest part of a step on 1 node in 2 of 3 variants"


def staged(nodes: int, speed: float, variant: str = "") -> PointResult:
    return replace(point(nodes, variant=variant), runs=[run(1.0, staging_bytes_per_s=speed)])


def test_staging_is_told_at_the_largest_size() -> None:
    assert staging_finding([staged(1, 2e9), staged(4, 5e9)]) == "Staging brings 5.00 GB/s to 4 nodes and 2.00 GB/s to 1"
    rows = [staged(nodes, nodes * speed, name) for name, speed in (("a", 1e9), ("b", 2e9)) for nodes in (1, 4)]
    assert staging_finding(rows) == "Staging brings 4.00 (a) to 8.00 (b) GB/s to 4 nodes"
    assert staging_finding(ROWS) == ""


def test_trainings_are_fastest_and_cheapest_somewhere() -> None:
    assert solution_finding([solved(1, 4000.0), solved(4, 1300.0)]) == (
        "A training is fastest on 4 nodes (21 min 40 s) and cheapest on 1 node (1.11 node-hours)"
    )
    assert solution_finding([solved(1, 4000.0), solved(4, 900.0)]) == (
        "A training is fastest and cheapest on 4 nodes: 15 min 00 s"
    )


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((99.0, 100.0, 101.0), "On 2 nodes b is 1.50 times as fast as a"),
        ((140.0, 149.0, 158.0), "The variants on 2 nodes differ no more than repeats"),
    ],
)
def test_variants_are_told_apart_by_more_than_repeats(rates: tuple[float, ...], said: str) -> None:
    assert variants_finding([point(2, *rates, variant="a"), point(2, 148.0, 150.0, 152.0, variant="b")]) == said


def test_variants_of_one_repeat_are_not_told_apart() -> None:
    assert variants_finding(BOTH) == "Too few repeats to tell the variants on 4 nodes apart"


def test_the_page_is_headed_by_its_finding(tmp_path: Path, undrawn: None) -> None:
    write_scaling(PLAIN, tmp_path)
    page = tmp_path.joinpath("scaling.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    lead = "4 nodes train 3.08 times as fast as 1 (efficiency 77 %)"
    assert headline(PLAIN) == lead
    assert f"<h1>{lead}</h1>" in page
    assert f"<title>cosmoflow small: strong scaling from 1 to 4 nodes: {lead}</title>" in page
    assert '<p class="verdict">Strong scaling from 1 to 4 nodes. From 1 to 4 nodes throughput grows 3.08 times' in page
    rows = [replace(row, variant=f"{row.variant}{' bucket_bytes' * 6}") for row in BOTH]
    long = replace(PLAIN, rows=rows, solutions={}, fits={}, proposal=None)
    write_scaling(long, tmp_path)
    assert "<h1>Strong scaling from 1 to 4 nodes</h1>" in tmp_path.joinpath("scaling.html").read_text(encoding="utf-8")
