"""What a user requests of a batch job, before the site's defaults and limits apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class JobRequest:
    """What a user requests; ``None`` or an empty value leaves the choice to the site."""

    nodes: int = 1
    ranks_per_node: int | None = None
    cores_per_rank: int | None = None
    gpus_per_rank: int | None = None
    memory_gib: int | None = None
    """Memory of a node."""
    time: str = "01:00:00"
    account: str = ""
    queue: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    modules: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    """Container image that every rank runs in, with the site's ``container`` words."""
    local_path: str = ""
    warn_s: int = 120
    """Seconds before the time limit at which the job is told to write a checkpoint."""
    attempts: int = 10
    """Most starts of the job, which starts again after each time limit."""
    bring_environment: bool = False
    """Whether each node first gets a copy of the Python environment, from which the ranks run."""
