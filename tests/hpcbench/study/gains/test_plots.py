"""What the plots of a gains study are said to show: verdicts are counted, and shares are those of the steps."""

from __future__ import annotations

from typing import Any

from hpcbench.study.gains.options import Option
from hpcbench.study.gains.plots import gains, gains_finding, parts, parts_finding
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


def test_ratios_are_on_a_logarithmic_axis_with_ticks_around_one() -> None:
    for slowest, ticks in ((30.0, [0.5, 1, 2, 5, 10, 20]), (1.5, [0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5])):
        options = (result("fast", 0.6), result("slow", slowest))
        left = gains(options, Results(result("plain"), options), "mae").figure.axes[0]
        assert left.get_xscale() == "log"
        low, high = left.get_xlim()
        shown = [tick for tick in left.get_xticks() if low <= tick <= high]
        assert set(ticks) <= set(shown)
        assert len(shown) <= 10


def test_a_bar_that_would_hide_the_others_is_cut_and_has_its_length() -> None:
    def steps(label: str, compute_s: float) -> OptionResult:
        return result(label, runs=(Outcome(1, compute_s, {"compute": compute_s}),))

    (axes,) = parts([steps("plain", 0.05), steps("bf16", 0.04), steps("fp16", 1.49)]).figure.axes
    assert [text.get_text() for text in axes.texts] == ["1,490 ms"]
    assert axes.get_xlim() == (0, 62.5)
    (whole,) = parts([steps("plain", 0.05), steps("bf16", 0.19)]).figure.axes
    assert not whole.texts
    assert whole.get_xlim()[1] > 190
