"""The table of a proposal as text, for LaTeX, and as comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.proposal import Campaign, Line, proposal
from hpcbench.study.scaling.proposal_forms import CSV_COLUMNS, LATEX, as_csv, as_latex, as_text, escaped
from hpcbench.study.scaling.trainings import Training

BASIS = "20 epochs of 100 % of set_a & set_b"


def row(nodes: int, rate: float, variant: str = "", **more: float) -> PointResult:
    measured = RepeatResult(4 * nodes, 64, rate, {}, flops_per_sample=5 * 10**9, **more)  # type: ignore[arg-type]
    return PointResult(nodes, variant, [measured], cores_per_node=48, gpus_per_node=4, ranks_per_node=4)


KNOWN = {"peak_memory_bytes": 31 * 10**9, "train_bytes": 10**12, "validation_bytes": 10**11, "folder_bytes": 2 * 10**9}
ROWS = [row(4, 200.0, staging_s=100.0, init_s=20.0, staged_bytes=3 * 10**12, **KNOWN), row(1, 100.0), row(2, 180.0)]
LENGTHS = {("", nodes): Training(20, 1_260_000.0, 0, BASIS) for nodes in (1, 2, 4)}
LINES = proposal(ROWS, LENGTHS, Campaign(10))


def test_text_reads_as_written() -> None:
    assert as_text(LINES) == (
        "Cost of 10 runs on each size: 20 epochs of 100 % of set_a & set_b. Hours under a header with +15 %\n"
        "include 15 % of contingency. Efficiency is relative to the smallest size measured; below 70 % a size\n"
        "is not recommended. Staged: what landed on all nodes together. Memory: the peak of a rank's process.\n"
        "Storage: the dataset once, and the folders of all runs as large as those measured.\n"
        "Result not verified by MLCommons Association.\n"
        "\n"
        "The largest recommended size is 2 nodes. Single repeats cannot tell how sure the efficiency is on 2,\n"
        "4 nodes.\n"
        "nodes  ranks  epochs/run  h/run   memory  efficiency  advice\n"
        "-----  -----  ----------  -----  -------  ----------  ---------------\n"
        "    1      4        20.0   3.50        -     100.0 %\n"
        "    2      8        20.0   1.94        -      90.0 %\n"
        "    4     16        20.0   1.78  31.0 GB      50.0 %  not recommended\n"
        "\n"
        "nodes  node-h  node-h +15 %  GPU-h +15 %  core-h +15 %  operations   staged  storage\n"
        "-----  ------  ------------  -----------  ------------  ----------  -------  -------\n"
        "    1    35.0          40.2          161         1,930  63.0 PFLOP        -        -\n"
        "    2    38.9          44.7          179         2,150  63.0 PFLOP        -        -\n"
        "    4    71.3          82.0          328         3,940  63.0 PFLOP  30.0 TB  1.12 TB\n"
    )


def test_what_a_site_lacks_is_no_column() -> None:
    bare = [
        PointResult(nodes, "", [RepeatResult(nodes, 64, 100.0 * nodes, {})], cores_per_node=128) for nodes in (1, 2)
    ]
    lines = proposal(bare, {("", nodes): Training(1, 3.6e5, 0) for nodes in (1, 2)}, Campaign(1, contingency=0))
    headers = [line.split() for line in as_text(lines).splitlines() if line.startswith("nodes  ")]
    assert headers == [["nodes", "ranks", "epochs/run", "h/run", "efficiency"], ["nodes", "node-h", "core-h"]]
    assert (lines[0].gpu_hours, lines[0].flop, lines[0].data_bytes) == (None, None, None)
    assert "contingency" not in as_text(lines)


@pytest.mark.parametrize(("flop", "data", "words"), [
    (3.83e13, 3.79e9, ("38.3 TFLOP", "3.79 GB")), (4.2e9, 5e5, ("4.20 GFLOP", "500 kB")),
    (6.1e16, 8e13, ("61.0 PFLOP", "80.0 TB")), (1.2e19, 2.5e16, ("12.0 EFLOP", "25.0 PB")),
])  # fmt: skip
def test_units_suit_the_size(flop: float, data: float, words: tuple[str, str]) -> None:
    line = replace(LINES[0], flop=flop, data_bytes=data)
    for form in (as_text, as_latex):
        text = form([line])
        assert all(each in text for each in words)
        assert not re.search(r"\de[+-]\d", text)


def test_data_that_some_runs_staged_says_which() -> None:
    read = row(2, 180.0, "tier shared", train_bytes=10**12)
    staged = row(2, 180.0, "tier node", staged_bytes=10**12)
    lengths = {(each.variant, 2): Training(2, 1e6, 0) for each in (read, staged)}
    lines = proposal([read, staged], lengths, Campaign(1))
    text = as_text(lines)
    assert "Staged: what landed on all nodes together. Read: the dataset from where it lies" in " ".join(text.split())
    headers = [line.split()[-1] for line in text.splitlines() if "operations" in line]
    assert headers == ["read", "staged"]
    assert "& 1.00 TB & - " in as_latex(lines)
    assert "& - & 2.00 TB " in as_latex(lines)


def test_variants_of_another_length_say_so() -> None:
    rows = [row(1, 100.0, "max_epochs 4"), row(1, 100.0, "max_epochs 8")]
    lengths = {(each.variant, 1): Training(1, 1e6, 0, f"{each.variant[-1]} epochs") for each in rows}
    text = " ".join(as_text(proposal(rows, lengths, Campaign(1))).split())
    assert "each size: max_epochs 4: 4 epochs; max_epochs 8: 8 epochs. Hours" in text


YEAR = 9408 * 8760
LARGE = Line(
    "bucket_bytes 1048576, overlap off", nodes=9408, ranks=75_264, instances=1024, campaign=Campaign(10**5),
    training=Training(1234.5, 1e12, 99, BASIS), hours_per_run=23.456, node_hours=YEAR, core_hours=56 * YEAR,
    gpu_hours=4 * YEAR, flop=123_456e18, data_bytes=12_345e12, staged=True, memory_bytes=123 * 10**9, accelerators=True,
    dataset_bytes=10**15, run_folders_bytes=10**14, efficiency=0.5,
)  # fmt: skip
"""A year of a machine of 9,408 nodes."""


def test_no_line_of_text_is_wider_than_100_columns_and_no_number_is_cut() -> None:
    long = replace(LARGE, training=replace(LARGE.training, basis=30 * "long "))
    text = as_text([long, replace(long, nodes=2, variant="overlap on", staged=False)])
    assert max(map(len, text.splitlines())) <= 100
    assert "bucket_bytes 1048576, overlap off: No size is recommended.\nnodes" in text
    assert ".." not in text
    numbers = ("94,800,000", "379,000,000", "5,310,000,000", "123,000 EFLOP", "12.3 PB", "1.10 PB", "123 GB")
    assert not [number for number in numbers if number not in text]


@pytest.mark.parametrize("variants", [("",), ("lr_scaling [off] 100% & a_b", "*x* $5 ~ #1^2 {\\}")])
def test_latex_is_balanced_and_every_line_has_all_cells(variants: tuple[str, ...]) -> None:
    lines = [replace(each, variant=variant) for variant in variants for each in LINES]
    text = as_latex(lines)
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert (begun, ended) == (2 * ["table", "tabular"], 2 * ["tabular", "table"])
    for part in text.split(r"\begin{tabular}")[1:]:
        body = part[: part.index(r"\end{tabular}")].splitlines()
        assert body[1:4:2] == [r"\toprule", r"\midrule"]
        assert body[-1] == r"\bottomrule"
        cells = [each for each in body if each.endswith(r" \\")]
        assert len(cells) == 1 + 3 * len(variants)
        assert {len(re.findall(r"(?<!\\)&", each)) + 1 for each in cells} == {len(body[0]) - 2}
    bare = re.sub(r"\\[{}%&#$_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[%#$_^~]", bare)
    assert not re.search(r"\\\\\s*[\[*]", text)
    assert r"\caption{Cost of 10 runs on each size: 20 epochs of 100 \% of set\_a \& set\_b. " in text
    assert "The largest recommended size is 2 nodes." in text
    assert r"node-h +15 \%" in text


@given(st.text("\\{}$&#%_^~<>|[]*a 1\"'"))
def test_escapes_can_be_read_back(text: str) -> None:
    back = {code: letter for letter, code in LATEX.items()}
    codes = "|".join(re.escape(code) for code in sorted(back, key=len, reverse=True))
    assert re.sub(codes, lambda match: back[match[0]], escaped(text)) == text
    rest = re.sub(codes, "", escaped(text))
    assert not set(rest) & set(LATEX)


@given(
    variant=st.text("a,\"' \n1"), hours=st.floats(0, 1e9), flop=st.none() | st.floats(0, 1e30),
    memory=st.none() | st.integers(0), basis=st.text("a,\"' \n1"),
)  # fmt: skip
def test_comma_separated_values_keep_every_digit(
    variant: str, hours: float, flop: float | None, memory: int | None, basis: str
) -> None:
    line = replace(LARGE, variant=variant, node_hours=hours, flop=flop, memory_bytes=memory, gpu_hours=None,
                   training=replace(LARGE.training, basis=basis))  # fmt: skip
    (read,) = csv.DictReader(io.StringIO(as_csv([line]), newline=""))
    assert list(read) == list(CSV_COLUMNS)
    for name, column in CSV_COLUMNS.items():
        value = column(line)
        assert read[name] == value if isinstance(value, str) else read[name] == ("" if value is None else repr(value))


def test_comma_separated_values_are_base_units_named_in_their_columns() -> None:
    (read,) = csv.DictReader(io.StringIO(as_csv([LINES[-1]])))
    assert float(read["flop"]) == 63e15
    assert (float(read["data_bytes"]), read["data_were"]) == (30e12, "staged")
    assert (int(read["memory_per_rank_bytes"]), read["memory_of"]) == (31 * 10**9, "process")
    assert (
        int(read["storage_bytes"]) == int(read["dataset_bytes"]) + int(read["run_folders_bytes"]) == 1_120_000_000_000
    )
    assert (float(read["contingency"]), float(read["min_efficiency"]), read["recommended"]) == (0.15, 0.7, "no")
    assert float(read["node_hours_with_contingency"]) == pytest.approx(1.15 * float(read["node_hours"]))
