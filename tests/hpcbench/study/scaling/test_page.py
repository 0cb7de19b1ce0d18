"""The page of a scaling study: its findings are those of the runs, nothing is hidden, and it stands alone."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.study.scaling.content import Content
from hpcbench.study.scaling.findings import findings, fit_words, notes
from hpcbench.study.scaling.page import heading, tiles, write_scaling
from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.proposal import Campaign, proposal
from hpcbench.study.scaling.scaling_laws import fit_amdahl, fit_gustafson
from hpcbench.study.scaling.trainings import Training
from tests.hpcbench.study.scaling.test_table import point, run, solved

WHY = "no energy counter: RAPL: energy_uj is not readable"


def amdahl_run(nodes: int, noise: float) -> RepeatResult:
    """A step of 90 ms of computation that nodes share and 10 ms of communication that they do not."""
    step = {"input_wait": 0.0, "compute": 0.09 / nodes, "communication": 0.01, "optimizer": 0.0, "other": 0.0}
    return run(64 / sum(step.values()) * noise, step_s=step, energy_words=WHY, flops_per_sample=10**9, wall_s=100.0,
               cpu_used=(0.9,))  # fmt: skip


ROWS = [PointResult(nodes, "", [amdahl_run(nodes, noise) for noise in (0.99, 1.0, 1.01)], ranks_per_node=4,
                    cores_per_node=32) for nodes in (1, 2, 4)]  # fmt: skip
FAILED = PointResult(8, "", [], ["lost a <node>"], 2, ranks_per_node=4)
RATES = [run.samples_per_s for row in ROWS for run in row.runs]
LENGTHS = {("", row.nodes): Training(20, 1e6, 0, "20 epochs") for row in ROWS}
PLAIN = Content(
    title="Cosmological parameters", mode="strong", application="cosmoflow", preset="small", site="A site",
    simulated=False, rows=[*ROWS, FAILED], fits={"": fit_amdahl([1] * 3 + [2] * 3 + [4] * 3, RATES)},
    solutions={"": [solved(1, 4000.0), solved(4, 1300.0)]}, proposal=proposal(ROWS, LENGTHS, Campaign()),
    commands=["hpcbench study strong cosmoflow <and more>"], machine="a processor of 32 cores",
    notes=["One run was resumed."], steps=60, warmup_steps=10,
)  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a study, and the text that it returned."""
    folder = tmp_path_factory.mktemp("studies") / "new"
    return folder, write_scaling(PLAIN, folder)


def test_everything_is_written(written: tuple[Path, str]) -> None:
    names = {path.name for path in written[0].iterdir()}
    plots = {f"{name}.{suffix}" for name in ("throughput", "efficiency", "phases", "solution")
             for suffix in ("png", "svg")}  # fmt: skip
    others = {"scaling.html", "results.csv", "table.txt", "proposal.txt", "proposal.tex", "proposal.csv"}
    assert names == plots | others
    assert len(pd.read_csv(written[0] / "results.csv")) == 10
    assert (written[0] / "table.txt").read_text(encoding="utf-8") == written[1] + "\n"


def test_every_file_with_a_time_says_that_it_is_not_verified(written: tuple[Path, str]) -> None:
    folder, text = written
    assert f"\n{NOT_VERIFIED}.\n" in text
    for name in ("proposal.txt", "proposal.tex"):
        assert folder.joinpath(name).read_text(encoding="utf-8").count(f"{NOT_VERIFIED}.") == 1, name
    assert set(pd.read_csv(folder / "proposal.csv")["verified"]) == {NOT_VERIFIED}
    runs = pd.read_csv(folder / "results.csv")
    assert set(runs["verified"][runs["status"] == "done"]) == {NOT_VERIFIED}
    assert f">{NOT_VERIFIED}</text>" in folder.joinpath("solution.svg").read_text(encoding="utf-8")
    (footer,) = re.findall(r"<footer>.*?</footer>", folder.joinpath("scaling.html").read_text("utf-8"), re.DOTALL)
    assert footer.count(NOT_VERIFIED) == 1


def test_the_first_lines_state_the_findings(written: tuple[Path, str]) -> None:
    # speed-up 100 / 32.5, efficiency a quarter of it; communication 10 of 32.5 ms, and of 100 ms
    # interval: three repeats each that scatter by 1 %, so 2.776 * 1 % * sqrt(2 / 3) to both sides
    sentence = (
        "From 1 to 4 nodes throughput grows 3.08 times (efficiency 77 %, 95 % interval 75 to 79 %); communication "
        "takes 31 % of a step at 4 nodes, 10 % at 1."
    )
    assert findings(PLAIN)[0] == sentence
    assert " ".join(written[1].split()).startswith(
        f"Strong scaling from 1 to 4 nodes: cosmoflow small, A site {sentence}"
    )
    page = written[0].joinpath("scaling.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert page.index(sentence) < page.index('<section id="scaling">')
    assert "Repeats of a size differ by up to 2.0 % of their median throughput." in findings(PLAIN)


def test_lines_of_text_fit_100_columns(written: tuple[Path, str]) -> None:
    for name in ("table.txt", "proposal.txt"):
        assert max(map(len, written[0].joinpath(name).read_text(encoding="utf-8").splitlines())) <= 100


def test_nothing_is_hidden(written: tuple[Path, str]) -> None:
    page, text = written[0].joinpath("scaling.html").read_text(encoding="utf-8"), " ".join(written[1].split())
    for words in (
        "8 nodes: 1 of 3 repeats failed: lost a <node>.", "8 nodes: 2 of 3 repeats left to run.", f"Energy: {WHY}.",
        "Its warm-up, 10 steps at its start, is in no figure of throughput", "One run was resumed.",
        "the global batch stays", "a processor of 32 cores",
    ):  # fmt: skip
        assert words in text
        assert words.replace("<", "&lt;").replace(">", "&gt;") in page
    assert "1 repeat failed</span>" in page
    assert "2 repeats left to run</span>" in page
    assert "hpcbench study strong cosmoflow &lt;and more&gt;" in page


def test_the_page_stands_alone(written: tuple[Path, str]) -> None:
    page = written[0].joinpath("scaling.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert not re.findall(r"url\((?!#)|@import|<link|<script", page)
    assert "://" not in page.replace("http://www.w3.org", "")
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 4
    for each in [*drawn, *(path.read_text(encoding="utf-8") for path in written[0].glob("*.svg"))]:
        assert ET.fromstring(each).tag.endswith("svg")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_prints_on_a4(written: tuple[Path, str]) -> None:
    style = written[0].joinpath("scaling.html").read_text(encoding="utf-8").split("</style>")[0]
    assert re.search(r"@page \{ size: A4", style)
    assert re.search(r"@media print \{\s*table, pre \{ break-inside: avoid", style)


def test_fits_come_with_interval_and_warning() -> None:
    exact = fit_amdahl([1, 2, 4, 8], [1 / (0.1 + 0.9 / n) for n in (1, 2, 4, 8)])
    assert "serial fraction 10 % of the time on the smallest size (95 % interval 10 % to 10 %)" in fit_words("", exact)
    assert "at most 10.0 (10.0 to 10.0)" in fit_words("", exact)
    assert fit_words("b 1", exact).startswith("b 1: Amdahl's law")
    few = fit_gustafson([1, 2], [10.0, 19.0])
    assert fit_words("", few) == f"Gustafson's law is not fitted. Note: {few.note}."
    ideal = fit_words("", fit_amdahl([1, 2, 4], [10.0, 20.0, 40.0]))
    assert "serial fraction 0 %" in ideal
    assert "at most" not in ideal


def test_findings_decide_by_the_numbers() -> None:
    flat = replace(PLAIN, rows=[point(1, 100.0), point(4, 80.0)], solutions={}, fits={})
    assert findings(flat) == [
        "From 1 to 4 nodes throughput falls to 80 % (efficiency 20 %); the parts of a step keep their shares to 1 %.",
        "Every size has one repeat: how far chance moves these figures is not known.",
    ]
    single = replace(flat, rows=[point(2, 100.0), point(4, left=1)])
    assert findings(single)[0] == "100 samples/s on 2 nodes; compute takes 77 % of a step."
    assert tiles(single)[1]["value"] == "-", "one size has no efficiency"
    assert tiles(flat)[3] == {"label": "Energy", "value": "-", "note": "not measured"}


def test_a_part_whose_share_grows_is_named_if_the_repeats_show_it() -> None:
    once = replace(PLAIN, rows=[replace(row, runs=row.runs[:1]) for row in ROWS])
    assert findings(once)[0].endswith("; compute takes 69 % of a step at 4 nodes.")


@pytest.mark.parametrize("repeats", [3, 5])
def test_chance_seldom_names_a_part_whose_share_grows(repeats: int) -> None:
    """Every part of a step scatters by 5 % about the same mean on both sizes."""
    draw, named, studies = np.random.default_rng(repeats), 0, 400
    mean = {"input_wait": 0.01, "compute": 0.06, "communication": 0.02, "optimizer": 0.01, "other": 0.005}
    for _ in range(studies):
        steps = [{part: seconds * math.exp(0.05 * draw.normal()) for part, seconds in mean.items()}
                 for _ in range(2 * repeats)]  # fmt: skip
        runs = [run(100.0, step_s=step) for step in steps]
        rows = [PointResult(1, "", runs[:repeats]), PointResult(4, "", runs[repeats:])]
        named += " at 1." in findings(replace(PLAIN, rows=rows, solutions={}))[0]
    assert named / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize(
    ("slow", "said"),
    [((99.0, 100.0, 101.0), "On 2 nodes b is fastest, 1.20 times a, the slowest (p 0.0003)."),
     ((116.0, 118.0, 120.0), "On 2 nodes b is fastest, 1.02 times a, the slowest; the repeats do not tell them apart "
      "(p 0.29)."),
     ((100.0,), "On 2 nodes b is fastest, 1.20 times a, the slowest; single repeats cannot tell whether this is "
      "chance.")],
)  # fmt: skip
def test_variants_are_compared_with_the_scatter_of_repeats(slow: tuple[float, ...], said: str) -> None:
    rows = [point(2, *slow, variant="a"), point(2, 118.0, 120.0, 122.0, variant="b")]
    assert findings(replace(PLAIN, rows=rows, solutions={}, fits={}))[0] == said


def test_staging_and_trainings_are_found() -> None:
    rows = [replace(row, runs=[replace(run, staging_bytes_per_s=speed) for run in row.runs])
            for row, speed in zip(ROWS, (2e9, 3e9, 4e9), strict=True)]  # fmt: skip
    said = findings(replace(PLAIN, rows=rows))
    assert "Staging brings 2.00 GB/s to 1 node and 4.00 GB/s to 4 (efficiency 50 %, 95 % interval 50 to 50 %)." in said
    once = [replace(row, runs=row.runs[:1]) for row in rows]
    assert "Staging brings 2.00 GB/s to 1 node and 4.00 GB/s to 4." in findings(replace(PLAIN, rows=once))
    assert (
        "A training to the target is fastest on 4 nodes: 21 min 40 s, 1.44 node-hours; cheapest on 1 node: 1 h 07 min, "
        "1.11 node-hours." in said
    )
    best = replace(PLAIN, solutions={"": [solved(1, 4000.0), solved(4, 900.0)]})
    assert "A training to the target is fastest and cheapest on 4 nodes: 15 min 00 s, 1.00 node-hours." in findings(
        best
    )


@pytest.mark.slow
def test_simulated_nodes_are_called_so(tmp_path: Path) -> None:
    content = replace(PLAIN, mode="weak", simulated=True, proposal=None, steps=None, warmup_steps=0)
    text = " ".join(write_scaling(content, tmp_path).split())
    assert heading(content) == "Weak scaling from 1 to 4 simulated nodes"
    assert "Simulated nodes are processes of one machine" in text
    assert "Each run trained to its target. No warm-up was left out." in text
    assert "nodes are simulated" in (tmp_path / "scaling.html").read_text(encoding="utf-8")
    assert not list(tmp_path.glob("proposal.*"))


@pytest.mark.slow
def test_busy_time_of_accelerators_is_on_the_page_with_the_sizes_that_lack_it(tmp_path: Path) -> None:
    told = [{"device_busy": (0.75,)}, {"device_busy": (0.5,)}, {"device_words": "NVML: not found"}]
    rows = [replace(row, runs=[replace(run, **known) for run in row.runs])
            for row, known in zip(ROWS, told, strict=True)]  # fmt: skip
    text = " ".join(write_scaling(replace(PLAIN, rows=rows), tmp_path).split())
    page = (tmp_path / "scaling.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    for words in ("Accelerator busy not measured at 4 nodes: NVML: not found.", "saw it work, the median over ranks"):
        assert words in page
        assert words in text
    assert "75.0 %" in page
    assert "Accelerator busy" not in " ".join(notes(PLAIN))


def test_extrapolated_batches_are_starred_and_explained() -> None:
    content = replace(PLAIN, solutions={"": [solved(1, 10.0, extrapolated=True)]})
    assert (
        "* The batch lies outside of those at which runs of the convergence study reached the target: its epochs are "
        "extrapolated."
    ) in notes(content)
    assert not any("extrapolated" in line for line in notes(PLAIN))


def test_the_slowest_rank_of_each_size_is_named() -> None:
    names = ["rank 3 on n2", "rank 0 on n1", "rank 3 on n2"]
    first = PLAIN.rows[0]
    runs = [replace(first.runs[0], slowest_rank=name) for name in names]
    rows = [replace(first, nodes=1, runs=[first.runs[0]]), replace(first, nodes=2, runs=runs[:1])]
    assert not [each for each in notes(replace(PLAIN, rows=rows[:1])) if "longest steps" in each]
    said = notes(replace(PLAIN, rows=[*rows, replace(first, nodes=4, runs=runs)]))
    named = "2 nodes: rank 3 on n2; 4 nodes: rank 3 on n2, in 2 of 3 repeats."
    assert f"The longest steps, apart from waiting, were those of: {named}" in said
