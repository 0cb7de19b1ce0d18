"""The memory that a rank of a run needs, counted on tensors without data."""

from __future__ import annotations

from functools import lru_cache

from hpcbench.application import Application, find_application
from hpcbench.config.schema import RunConfig
from hpcbench.planning.settings_key import config_of_key, settings_key

COUNTED = ("data", "model", "optim", "train", "parallel")
"""Groups of settings that determine the figure."""


def rank_memory(application: Application, config: RunConfig, nodes: int, ranks_per_node: int) -> int | None:
    """Bytes of a rank as `hpcbench plan` counts them; ``None`` where the application does not give its shapes.

    Raises ``InputError`` where the ranks cannot form the mesh that ``parallel.spatial`` asks for.
    """
    if not application.has("shapes"):
        return None
    key = settings_key(config, COUNTED, ("data.root", "train.seed", "train.max_steps", "train.target"))
    return counted(application.name, key, nodes, ranks_per_node)


@lru_cache(maxsize=256)
def counted(name: str, settings: str, nodes: int, ranks_per_node: int) -> int:
    """See ``rank_memory``; cached, since a count takes seconds and runs of a study often share it."""
    from hpcbench.planning.plan import Machine, plan_mesh

    application = find_application(name)
    return plan_mesh(application, config_of_key(application, settings), Machine(nodes, ranks_per_node)).memory
