"""Read files of rules, by name or path; errors name the line that is wrong."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hpcbench.application import find_application
from hpcbench.campaign.check_recipe import check_recipes
from hpcbench.campaign.line_numbers import lines_of
from hpcbench.campaign.rules import Campaign, Scenario, SettingRule
from hpcbench.config.read_dataclass import from_values
from hpcbench.config.read_yaml import Tree, read_yaml
from hpcbench.config.resolve import config_class, known_keys
from hpcbench.config.user_files import user_file, user_folder
from hpcbench.suggest import suggest
from staging.errors import InputError

CAMPAIGNS = Path(__file__).parents[1] / "campaigns"
OWN_CAMPAIGNS = "HPCBENCH_CAMPAIGNS"
"""The environment variable that names the folder of a user's own campaigns."""
KEY = r"[\w-]+(?:\[\d+\])?"
AT = re.compile(rf"(?P<path>(?:{KEY}\.)*)(?:unknown key '(?P<unknown>[^']*)'|(?P<lacks>lacks)|(?P<key>{KEY}))")
"""Where a message begins: the path of a key, and the key itself."""


def folders(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The folders of campaigns; the first match counts."""
    environ = os.environ if environ is None else environ
    own = user_folder(OWN_CAMPAIGNS, "campaigns", environ)
    return [CAMPAIGNS] if own is None else [own, CAMPAIGNS]


def known_campaigns(environ: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Files of rules by name; a user's own hide those of the suite."""
    paths: dict[str, Path] = {}
    for folder in reversed(folders(environ)):
        paths |= {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return dict(sorted(paths.items()))


def campaign_path(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """The file of the campaign ``name``, or the file ``name``. Raises ``InputError`` for an unknown one."""
    known = known_campaigns(environ)
    if name in known:
        return known[name]
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    own = user_file(OWN_CAMPAIGNS, "campaigns", f"{name}.yaml", os.environ if environ is None else environ)
    raise InputError(f"unknown campaign '{name}'; {suggest(name, list(known))} (your own would be {own})")


def read_campaign(path: Path, environ: Mapping[str, str] | None = None) -> Campaign:
    """The campaign of a file. Raises a one-line ``InputError`` with file, line and key of what is wrong."""
    tree = read_yaml(path)
    base = tree.get("extends")
    under: Path | None = None
    if base is not None:
        if not isinstance(base, str):
            raise located(path, "extends must be the name of a campaign")
        under = extended_path(base, path, environ)
        below = read_yaml(under)
        if "extends" in below:
            raise located(path, f"extends: campaign '{base}' extends another one itself; extend that")
        tree = {**below, **{key: value for key, value in tree.items() if key != "extends"}}
    return campaign_of(tree, path, under)


def extended_path(base: str, path: Path, environ: Mapping[str, str] | None) -> Path:
    """The file of the campaign ``base``, which that at ``path`` extends: a name, or a file beside it.

    A file that extends its own name extends the campaign of the suite that it hides.
    """
    is_file = base.endswith((".yaml", ".yml")) and base not in known_campaigns(environ)
    found = path.parent / base if is_file else campaign_path(base, environ)
    of_suite = CAMPAIGNS / f"{base}.yaml"
    return of_suite if found.resolve() == path.resolve() and of_suite.is_file() else found


def campaign_of(tree: Tree, path: Path, under: Path | None = None) -> Campaign:
    """The campaign of the values of a file, and of the file ``under`` that it extends. Raises ``InputError``."""
    try:
        campaign = from_values(Campaign, {"name": path.stem, **tree}, "")
        check(campaign)
        check_recipes(campaign)
    except InputError as error:
        raise located(path, str(error), under) from None
    return campaign


def located(path: Path, message: str, under: Path | None = None) -> InputError:
    """The error with file and, if the file itself has the key that the message begins with, line.

    It names the file ``under`` that ``path`` extends if the key is from there.
    """
    match = AT.match(message)
    whole = "" if match is None else match["path"] + (match["unknown"] or match["key"] or "")
    lines, top = lines_of(path), re.match(r"[\w-]*", whole)
    if under is not None and top and top[0] and top[0] not in lines:
        theirs = lines_of(under)
        path, lines = (under, theirs) if top[0] in theirs else (path, lines)
    line = None
    while whole and line is None:
        whole = whole.rstrip(".")
        line = lines.get(whole)
        whole = re.sub(r"(\[\d+\]|(^|\.)[\w-]+)$", "", whole)
    return InputError(f"{path}{f', line {line}' if line else ''}: {message}")


def check(campaign: Campaign) -> None:
    """Raise an ``InputError`` that begins with a key, for rules that contradict each other."""
    for number, source in enumerate(campaign.sources):
        check_date(f"sources[{number}].read", source.read)
    for what, names in {
        "sources": [source.text for source in campaign.sources],
        "categories": [category.name for category in campaign.categories],
        "scenarios": [scenario.name for scenario in campaign.scenarios],
    }.items():  # fmt: skip
        if not names:
            raise InputError(f"{what} must have at least one entry; a campaign has sources, categories and scenarios")
        if len(set(names)) < len(names):
            raise InputError(f"{what} has an entry twice; give each a name of its own")
    for number, category in enumerate(campaign.categories):
        check_name(f"categories[{number}].name", category.name)
        if not category.precision:
            raise InputError(f"categories[{number}].precision must name at least one precision")
    categories = [category.name for category in campaign.categories]
    for number, scenario in enumerate(campaign.scenarios):
        check_scenario(f"scenarios[{number}].", scenario, categories)
    for number, promise in enumerate(campaign.acceptance):
        known(f"acceptance[{number}].scenario", promise.scenario, [scenario.name for scenario in campaign.scenarios])
        known(f"acceptance[{number}].category", promise.category, categories)
        scenario = next(scenario for scenario in campaign.scenarios if scenario.name == promise.scenario)
        if promise.repeats > scenario.replicates and not scenario.throughput:
            raise InputError(
                f"acceptance[{number}].repeats ({promise.repeats}) is more than the replicates of {scenario.name} "
                f"({scenario.replicates}), so that no verdict could follow; change one of them"
            )


def check_scenario(where: str, scenario: Scenario, categories: Sequence[str]) -> None:
    """The part of ``check`` for one scenario."""
    check_name(f"{where}name", scenario.name)
    application = find_application_at(f"{where}application", scenario.application)
    known(f"{where}preset", scenario.preset, list(application.presets()))
    keys = [key for key, _ in known_keys(config_class(application))]
    for name in (*scenario.recipe, *scenario.rehearsal.settings):
        part = "recipe" if name in scenario.recipe else "rehearsal.settings"
        if name not in keys:
            raise InputError(f"{where}{part}: unknown setting '{name}'; {suggest(name, keys)}")
        if name == "train.seed":
            raise InputError(f"{where}{part}.{name} is for the campaign to draw, from the clock; leave it out")
    groups = {key.rpartition(".")[0] for key in keys}
    for number, rule in enumerate(scenario.rules):
        at = f"{where}rules[{number}]."
        for name in rule.settings:
            known(f"{at}settings", name, keys if name in keys else [*keys, *sorted(groups)])
        for name in rule.categories:
            known(f"{at}categories", name, categories)
        if rule.kind == "bounded" and rule.low is None and rule.high is None and not rule.choices:
            raise InputError(f"{at}kind is bounded, but no low, high or choices say how; add one")
    check_one_rule(where, scenario.rules, categories)
    for number, reference in enumerate(scenario.references):
        known(f"{where}references[{number}].category", reference.category, categories)
    check_figures(where, scenario)
    check_rehearsal(f"{where}rehearsal", scenario)


def check_name(where: str, name: str) -> None:
    """Raise ``InputError`` for a name that a folder cannot have."""
    if not re.fullmatch(r"[a-z0-9][\w.-]*", name):
        raise InputError(f"{where} ({name!r}) must be lower-case letters, digits and - : it names a folder")


def check_one_rule(where: str, rules: Sequence[SettingRule], categories: Sequence[str]) -> None:
    """Raise ``InputError`` for a setting that two rules name in one category."""
    first: dict[tuple[str, str], int] = {}
    for number, rule in enumerate(rules):
        for pair in product(rule.settings, rule.categories or categories):
            if first.setdefault(pair, number) != number:
                raise InputError(
                    f"{where}rules[{number}].settings: rules[{first[pair]}] names {pair[0]} in category {pair[1]}, "
                    "too; leave one of them"
                )


def check_figures(where: str, scenario: Scenario) -> None:
    """The part of ``check`` for batch, end and metric of a scenario."""
    batch, metric = scenario.batch, scenario.metric
    if batch.local_size is not None and batch.global_size is not None:
        raise InputError(f"{where}batch has local_size and global_size; with whole nodes one follows from the other")
    if (metric.what == "seconds_of_epochs") != (metric.epochs is not None):
        raise InputError(f"{where}metric.epochs is for seconds_of_epochs, which needs it")
    if metric.epochs is not None and metric.epochs > scenario.stop.epochs:
        raise InputError(f"{where}metric.epochs ({metric.epochs}) is more than stop.epochs ({scenario.stop.epochs})")
    if metric.what in ("minutes_to_quality", "minutes_of_all") and scenario.stop.target is None:
        raise InputError(f"{where}metric.what ({metric.what}) needs stop.target, the quality")
    if "target" in scenario.validity and scenario.stop.target is None:
        raise InputError(f"{where}validity has target, but stop.target is not set; set it, or leave target out")
    if scenario.throughput != (metric.what == "minutes_of_all"):
        raise InputError(f"{where}metric.what is minutes_of_all for a scenario with throughput: true, and for no other")
    if scenario.scales != tuple(sorted(set(scenario.scales))) or any(scale < 1 for scale in scenario.scales):
        raise InputError(f"{where}scales must be whole numbers from 1 on, the smallest first")
    if metric.statistic == "olympic" and min(scenario.replicates, scenario.rehearsal.replicates) < 3:
        raise InputError(f"{where}replicates must be 3 or more for an olympic mean, in the rehearsal too")


def check_rehearsal(where: str, scenario: Scenario) -> None:
    """The part of ``check`` for the rehearsal of a scenario."""
    small = scenario.rehearsal
    if not small.nodes or min(small.nodes) < 1:
        raise InputError(f"{where}.nodes ({list(small.nodes)}) must have at least one number of nodes, from 1 on")
    if scenario.metric.epochs is not None and small.metric_epochs is None:
        raise InputError(f"{where} lacks 'metric_epochs', which metric.what ({scenario.metric.what}) needs; add it")
    if small.metric_epochs is not None and small.metric_epochs > small.epochs:
        raise InputError(
            f"{where}.metric_epochs ({small.metric_epochs}) is more than the rehearsal's epochs ({small.epochs}); "
            "change one of them"
        )


def check_date(where: str, text: str) -> None:
    """Raise ``InputError`` for a text that is not a date."""
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise InputError(f"{where} ({text!r}) must be a date such as 2026-11-24") from None


def known(where: str, name: str, names: Sequence[str]) -> None:
    """Raise ``InputError`` for a name that is not in ``names``."""
    if name not in names:
        raise InputError(f"{where}: unknown name '{name}'; {suggest(name, names)}")


def find_application_at(where: str, name: str) -> Any:
    """The application. Raises ``InputError`` that begins with ``where``."""
    try:
        return find_application(name)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
