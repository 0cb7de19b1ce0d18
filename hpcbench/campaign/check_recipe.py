"""Whether the values that a file of rules gives are ones that a run can have, and that its own bounds allow."""

from __future__ import annotations

import re

from hpcbench.campaign.categories import (
    OF_PRECISION,
    bounds_words,
    broken,
    effective,
    precisions,
    rule_for,
    shown,
    value_of,
)
from hpcbench.campaign.entry import Entry, base_config, own_settings, rehearsed
from hpcbench.campaign.rules import Campaign, Scenario, SettingRule
from hpcbench.config.resolve import config_class, known_keys
from hpcbench.config.schema import RunConfig
from staging.errors import InputError

NAME = re.compile(r"\w+\.\w+")
"""A setting that a message names."""


def check_recipes(campaign: Campaign) -> None:
    """Raise an ``InputError`` that begins with a key, for settings that no run can have or that a category refuses."""
    for number, scenario in enumerate(campaign.scenarios):
        where = f"scenarios[{number}]."
        for place, rule in enumerate(scenario.rules):
            check_range(f"{where}rules[{place}].", rule)
        configs: dict[tuple[tuple[str, str], ...], RunConfig] = {}  # categories of one precision share theirs
        for category in campaign.categories:
            entry = Entry(campaign, scenario, category)
            key = tuple(own_settings(entry).items())
            if key not in configs:
                configs[key] = checked(entry, where, "recipe")
                small = Entry(campaign, rehearsed(scenario), category, True)
                check_accumulation(where, small, checked(small, where, "rehearsal.settings"), "rehearsal.settings")
                check_accumulation(where, entry, configs[key], "recipe")
            check_precision(where, entry, configs[key])
            check_bounds(where, entry, configs[key])


def check_range(where: str, rule: SettingRule) -> None:
    """Raise ``InputError`` for bounds that no number is within."""
    if rule.low is None or rule.high is None or rule.low < rule.high:
        return
    if rule.low > rule.high or rule.open_low or rule.open_high:
        raise InputError(f"{where}low ({rule.low:g}) must be below high ({rule.high:g}); change one of them")


def checked(entry: Entry, where: str, part: str) -> RunConfig:
    """The configuration of an entry. Raises ``InputError`` that begins with the key of the file that is wrong."""
    try:
        return base_config(entry)
    except InputError as error:
        message = str(error)
    named = [name for name in NAME.findall(message) if name in entry.scenario.recipe]
    if named and message.startswith(named[0]):
        raise InputError(f"{where}{part}.{message}")
    raise InputError(f"{where}{f'{part}.{named[0]}' if named else part}: {message}")


def check_accumulation(where: str, entry: Entry, config: RunConfig, part: str) -> None:
    """Raise ``InputError`` for several micro-batches a step in the scenario's own settings, where it allows one."""
    number = config.train.accumulation
    if number > 1 and not entry.scenario.batch.accumulation:
        raise InputError(
            f"{where}{key_of(entry, part, 'train.accumulation')}: train.accumulation is {number}, but "
            "batch.accumulation is not true; change one of them"
        )


def check_precision(where: str, entry: Entry, config: RunConfig) -> None:
    """Raise ``InputError`` for a precision of the scenario's own that its category does not allow."""
    for setting in OF_PRECISION:
        allowed, value = precisions(entry.scenario, entry.category, setting), value_of(config, setting)
        if allowed and value not in allowed:
            raise InputError(
                f"{where}{key_of(entry, 'recipe', setting)}: {setting} is {shown(value)}, but category "
                f"{entry.category.name} allows {' or '.join(map(shown, allowed))}; change one of them"
            )


def key_of(entry: Entry, part: str, setting: str) -> str:
    """The key of the file that gives a setting: that of the recipe or rehearsal, or else the preset's."""
    return f"{part}.{setting}" if setting in entry.scenario.recipe else "preset"


def check_bounds(where: str, entry: Entry, config: RunConfig) -> None:
    """Raise ``InputError`` for a value of the scenario's own that is outside the bounds of a rule of its category."""
    scenario: Scenario = entry.scenario
    numbers = {id(rule): number for number, rule in enumerate(scenario.rules)}
    for setting, _ in known_keys(config_class(entry.application)):
        rule, value = rule_for(scenario, entry.category, setting), effective(config, setting)
        if rule is None or rule.kind != "bounded" or value is None or not broken(rule, value):
            continue
        key = "choices" if rule.choices else "low" if rule.low is not None else "high"
        raise InputError(
            f"{where}rules[{numbers[id(rule)]}].{key} ({bounds_words(rule)}) leaves out the scenario's own {setting} "
            f"{shown(value)} in category {entry.category.name}; change one of them"
        )
