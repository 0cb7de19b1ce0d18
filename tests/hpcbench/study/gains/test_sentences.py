"""What is said of options that helped but were not tried together, and where nothing can be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcbench.study.gains.options import Option
from hpcbench.study.gains.plan import PLAIN_OPTION
from hpcbench.study.gains.quality_comparison import QualityTest
from hpcbench.study.gains.results import OptionResult, Outcome, Results, chosen, compared
from hpcbench.study.gains.sentences import findings, heading, listed, ratio_sentence, unavailable
from hpcbench.study.gains.step_ratio import StepRatio
from tests.hpcbench.study.gains.conftest import gains


def faster(name: str, factor: str, label: str, ranks: int | None = None) -> OptionResult:
    """An option that helped."""
    ratio, quality = StepRatio(0.8, (0.7, 0.9), 0.01, 6), QualityTest(0.5, 0.001, False)
    return OptionResult(Option(name, factor, label, {}, ranks), ratio=ratio, quality=quality)


OVERLAP, ONE_RANK = faster("overlap", "messages", "overlap"), faster("ranks-1", "ranks", "1 rank x 2 threads", 1)
GRAPH, BF16 = faster("graph", "graph", "CUDA graph"), faster("bf16", "precision", "bf16")


@pytest.mark.parametrize(
    ("options", "together", "said"),
    [
        ((OVERLAP, ONE_RANK), False, "Helped alone but not combined, since one rank sends nothing: overlap; one option "
         "was left, so that none were tried together."),
        ((OVERLAP, GRAPH), False, "Helped alone but not combined, since a step with a CUDA graph sends its gradients "
         "after the backward pass: overlap; one option was left, so that none were tried together."),
        ((BF16, OVERLAP, ONE_RANK), True, "Helped alone but not combined, since one rank sends nothing: overlap."),
        ((OVERLAP,), False, "Fewer than two options of different kinds helped, so that none were tried together."),
    ],
)  # fmt: skip
def test_options_that_helped_but_were_not_tried_together_are_named(
    options: tuple[OptionResult, ...], together: bool, said: str
) -> None:
    found = Results(OptionResult(Option("baseline", "", "plain", {})), options)
    option = chosen(found)
    assert (option is not None) == together
    if option is not None:
        found = replace(found, together=replace(BF16, option=option))
    assert [words for words in findings(found, "mae") if "combined" in words or "tried" in words] == [said]


@pytest.mark.parametrize(
    "baseline",
    [
        OptionResult(PLAIN_OPTION, (Outcome(1, 0.1),)),
        OptionResult(PLAIN_OPTION, failed="exit code 1: no memory"),
    ],
)
def test_where_nothing_can_be_compared_no_option_is_said_not_to_help(baseline: OptionResult) -> None:
    """A single repeat, or a baseline that fails, tells nothing, however short the step of an option is."""
    study = gains(only=["bf16"], repeats=1)
    options = compared([OptionResult(study.options[0], (Outcome(1, 0.05),))], baseline, "lower")
    found = Results(baseline, tuple(options))
    assert heading(study, found) == "What optimisation brings to a step of cosmoflow"
    assert findings(found, "mae") == [
        "Too few runs are done to say: a ratio takes 2 repeats of an option and the baseline."
    ]
    assert (("plain baseline", baseline.failed) in unavailable(study, found)) == bool(baseline.failed)


def test_labels_with_commas_are_apart_by_semicolons() -> None:
    assert listed(["overlap", "fused optimizer"]) == "overlap, fused optimizer"
    assert listed(["overlap", "overlap, 4 buckets", "DALI"]) == "overlap; overlap, 4 buckets; DALI"


def test_changed_parts_have_signs_and_no_exponents() -> None:
    option = replace(BF16, changed_s={"compute": 1.4873, "input_wait": -0.00313})
    assert "(compute +1,490 ms, input wait -3.13 ms)" in ratio_sentence(option, "mae")
