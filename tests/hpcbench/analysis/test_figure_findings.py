"""What the plots of an analysis are said to show follows from its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcbench.analysis.analysis import Analysis, Question, analyze
from hpcbench.analysis.figure_findings import (
    compute_finding,
    convergence_finding,
    decomposition_finding,
    pair_finding,
    staging_finding,
    tiers_finding,
    variation_finding,
)
from hpcbench.analysis.write_analysis import headline
from hpcbench.batch.machine import known_machines
from tests.hpcbench.analysis.made_runs import run


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """System b takes twice the epochs of system a, and c the same with the time of another rest."""
    runs = [run(number, seconds + number, system=system, epochs=epochs)
            for system, epochs, seconds in (("a", 4.0, 100.0), ("b", 8.0, 200.0), ("c", 4.0, 160.0))
            for number in range(3)]  # fmt: skip
    return analyze(runs, known_machines(), Question())


def test_the_largest_factor_is_named(analysis: Analysis) -> None:
    (ranking,) = analysis.rankings
    pairs = {pair.a.first.system: pair for pair in ranking.against}
    factors = {name: max(pair.terms, key=lambda term: abs(pair.terms[term])) for name, pair in pairs.items()}
    assert factors["c"] == "rest"
    assert decomposition_finding([pairs["c"]]) == "The largest factor is rest"
    assert decomposition_finding([pairs["c"], pairs["c"]]) == "Rest is the largest factor for 2 of 2 entries"
    assert decomposition_finding([]) == ""
    slow, fast = (analysis.labels[entry.identity] for entry in (pairs["c"].a, pairs["c"].b))
    # 161 s after 101 s, of which 96 s are no rest: 161 / 96 over 101 / 96
    assert pair_finding(pairs["c"], analysis.labels) == (
        f"{slow} takes 1.59 times as long as {fast}; the largest factor is rest ×1.59"
    )
    assert headline(analysis) == pair_finding(pairs["c"], analysis.labels), "the next one after the base"


def test_shares_and_spreads_are_those_of_the_rows(analysis: Analysis) -> None:
    rows = [replace(analysis.staging[0], share=share) for share in (0.05, 0.2, None, 0.32)]
    said = "Staging takes more than a tenth of the time in 2 of 4 entries, at most 32 %"
    assert staging_finding(rows) == said
    assert staging_finding(rows[:1]) == "Staging takes at most 5 % of the time"
    assert staging_finding(rows[2:3]) == ""
    spreads = [replace(analysis.variation[0], explained=share) for share in (0.1, None, 0.8, 0.9)]
    assert variation_finding(spreads) == "Epochs explain 80 % of the variance of the time in the median entry"
    assert variation_finding(spreads[1:2]) == ""
    rates = [replace(analysis.compute[0], rate=rate) for rate in (2.0, 7.0, None)]
    assert compute_finding(rates) == "Rates per accelerator of DeepCAM entries differ by a factor of up to 3.50"
    assert compute_finding(rates[:1]) == ""


def test_entries_far_above_their_reference_are_counted(analysis: Analysis) -> None:
    rows = [replace(analysis.convergence[0], over_reference=over) for over in (1.0, 1.35, 2.0, None)]
    assert convergence_finding(rows, 1.35) == "2 of 3 entries with a reference point need 1.35 times its epochs or more"
    assert convergence_finding(rows[:2], 1.35) == (
        "1 of 2 entries with a reference point needs 1.35 times its epochs or more"
    )
    assert convergence_finding(rows[:1], 1.35) == (
        "No entry needs 1.35 times the epochs of its reference point, of 1 entry with one"
    )
    assert convergence_finding(rows[3:], 1.35) == ""


def test_machines_whose_storage_helps_are_counted(analysis: Analysis) -> None:
    rows = [replace(analysis.tiers[0], machine=name, memory_nodes=memory, storage_nodes=storage)
            for name, memory, storage in (("a", 8, 4), ("b", 8, 8), ("c", None, 4), ("d", 8, None))]  # fmt: skip
    assert tiers_finding(rows) == "On 2 of 4 machines node storage holds a set on fewer nodes than memory does"
