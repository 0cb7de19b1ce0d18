"""The learning rates of a study: a base rate for each optimizer, and a rule that scales it to another batch."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

from hpcbench.config.schema import OptimConfig
from hpcbench.optim.lr_scaling import peak_learning_rate
from hpcbench.study.lr_search import Grid
from hpcbench.suggest import suggest
from staging.errors import InputError

Rule = Literal["linear", "sqrt", "none"]

BASE_RATES = {"sgd": 0.01, "adam": 0.001, "adamw": 0.001, "lars": 0.5, "larc": 0.01, "lamb": 0.003, "nvlamb": 0.003}
"""Rates to begin with at ``BASE_BATCH``, for optimizers to which neither the command nor the preset gives one.

Those of lars and lamb are near the best of ``docs/studies/superseded/cosmoflow-batch``.
"""
BASE_BATCH = 64
LEAST_RATIO = 1.01
"""Least ratio of two multiples of a search; names and tables show enough digits to tell them apart."""


@dataclass(frozen=True)
class Rate:
    """A learning rate, the global batch for which it is meant, and the rule that scales it to others."""

    base: float
    batch: int
    rule: Rule = "linear"

    def at(self, batch: int, multiplier: float = 1.0) -> float:
        """The rate at ``batch`` by the rule, times ``multiplier``, rounded to four digits that a table can show."""
        optim = OptimConfig(lr=self.base, scaling=self.rule, base_batch_size=self.batch)
        return float(f"{peak_learning_rate(optim, batch) * multiplier:.4g}")

    def words(self) -> str:
        """The rate in words: ``0.01 at batch 64, linear``."""
        return f"{self.base:g} at batch {self.batch}" + (", not scaled" if self.rule == "none" else f", {self.rule}")


def parse_rates(
    text: str, optimizers: Sequence[str], preset_rates: Mapping[str, Rate], rules: Mapping[str, Rule]
) -> dict[str, Rate]:
    """The rate of every optimizer, from ``--lr``: ``sgd=0.01@64,lamb=0.005@128``.

    An entry without ``@BATCH`` takes the batch of the next entry that has one, so ``sgd=0.01,lamb=0.005@64`` gives it
    once. Optimizers that ``--lr`` does not name get the rate in ``preset_rates`` (the preset's optimizer) or in
    ``BASE_RATES``.
    """
    rates = {name: replace(rate, rule=rules[name]) for name, rate in preset_rates.items() if name in optimizers}
    batch: int | None = None
    for entry in reversed([part for part in text.split(",") if part.strip()]):
        name, equals, value = entry.strip().partition("=")
        number, at, there = value.partition("@")
        if not equals or name not in optimizers:
            known = suggest(name, list(optimizers))
            raise InputError(f"--lr: '{entry}' is not OPTIMIZER=RATE[@BATCH] of an optimizer of the study; {known}")
        batch = positive_int("--lr", there) if at else batch
        if batch is None:
            raise InputError(f"--lr: '{entry}' lacks the batch that the rate is meant for; write {entry}@BATCH")
        rates[name] = Rate(positive("--lr", number), batch, rules[name])
    for name in optimizers:
        if name not in rates and name not in BASE_RATES:
            raise InputError(f"--lr: no base rate is known for '{name}'; give {name}=RATE@BATCH")
        rates.setdefault(name, Rate(BASE_RATES.get(name, 0.0), BASE_BATCH, rules[name]))
    return {name: rates[name] for name in optimizers}


def parse_rules(text: str, optimizers: Sequence[str]) -> dict[str, Rule]:
    """The rule of every optimizer, from ``--lr-rule``: ``linear``, or ``linear,lamb=sqrt``."""
    rules: dict[str, Rule] = dict.fromkeys(optimizers, "linear")
    # The rule for all optimizers comes first, wherever it is in the text.
    for entry in sorted((part.strip() for part in text.split(",") if part.strip()), key=lambda part: "=" in part):
        name, equals, rule = entry.rpartition("=")
        if rule not in get_args(Rule):
            raise InputError(f"--lr-rule: '{rule}' is no rule; {suggest(rule, list(get_args(Rule)))}")
        if equals and name not in optimizers:
            raise InputError(f"--lr-rule: '{name}' is not in --optimizers; {suggest(name, list(optimizers))}")
        for optimizer in [name] if equals else optimizers:
            rules[optimizer] = rule  # type: ignore[assignment]
    return rules


def parse_search(text: str) -> tuple[float, ...]:
    """The multipliers of ``--lr-search``, sorted: ``0.5,1,2``."""
    multipliers = tuple(sorted({positive("--lr-search", part) for part in text.split(",") if part.strip()})) or (1.0,)
    check_multiples(multipliers)
    return multipliers


def check_multiples(multipliers: Sequence[float], widenings: int = 0) -> None:
    """Raise ``InputError`` for sorted multiples that are too close for distinct names, or that widen beyond numbers."""
    for low, high in pairwise(multipliers):
        if high < low * LEAST_RATIO:
            raise InputError(
                f"--lr-search: {low!r} and {high!r} are less than {LEAST_RATIO - 1:.0%} apart; leave one of them out"
            )
    if len(multipliers) > 1 and not _has_ladder(Grid(tuple(multipliers), widenings)):
        raise InputError(
            f"--lr-search: with --lr-search-widen {widenings}, the search from {multipliers[0]:g} to "
            f"{multipliers[-1]:g} may come to multiples that are not above 0 and at most {sys.float_info.max:.1e}; "
            "give multiples that are closer together, or lower --lr-search-widen"
        )


def _has_ladder(grid: Grid) -> bool:
    """Whether all multiples that a search could come to are finite numbers above 0."""
    try:
        return all(0 < multiplier < math.inf for multiplier in grid.ladder)
    except OverflowError:
        return False


def positive(option: str, text: str) -> float:
    """The text as a number above 0. Raises ``InputError`` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"{option}: '{text.strip()}' must be a number above 0")
    return value


def positive_int(option: str, text: str) -> int:
    """The text as a whole number above 0. Raises ``InputError`` for anything else."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InputError(f"{option}: '{text.strip()}' must be a whole number of at least 1")
    return value
