"""What a scaling study and its plots are said to show follows from its repeats."""

from __future__ import annotations

import math
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
from hpcbench.study.scaling.findings import findings
from hpcbench.study.scaling.page import write_scaling
from hpcbench.study.scaling.point_results import PointResult
from tests.hpcbench.study.scaling.test_page import PLAIN, ROWS
from tests.hpcbench.study.scaling.test_table import point, run, solved

BOTH = [point(1, 99.0, 101.0, variant="a"), point(4, 199.0, 201.0, variant="a"), point(1, 99.0, 101.0, variant="b"),
        point(4, 299.0, 301.0, variant="b")]  # fmt: skip
ONCE = [replace(row, runs=[run(rate)]) for row, rate in zip(BOTH, (100.0, 200.0, 100.0, 300.0), strict=True)]


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


def test_variants_that_repeats_do_not_tell_apart_are_a_range_without_names() -> None:
    assert throughput_finding(ONCE) == "4 nodes train 2.00 to 3.00 times as fast as 1"
    assert efficiency_finding(ONCE) == "The efficiency on 4 nodes is 50 % to 75 %"
    wide = [*BOTH[:3], point(4, 190.0, 410.0, variant="b")]
    assert throughput_finding(wide) == "4 nodes train 2.00 to 3.00 times as fast as 1"
    assert throughput_finding(wide[1::2]) == "200 to 300 samples/s on 4 nodes"
    assert throughput_finding(BOTH[1::2]) == "200 (a) to 300 (b) samples/s on 4 nodes"
    apart = [point(1, 49.0, 51.0, variant="a"), point(4, 100.0, 102.0, variant="a"), *wide[2:]]
    apart[3] = point(4, 201.0, 205.0, variant="b")
    assert "2.02 to 2.03 times" in throughput_finding(apart), "their throughput differs, their speed-up does not"


def test_the_longest_part_of_most_variants_is_named() -> None:
    slow = {"compute": 0.1, "communication": 0.3}
    rows = [point(1, 1.0, variant=name) for name in "ab"] + [PointResult(1, "c", [run(1.0, step_s=slow)])]
    assert phases_finding(rows) == "Compute is the longest part of a step on 1 node in 2 of 3 variants"


def staged(nodes: int, speed: float, variant: str = "") -> PointResult:
    return replace(point(nodes, variant=variant), runs=[run(1.0, staging_bytes_per_s=speed)] * 2)


def test_staging_is_told_at_the_largest_size() -> None:
    assert staging_finding([staged(1, 2e9), staged(4, 5e9)]) == "Staging brings 5.00 GB/s to 4 nodes and 2.00 GB/s to 1"
    rows = [staged(nodes, nodes * speed, name) for name, speed in (("a", 1e9), ("b", 2e9)) for nodes in (1, 4)]
    assert staging_finding(rows) == "Staging brings 4.00 (a) to 8.00 (b) GB/s to 4 nodes"
    assert staging_finding(ROWS) == ""


def test_trainings_are_fastest_and_cheapest_somewhere() -> None:
    assert solution_finding({"": [solved(1, 4000.0), solved(4, 1300.0)]}) == (
        "A training is fastest on 4 nodes (21 min 40 s) and cheapest on 1 node (1.11 node-hours)"
    )
    assert solution_finding({"": [solved(1, 4000.0), solved(4, 900.0)], "b": []}) == (
        "A training is fastest and cheapest on 4 nodes: 15 min 00 s"
    )


def test_the_fastest_training_names_its_variant_and_those_of_about_the_same_time() -> None:
    both = {"a": [solved(1, 4000.0), solved(2, 1000.0)], "": [solved(4, 900.0), solved(8, 2000.0)]}
    doubt = "; the shortest time is not told apart from that on 2 nodes with a: their 95 % intervals overlap"
    assert solution_finding(both) == (
        "A training is fastest on 4 nodes with the setting as given (15 min 00 s) and cheapest on 2 nodes with a "
        f"(0.556 node-hours){doubt}"
    )
    assert findings(replace(PLAIN, solutions=both))[-2] == (
        "A training to the target is fastest on 4 nodes with the setting as given: 15 min 00 s, 1.00 node-hours; "
        f"cheapest on 2 nodes with a: 16 min 40 s, 0.556 node-hours{doubt}."
    )
    many = {"": [solved(nodes, 900.0 + nodes) for nodes in range(1, 7)]}
    assert "from that on 2 nodes, 3 nodes, 4 nodes and 2 more: their" in solution_finding(many)
    unknown = {"": [solved(2, 1000.0, time_interval=(math.nan, math.nan)), solved(4, 900.0)]}
    assert "told apart" not in solution_finding(unknown)


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((99.0, 100.0, 101.0), "On 2 nodes b is 1.50 times as fast as a"),
        ((140.0, 149.0, 158.0), "No difference between the variants on 2 nodes is seen"),
    ],
)
def test_variants_are_told_apart_by_a_test_over_repeats(rates: tuple[float, ...], said: str) -> None:
    assert variants_finding([point(2, *rates, variant="a"), point(2, 148.0, 150.0, 152.0, variant="b")]) == said


def test_variants_of_one_repeat_are_not_told_apart() -> None:
    assert variants_finding(ONCE) == "Too few repeats to tell the variants on 4 nodes apart"


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
