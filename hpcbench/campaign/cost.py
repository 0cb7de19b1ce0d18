"""What a rule costs: epochs of a campaign's recipe against the fewest that are known at the same batch."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.campaign.response import ResponseRow
from hpcbench.campaign.rules import Scenario
from hpcbench.optim.recipes import RECIPES, Recipe
from hpcbench.results.units import epochs as epochs_words
from hpcbench.results.units import significant


def best_known(application: str, batch: int) -> Recipe | None:
    """The published recipe with the fewest epochs to the target at a global batch; ``None`` where there is none."""
    found = [each for each in RECIPES if each.application == application and each.global_batch_size == batch
             and each.epochs is not None]  # fmt: skip
    return min(found, key=lambda each: each.epochs or 0.0, default=None)


def cost_lines(scenario: Scenario, rows: Sequence[ResponseRow]) -> list[str]:
    """A sentence for each batch at which a row has epochs to the target and a published recipe is known."""
    if scenario.stop.target is None:
        return []
    batches: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        batch, epochs = row.cells.get("global_batch"), row.cells.get("epochs")
        own = row.kind == "result" and row.cells.get("samples_per_s_per_accelerator") is not None
        if isinstance(batch, int) and isinstance(epochs, int | float) and (own or row.kind == "reference"):
            who = str(row.cells["system"]) if row.kind == "reference" else "the runs here"
            batches.setdefault((batch, who), []).append(float(epochs))
    return [line for (batch, who), found in batches.items() if (line := cost_line(scenario, batch, who, found))]


def cost_line(scenario: Scenario, batch: int, who: str, found: Sequence[float]) -> str:
    """One sentence; empty where no recipe is known."""
    recipe = best_known(scenario.application, batch)
    if recipe is None or recipe.epochs is None:
        return ""
    low, high = min(found), max(found)
    needed = epochs_words(low) if low == high else f"{epochs_words(low)} to {epochs_words(high)}"
    ratio = significant(low / recipe.epochs, 2) if low == high else (
        f"{significant(low / recipe.epochs, 2)} to {significant(high / recipe.epochs, 2)}"
    )  # fmt: skip
    named = str(scenario.recipe.get("optim.name", recipe.optimizer)).upper().replace("ADAMW", "AdamW")
    return (
        f"At batch {batch:,} the recipe of the rules ({named}) takes {needed} epochs ({who}); the published recipe of "
        f"{recipe.optimizer} ({recipe.preset}, {recipe.source}) needs {significant(recipe.epochs)}: "
        f"{ratio} times the training."
    )


def recipe_line(scenario: Scenario) -> str:
    """What is known of the batch that the rules fix, before any run; empty where nothing is."""
    batch = scenario.batch.global_size
    recipe = best_known(scenario.application, batch) if batch is not None and scenario.stop.target is not None else None
    if recipe is None or recipe.epochs is None:
        return ""
    return (
        f"The fewest epochs known at batch {batch:,} are {significant(recipe.epochs)}, by {recipe.optimizer} "
        f"({recipe.preset}, {recipe.source})."
    )
