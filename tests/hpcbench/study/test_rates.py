"""Rates of a study: parsing, rules, and what is refused."""

from __future__ import annotations

import pytest

from hpcbench.study.rates import Rate, parse_rates, parse_rules, parse_search
from staging.errors import InputError

RULES = parse_rules("linear", ["sgd", "lamb"])


def test_rules_scale_by_ratio_and_root() -> None:
    assert Rate(0.01, 64, "linear").at(512) == 0.08
    assert Rate(0.01, 64, "sqrt").at(256) == 0.02
    assert Rate(0.01, 64, "none").at(512, 2.0) == 0.02
    assert Rate(0.001, 3, "linear").at(1) == 0.0003333, "four digits, as a table and a log can show"


def test_one_batch_holds_for_the_entries_before_it() -> None:
    found = parse_rates("sgd=0.01,lamb=0.005@128", ["sgd", "lamb"], {}, RULES)
    assert found == {"sgd": Rate(0.01, 128), "lamb": Rate(0.005, 128)}
    both = parse_rates("sgd=0.01@32,lamb=0.005@128", ["sgd", "lamb"], {}, RULES)
    assert [rate.batch for rate in both.values()] == [32, 128]


def test_the_preset_gives_its_own_optimizer_a_rate_and_the_rest_have_stated_ones() -> None:
    rules = parse_rules("sqrt,lamb=linear", ["sgd", "lamb"])
    found = parse_rates("", ["sgd", "lamb"], {"sgd": Rate(0.3, 4), "adam": Rate(1.0, 4)}, rules)
    assert found == {"sgd": Rate(0.3, 4, "sqrt"), "lamb": Rate(0.003, 64, "linear")}


def test_the_rule_for_all_holds_for_the_rest_wherever_it_stands() -> None:
    assert parse_rules("lamb=sqrt,none", ["sgd", "lamb"]) == {"sgd": "none", "lamb": "sqrt"}


def test_a_search_is_sorted_and_has_each_multiple_once() -> None:
    assert parse_search("2,0.5,1,2") == (0.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sgd=0.01", "lacks the batch that the rate is meant for; write sgd=0.01@BATCH"),
        ("sgdd=0.01@64", "did you mean 'sgd'"),
        ("sgd@64", "is not OPTIMIZER=RATE"),
        ("sgd=fast@64", "--lr: 'fast' must be a number above 0"),
        ("sgd=-1@64", "--lr: '-1' must be a number above 0"),
        ("sgd=0.01@0", "--lr: '0' must be a whole number of at least 1"),
    ],
)
def test_a_rate_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rates(text, ["sgd", "lamb"], {}, RULES)


def test_an_optimizer_without_a_known_rate_needs_one() -> None:
    with pytest.raises(InputError, match="no base rate is known for 'mine'; give mine=RATE@BATCH"):
        parse_rates("", ["mine"], {}, parse_rules("linear", ["mine"]))


@pytest.mark.parametrize(("text", "message"), [("cubic", "'cubic' is no rule"), ("adam=sqrt", "not in --optimizers")])
def test_a_rule_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rules(text, ["sgd", "lamb"])


def test_a_search_of_nothing_positive_is_refused() -> None:
    with pytest.raises(InputError, match="--lr-search: '0' must be a number above 0"):
        parse_search("0,1")
