"""``--recipe-from LOG`` of train and submit: the recipe in an official log, as dotted settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcbench.application import Application
    from hpcbench.config.schema import RunConfig
    from hpcbench.submission.borrowed_recipe import BorrowedRecipe


def add_recipe_option(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument("--recipe-from", type=Path, metavar="LOG", help="take optimizer, schedule, regularization and "
                        "global batch from an official log; dotted settings come on top")  # fmt: skip


def borrow(application: Application, args: argparse.Namespace, given: Mapping[str, str]) -> BorrowedRecipe | None:
    """The recipe that the option names; ``None`` without it. Raises ``InputError``."""
    if args.recipe_from is None:
        return None
    from hpcbench.submission.borrowed_recipe import read_recipe

    return read_recipe(args.recipe_from, application.name, given)


def settings_of(recipe: BorrowedRecipe, config: RunConfig, ranks: int, given: Mapping[str, str]) -> dict[str, str]:
    """All settings that the recipe gives on ``ranks`` ranks; ``config`` says how they share samples."""
    from hpcbench.parallel.mesh_shape import mesh_shape
    from hpcbench.submission.borrowed_recipe import batch_settings

    data_ranks = mesh_shape(ranks, config.parallel.spatial).data * (config.parallel.simulated_ranks or 1)
    return {**recipe.settings, **batch_settings(recipe, data_ranks, given)}
