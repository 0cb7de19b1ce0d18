"""What the page on the joint analysis shows of the output of its command, and the figures in its sentences."""

from __future__ import annotations

from dataclasses import fields

import pytest

from hpcbench.analysis.analysis import Analysis, Question, analyze
from hpcbench.analysis.compute_rows import ComputeRow
from hpcbench.analysis.ranking import every_pair
from hpcbench.analysis.write_analysis import summary
from hpcbench.batch.machine import known_machines
from hpcbench.mlperf.published import published_runs
from tests.documented_commands import BLOCK, ROOT

ENTRIES = ("v1.0 LBNL perlmutter_512x4_ngc21.09_pytorch", "v1.0 NVIDIA dgxa100_n256_ngc21.09_pytorch")
PAGE = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    question = Question(base="selene v1.0", against="perlmutter v1.0", application="deepcam")
    return analyze(published_runs(), known_machines(), question)


def test_the_output_is_what_the_command_prints(analysis: Analysis) -> None:
    shown = next(block["text"] for block in BLOCK.finditer(PAGE) if block["language"] == "text")
    assert " ".join(summary(analysis, pairs=True)).startswith(" ".join(shown.split()))


def test_the_epochs_and_the_rates_are_those_of_the_page(analysis: Analysis) -> None:
    """Perlmutter's epochs over Selene's are 0.986; the factors but the rate are together within 3.5 % of 1."""
    (pair,) = (row for ranking in analysis.rankings for row in every_pair(ranking) if (row.a, row.b) == ENTRIES)
    assert pair.epochs is not None
    assert pair.rate is not None
    told = f"{100 * (1 - pair.epochs):.1f} % fewer on Perlmutter"
    assert told in PAGE
    assert pair.ratio / pair.rate == pytest.approx(1, abs=0.035)
    assert {row.entry for row in analysis.compute if row.rate} >= set(ENTRIES)
    assert not [field.name for field in fields(ComputeRow) if "memory" in field.name]


def test_the_first_epochs_are_those_of_the_page(analysis: Analysis) -> None:
    firsts = {row.entry: row.first_epoch for row in analysis.staging}
    for entry, told in zip(ENTRIES, (4.3, 6.8), strict=True):
        assert firsts[entry] == pytest.approx(told, abs=0.05)
        assert f"{told} times" in PAGE


def test_memory_of_the_accelerators_is_that_of_the_machine_files() -> None:
    machines = {machine.name: machine for machine in known_machines()}
    assert machines["selene"].accelerator_memory_gib == 80
    assert machines["selene"].accelerator_memory_gb_s == pytest.approx(2039, abs=1)
    assert machines["perlmutter-gpu"].accelerator_memory_gib == 40
    assert machines["perlmutter-gpu"].accelerator_memory_gb_s == pytest.approx(1555, abs=1)
