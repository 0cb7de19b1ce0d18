"""The table of a proposal: what runs cost on each size, as text, for LaTeX, and as comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.study.scaling.proposal import LATEX, Line, as_csv, as_latex, as_text, escaped, proposal
from hpcbench.study.scaling.rows import Measured, Row
from staging.errors import InputError

BASIS = "20 epochs of 100 % of set_a & set_b"


def row(nodes: int, rate: float, variant: str = "", instances: int = 1, **more: float) -> Row:
    measured = Measured(4 * nodes, 64, rate, {}, flops_per_sample=5 * 10**9, **more)  # type: ignore[arg-type]
    return Row(nodes, variant, [measured], instances=instances, cores_per_node=48, gpus_per_node=4, ranks_per_node=4)


ROWS = [row(4, 350.0, staging_s=100.0, init_s=20.0, staged_bytes=3 * 10**12), row(1, 100.0), row(2, 180.0)]


def test_a_line_is_what_the_runs_cost() -> None:
    line = proposal(ROWS, 10, 1_260_000.0)[-1]
    hours = (1_260_000 / 350 + 120) / 3600
    assert asdict(line) == pytest.approx(
        {
            "variant": "", "nodes": 4, "ranks": 16, "instances": 1, "runs": 10, "hours": hours,
            "node_hours": 40 * hours, "core_hours": 48 * 40 * hours, "gpu_hours": 160 * hours,
            "exaflop": 10 * 1.26e6 * 5e9 / 1e18, "terabytes": 30, "efficiency": 3.5 / 4,
        }
    )  # fmt: skip


def test_efficiency_is_relative_to_the_smallest_size_of_its_variant() -> None:
    lines = proposal([*ROWS, row(2, 50.0, "overlap off"), row(4, 80.0, "overlap off")], 1, 1e6)
    assert [(each.variant, each.nodes) for each in lines] == [
        ("", 1), ("", 2), ("", 4), ("overlap off", 2), ("overlap off", 4),
    ]  # fmt: skip
    assert [each.efficiency for each in lines] == pytest.approx([1, 0.9, 0.875, 1, 0.8])


def test_samples_differ_by_size_and_sizes_without_them_have_no_line() -> None:
    lines = proposal(ROWS, 1, {2: 360_000.0, 4: 1_400_000.0})
    assert [each.nodes for each in lines] == [2, 4]
    assert lines[0].hours == pytest.approx(2000 / 3600)
    assert lines[0].efficiency == pytest.approx(0.9)


def test_evaluations_take_time_too() -> None:
    (line,) = proposal([row(1, 100.0, evaluation_s=30.0)], 1, 3.6e5, evaluations_per_run={1: 20.0})
    assert line.hours == pytest.approx((3600 + 20 * 30) / 3600)


def test_data_is_what_was_staged_or_else_the_dataset_once_per_run() -> None:
    found = [each.terabytes for each in proposal(ROWS, 10, 1e6, 5 * 10**11)]
    assert found == pytest.approx([5, 5, 30])
    assert [each.terabytes for each in proposal(ROWS[1:], 10, 1e6)] == [None, None]


def test_instances_that_share_the_nodes_cost_what_each_would_alone() -> None:
    (alone,) = proposal([row(2, 50.0, staged_bytes=10**12)], 12, 1e6)
    (shared,) = proposal([row(8, 200.0, instances=4, staged_bytes=4 * 10**12)], 12, 1e6)
    assert shared == replace(alone, nodes=8, ranks=32, instances=4)


def test_what_a_site_lacks_is_no_column() -> None:
    bare = [Row(nodes, "", [Measured(nodes, 64, 100.0 * nodes, {})], cores_per_node=128) for nodes in (1, 2)]
    lines = proposal(bare, 1, 3.6e5)
    header = as_text(lines).splitlines()[2].split()
    assert header == ["nodes", "ranks", "h/run", "node-h", "core-h", "efficiency"]
    assert (lines[0].gpu_hours, lines[0].exaflop, lines[0].terabytes) == (None, None, None)


def test_text_reads_as_written() -> None:
    assert as_text(proposal(ROWS, 10, 1_260_000.0), BASIS) == (
        "Cost of 10 runs on each size: 20 epochs of 100 % of set_a & set_b. Efficiency is relative to the\n"
        "smallest size measured. TB: data moved, that is staged on all nodes, or the dataset once per run.\n"
        "\n"
        "nodes  ranks  h/run  node-h  GPU-h  core-h   EFLOP    TB  efficiency\n"
        "-----  -----  -----  ------  -----  ------  ------  ----  ----------\n"
        "    1      4   3.50    35.0    140   1,680  0.0630     -     100.0 %\n"
        "    2      8   1.94    38.9    156   1,870  0.0630     -      90.0 %\n"
        "    4     16   1.03    41.3    165   1,980  0.0630  30.0      87.5 %\n"
    )


YEAR = 9408 * 8760
LARGE = Line(
    "bucket_bytes 1048576, overlap off", nodes=9408, ranks=75_264, instances=1024, runs=10**5, hours=23.456,
    node_hours=YEAR, core_hours=56 * YEAR, gpu_hours=4 * YEAR, exaflop=123_456, terabytes=12_345, efficiency=1,
)  # fmt: skip
"""A year of a machine of 9,408 nodes."""


def test_no_line_of_text_is_wider_than_100_columns_and_no_number_is_cut() -> None:
    text = as_text([LARGE, replace(LARGE, nodes=2, variant="overlap on")], 30 * "long ")
    assert max(map(len, text.splitlines())) <= 100
    assert "bucket_bytes 1048576, overlap off\nnodes" in text
    assert ".." not in text


@pytest.mark.parametrize("variants", [("",), ("lr_scaling [off] 100% & a_b", "*x* $5 ~ #1^2 {\\}")])
def test_latex_is_balanced_and_every_line_has_all_cells(variants: tuple[str, ...]) -> None:
    lines = proposal([replace(each, variant=variant) for variant in variants for each in ROWS], 10, 1e6)
    text = as_latex(lines, BASIS)
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert begun == ended[::-1] == ["table", "tabular"]
    body = text.split(r"\begin{tabular}", 1)[1].splitlines()
    assert body[1:4:2] == [r"\toprule", r"\midrule"]
    assert body[-3] == r"\bottomrule"
    cells = [each for each in body if each.endswith(r" \\")]
    assert len(cells) == 1 + 3 * len(variants)
    assert {len(re.findall(r"(?<!\\)&", each)) + 1 for each in cells} == {len(body[0]) - 2}
    bare = re.sub(r"\\[{}%&#$_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[%#$_^~]", bare)
    assert not re.search(r"\\\\\s*[\[*]", text)
    assert r"\caption{Cost of 10 runs on each size: 20 epochs of 100 \% of set\_a \& set\_b. " in text


@given(st.text("\\{}$&#%_^~<>|[]*a 1\"'"))
def test_escapes_can_be_read_back(text: str) -> None:
    back = {code: letter for letter, code in LATEX.items()}
    codes = "|".join(re.escape(code) for code in sorted(back, key=len, reverse=True))
    assert re.sub(codes, lambda match: back[match[0]], escaped(text)) == text
    rest = re.sub(codes, "", escaped(text))
    assert not set(rest) & set(LATEX)


@given(
    line=st.builds(
        Line, variant=st.text("a,\"' \n1"), nodes=st.integers(1), ranks=st.integers(1), instances=st.integers(1),
        runs=st.integers(1), hours=st.floats(0, 1e9), node_hours=st.floats(0, 1e9), core_hours=st.floats(1, 2),
        gpu_hours=st.none(), exaflop=st.none() | st.floats(0, 1e9), terabytes=st.none(), efficiency=st.floats(0, 2),
    ),
    basis=st.text("a,\"' \n1"),
)  # fmt: skip
def test_comma_separated_values_keep_every_digit(line: Line, basis: str) -> None:
    (read,) = csv.DictReader(io.StringIO(as_csv([line], basis), newline=""))
    written = asdict(line) | {"basis": basis}
    assert list(read) == list(written)
    for name, value in written.items():
        assert read[name] == value if isinstance(value, str) else read[name] == ("" if value is None else repr(value))


def test_numbers_that_cost_nothing_are_refused() -> None:
    with pytest.raises(InputError, match=r"a proposal for 0 runs has no cost; give at least 1"):
        proposal(ROWS, 0, 1e6)
    with pytest.raises(InputError, match=r"a run of 0 samples on 1 nodes has no cost; it must have more than 0"):
        proposal(ROWS, 1, 0.0)


def test_rows_without_figures_have_no_line() -> None:
    assert proposal([Row(1, "")], 1, 1e6) == []
