"""What the plots of a gains study are said to show: verdicts are counted, and shares are those of the steps."""

from __future__ import annotations

from typing import Any

from hpcbench.study.gains.options import Option
from hpcbench.study.gains.plots import gains_finding, parts_finding
from hpcbench.study.gains.quality_comparison import QualityTest
from hpcbench.study.gains.results import OptionResult, Outcome, Results
from hpcbench.study.gains.step_ratio import StepRatio


def result(label: str, ratio: float | None = None, p: float = 0.01, **changes: Any) -> OptionResult:
    """An option whose steps take ``ratio`` times as long."""
    measured = None if ratio is None else StepRatio(ratio, (0.9 * ratio, 1.1 * ratio), p, 6)
    return OptionResult(Option(label, label, label, {}), ratio=measured, **changes)


def test_verdicts_are_counted() -> None:
    worse = result("d", 0.5, quality=QualityTest(0.01, 0.001, worse=True))
    options = (result("a", 0.5), result("b", 1.5), result("c", 0.9, p=0.2), worse, result("unmeasured"))
    said = "Faster than the baseline: 1 of 4 options; slower: 1; of worse quality: 1"
    assert gains_finding(Results(result("plain"), options)) == said
    assert gains_finding(Results(result("plain"), options[2:3])) == "Faster than the baseline: 0 of 1 option"


def test_the_longest_part_of_the_baseline_has_its_share() -> None:
    runs = (Outcome(1, 0.1, {"compute": 0.03, "input_wait": 0.06, "other": 0.01}),)
    assert parts_finding([result("plain baseline", runs=runs)]) == "Input wait takes 60 % of a step of plain baseline"
    assert parts_finding([result("plain baseline")]) == ""
