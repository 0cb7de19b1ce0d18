"""What may be compared, by the compatibility table of MLCommons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcbench.analysis.comparable import comparison_words, why_not_comparable
from hpcbench.mlperf.run_record import RunRecord
from tests.hpcbench.analysis.made_runs import entry, run


def words(one: RunRecord, other: RunRecord) -> list[str]:
    return [each.word for each in why_not_comparable(entry(one), entry(other))]


@pytest.mark.parametrize(
    ("application", "rounds", "same"),
    [
        ("deepcam", ("v0.7", "v1.0"), True),
        ("deepcam", ("v1.0", "v2.0"), False),
        ("cosmoflow", ("v0.7", "v1.0"), False),
        ("cosmoflow", ("v1.0", "v2.0"), False),
        ("oc20", ("v1.0", "v2.0"), False),
        ("cosmoflow", ("v2.0", "v2.0"), True),
    ],
)
def test_rounds(application: str, rounds: tuple[str, str], same: bool) -> None:
    one, other = (run(application=application, round=each, system=each) for each in rounds)
    assert (words(one, other) == []) == same


def test_a_round_after_the_table_is_told() -> None:
    one, other = entry(run(round="v2.0")), entry(run(round="v3.0", system="new"))
    assert comparison_words(one, other) == (
        "rounds v2.0 and v3.0 share no cell of the compatibility table, which ends at v2.0"
    )
    assert comparison_words(one, other, short=True) == "no: rounds"


def test_own_runs_divisions_and_samples() -> None:
    own = replace(run(), origin="own", round=None)
    assert words(own, run()) == ["own"]
    assert words(run(division="open", system="b"), run()) == ["divisions"]
    assert words(run(train_samples=262_144), run(train_samples=524_288)) == ["samples"]
    assert words(run(train_samples=121_216), run(train_samples=121_266)) == []
    assert comparison_words(entry(run()), entry(run(system="b"))) == "yes"
