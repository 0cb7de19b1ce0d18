"""How much the epochs of published entries differ from those of the reference, with its recipe and with others.

A reference convergence point tells how epochs scatter with the seed on the reference's system. A submission runs other
code on another system, and often another recipe, so its epochs also differ on average. The published entries show by
how much.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from hpcbench.mlperf.published import published_runs
from hpcbench.prediction.entries import ModelEntry, model_entries
from hpcbench.prediction.platforms import shipped_machines
from hpcbench.prediction.recipes import RULES, recipe_of, reference_points, same
from hpcbench.submission.projection import KnownEpochs, Ratios, reference_epochs
from staging.errors import InputError


def is_reference_recipe(application: str, ruleset: str, batch: int, logged: Mapping[str, Any]) -> bool:
    """Whether logged settings are those of a reference convergence point at this batch."""
    recipe = recipe_of(logged)
    return any(same(recipe, reference) for reference, _ in reference_points(application, ruleset).get(batch, ()))


def published_entries() -> list[ModelEntry]:
    """The entries that the suite ships."""
    return model_entries(published_runs(), shipped_machines())


def ratios_of(entries: Iterable[ModelEntry], reference_recipe: bool) -> Ratios:
    """The ratios of the closed entries of both applications that have a reference near their batch.

    Entries whose runs are one trajectory are left out: they are no sample.
    """
    ratios_by_site: dict[str, list[float]] = {}
    for entry in entries:
        if entry.round not in RULES or entry.division != "closed" or entry.one_trajectory or not entry.recipe:
            continue
        ruleset = RULES[entry.round]
        if is_reference_recipe(entry.application, ruleset, entry.global_batch, entry.recipe) != reference_recipe:
            continue
        try:
            known, _ = reference_epochs(entry.application, ruleset, entry.global_batch)
        except InputError:
            continue
        ratios_by_site.setdefault(entry.site, []).append(entry.mean_epochs / statistics.fmean(known.values))
    return tuple(tuple(ratios) for ratios in ratios_by_site.values())


def on_another_system(known: KnownEpochs, ratios: Ratios, reference_recipe: bool) -> KnownEpochs:
    """The epochs of the reference, with the ratios of published entries to it."""
    every = [ratio for site in ratios for ratio in site]
    recipe = "its recipe" if reference_recipe else "another recipe"
    words = (
        f"{known.source}, times what {len(every)} published entries of {len(ratios)} sites with {recipe} took over the "
        f"reference, {min(every):.2f} to {max(every):.2f}"
    )
    return KnownEpochs(known.values, words, ratios)
