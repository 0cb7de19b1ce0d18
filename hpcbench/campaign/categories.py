"""Whether a category allows the settings of a run, and which rule refuses a setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from hpcbench.campaign.rules import Campaign, Category, Scenario, SettingRule
from hpcbench.config.bounds import numbers
from hpcbench.config.optimizers import options_of, own_settings
from hpcbench.config.resolve import known_keys
from hpcbench.config.schema import OptimConfig, RunConfig
from hpcbench.suggest import suggest
from staging.errors import InputError

DECIDING = ("data.", "model.", "optim.", "schedule.", "train.")
"""Groups of settings that decide what a run computes."""
OF_SPEED = (
    "data.root", "data.format", "data.compression", "data.workers", "data.prefetch", "data.loader",
    "data.check_staged", "train.local_batch_size", "train.eval_batch_size", "train.precision", "train.tf32",
    "train.channels_last",
    "train.trust_ratios_every", "train.noise_scale_every", "train.compile", "train.cuda_graph", "train.seed",
    "train.max_steps", "train.checkpoint_every", "train.checkpoint_async", "train.keep_checkpoints",
    "train.baselines", "train.page",
)  # fmt: skip
"""Settings of ``DECIDING`` that do not decide it, or that have a rule of their own: batch, precision, seeds."""
SUMS = {"bfloat16": "bf16-mixed", "float16": "16-mixed"}
"""The ``train.precision`` whose numbers gradients have when they are summed in a ``parallel.reduce_dtype``."""
OF_PRECISION = ("train.precision", "train.tf32", "parallel.reduce_dtype")
"""Settings that the precision of a category decides."""
OPTIONS = frozenset(f"optim.{name}" for name in own_settings(OptimConfig()))
"""Options that some optimizers have."""


@dataclass(frozen=True)
class Refusal:
    """A setting that a category does not allow."""

    setting: str
    value: Any
    words: str
    """What the category does with the setting: ``fixes optim.lr at 0.0055``."""
    rule: str


def category_of(campaign: Campaign, name: str | None) -> Category:
    """The category called ``name``; the first if ``name`` is ``None``. Raises ``InputError``."""
    if name is None:
        return campaign.categories[0]
    categories = {category.name: category for category in campaign.categories}
    if name not in categories:
        raise InputError(f"campaign {campaign.name} has no category '{name}'; {suggest(name, list(categories))}")
    return categories[name]


def scenario_of(campaign: Campaign, name: str) -> Scenario:
    """The scenario called ``name``. Raises ``InputError``."""
    scenarios = {scenario.name: scenario for scenario in campaign.scenarios}
    if name not in scenarios:
        raise InputError(f"campaign {campaign.name} has no scenario '{name}'; {suggest(name, list(scenarios))}")
    return scenarios[name]


def rule_for(scenario: Scenario, category: Category, setting: str) -> SettingRule | None:
    """The rule that holds for a setting: the one with the longest matching name; ``None`` if none matches."""
    best: tuple[int, SettingRule] | None = None
    for rule in scenario.rules:
        if rule.categories and category.name not in rule.categories:
            continue
        for name in rule.settings:
            if (setting == name or setting.startswith(f"{name}.")) and (best is None or len(name) > best[0]):
                best = (len(name), rule)
    return best[1] if best is not None else None


def is_deciding(setting: str) -> bool:
    """Whether a setting decides what a run computes."""
    return setting.startswith(DECIDING) and setting not in OF_SPEED


def value_of(config: RunConfig, setting: str) -> Any:
    """The value of a dotted name."""
    return reduce(getattr, setting.split("."), config)


def effective(config: RunConfig, setting: str) -> Any:
    """The value of a dotted name; for an unset option, the optimizer's own default."""
    value = value_of(config, setting)
    if value is None and setting.startswith("optim."):
        return options_of(config.optim).get(setting.removeprefix("optim."))
    return value


def is_default(config: RunConfig, setting: str) -> bool:
    """Whether a setting is an optimizer's option at its own default, which may differ between optimizers."""
    return setting in OPTIONS and value_of(config, setting) is None


def refusals(scenario: Scenario, category: Category, config: RunConfig, base: RunConfig) -> Iterator[Refusal]:
    """The settings of ``config`` that the category refuses; ``base`` is the configuration of the campaign itself."""
    for setting, _ in known_keys(type(config)):
        value, base_value = effective(config, setting), effective(base, setting)
        if setting in ("train.target", "train.max_epochs"):
            rule: SettingRule | None = SettingRule((setting,), "fixed", "when a run ends is part of the metric")
        elif allowed := precisions(scenario, category, setting):
            if value not in allowed and value != base_value:
                words = " or ".join(map(shown, allowed))
                yield Refusal(setting, value, f"allows {setting} {words}", category.precision_rule)
            continue
        elif setting == "submission.division" and category.division:
            if value != category.division:
                yield Refusal(setting, value, f"fixes {setting} at {category.division}", "its logs are of one division")
            continue
        else:
            rule = rule_for(scenario, category, setting)
        if rule is not None and rule.kind == "bounded":
            if value != base_value and (wrong := broken(rule, value)):
                yield Refusal(setting, value, f"allows {setting} {wrong}", rule.rule)
        elif value != base_value and (
            rule.kind == "fixed"
            if rule is not None
            else not_free(category, setting) and not is_default(config, setting)
        ):
            why = rule.rule if rule is not None else f"what no rule frees stays as published in {category.name}"
            yield Refusal(setting, value, f"fixes {setting} at {shown(base_value)}", why)


def precisions(scenario: Scenario, category: Category, setting: str) -> tuple[Any, ...]:
    """The values of a setting of ``OF_PRECISION`` that a category allows; empty for other settings.

    Gradients may be summed as they are, and in 16 bits where the category allows training in these. So may TF32, whose
    numbers have no fewer bits. A rule that names ``parallel.reduce_dtype`` or ``train.tf32`` takes the place of that.
    """
    if setting == "train.precision":
        return category.precision
    rule = rule_for(scenario, category, setting) if setting in OF_PRECISION else None
    if setting not in OF_PRECISION or (rule is not None and setting in rule.settings):
        return ()
    in_16_bits = [dtype for dtype, precision in SUMS.items() if precision in category.precision]
    if setting == "train.tf32":
        return (None, False, True) if in_16_bits else (None, False)
    return ("gradient", *in_16_bits)


def not_free(category: Category, setting: str) -> bool:
    """Whether a setting that no rule names is fixed."""
    return category.others == "fixed" and is_deciding(setting)


def broken(rule: SettingRule, value: Any) -> str:
    """What a bounded setting must be, if ``value`` is not; else empty. Every number of a list must be within bounds."""
    if rule.choices:
        return "" if str(value) in rule.choices else " or ".join(rule.choices)
    for _, number in numbers(value):
        low = rule.low is not None and (number < rule.low or (rule.open_low and number == rule.low))
        high = rule.high is not None and (number > rule.high or (rule.open_high and number == rule.high))
        if low or high:
            return bounds_words(rule)
    return ""


def bounds_words(rule: SettingRule) -> str:
    """The bounds of a rule in words: ``from 0 to below 1``, or its choices."""
    if rule.choices:
        return ", ".join(rule.choices)
    low = "" if rule.low is None else f"{'above' if rule.open_low else 'from'} {rule.low:g}"
    high = "" if rule.high is None else f"{'below' if rule.open_high else 'to'} {rule.high:g}"
    return " ".join(part for part in (low, high) if part) or "any value"


def check_category(
    campaign: Campaign, scenario: Scenario, category: Category, config: RunConfig, base: RunConfig,
    given: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Raise a one-line ``InputError`` that names the rule, for the first setting that the category refuses.

    ``given`` has words for each setting that the user gives, such as ``--optim.lr``.
    """
    for refusal in refusals(scenario, category, config, base):
        where = f"{(given or {}).get(refusal.setting, refusal.setting)} {shown(refusal.value)}"
        others = [
            other.name for other in campaign.categories
            if other != category and refusal.setting not in {r.setting for r in refusals(scenario, other, config, base)}
        ]  # fmt: skip
        instead = f", or take --category {' or '.join(others)}" if others else ""
        raise InputError(
            f"{where}: category {category.name} of {campaign.name} {refusal.words} (rule: {refusal.rule}); "
            f"leave it out{instead}"
        )


def shown(value: Any) -> str:
    """A value as a user would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)
