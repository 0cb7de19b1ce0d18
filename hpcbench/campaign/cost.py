"""What a rule costs: epochs of a campaign's recipe against the fewest known at the same batch."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.campaign.response import ResponseRow
from hpcbench.campaign.rules import Scenario
from hpcbench.optim.recipes import RECIPES, Recipe
from hpcbench.results.units import epochs as epochs_words
from hpcbench.results.units import significant

WORTH_A_LINE = 1.05
"""Epochs of at least this ratio to the fewest known are a cost."""
WORDS = {"adamw": "AdamW", "adam": "Adam", "nvlamb": "LAMB", "lamb": "LAMB", "sgd": "SGD"}
"""Names of optimizers as papers write them."""


def best_known(application: str, batch: int) -> Recipe | None:
    """The published recipe with the fewest epochs to the target at a global batch; ``None`` if there is none."""
    recipes = [recipe for recipe in RECIPES if recipe.application == application and recipe.global_batch_size == batch
               and recipe.epochs is not None]  # fmt: skip
    return min(recipes, key=lambda recipe: recipe.epochs or 0.0, default=None)


def cost_lines(scenario: Scenario, rows: Sequence[ResponseRow]) -> list[str]:
    """A sentence for each batch at which a row has epochs to the target and a published recipe is known."""
    if scenario.stop.target is None:
        return []
    batches: dict[tuple[int, str, str], list[float]] = {}
    for row in rows:
        batch, epochs = row.cells.get("global_batch"), row.cells.get("epochs")
        measured = row.kind == "result" and row.cells.get("samples_per_s_per_accelerator") is not None
        by_the_rules = row.kind == "reference" and "optim.name" in scenario.recipe
        if isinstance(batch, int) and isinstance(epochs, int | float) and (measured or by_the_rules):
            who = str(row.cells["system"]) if row.kind == "reference" else "the runs here"
            optimizer = str(row.cells.get("optimizer") or scenario.recipe.get("optim.name") or "")
            batches.setdefault((batch, who, optimizer), []).append(float(epochs))
    lines = [cost_line(scenario, *key, epoch_counts) for key, epoch_counts in batches.items()]
    return [line for line in lines if line]


def cost_line(scenario: Scenario, batch: int, who: str, optimizer: str, epoch_counts: Sequence[float]) -> str:
    """One sentence; empty if no recipe is known, or if all epochs are below ``WORTH_A_LINE`` times its own."""
    recipe = best_known(scenario.application, batch)
    if recipe is None or recipe.epochs is None:
        return ""
    low, high = min(epoch_counts), max(epoch_counts)
    if high < WORTH_A_LINE * recipe.epochs:
        return ""
    needed = epochs_words(low) if low == high else f"{epochs_words(low)} to {epochs_words(high)}"
    ratio = significant(low / recipe.epochs, 2) if low == high else (
        f"{significant(low / recipe.epochs, 2)} to {significant(high / recipe.epochs, 2)}"
    )  # fmt: skip
    named = WORDS.get(optimizer, optimizer) or "the rules' recipe"
    return (
        f"At batch {batch:,} {named} takes {needed} epochs ({who}); the published recipe of {recipe.optimizer} "
        f"({recipe.preset}, {recipe.source}) needs {significant(recipe.epochs)}: {ratio} times the training."
    )


def recipe_line(scenario: Scenario) -> str:
    """What is known before any run about the batch that the rules fix; empty if nothing is."""
    batch = scenario.batch.global_size
    recipe = best_known(scenario.application, batch) if batch is not None and scenario.stop.target is not None else None
    if recipe is None or recipe.epochs is None:
        return ""
    return (
        f"The fewest epochs known at batch {batch:,} are {significant(recipe.epochs)}, by {recipe.optimizer} "
        f"({recipe.preset}, {recipe.source})."
    )
