"""What a user asks of a batch job, before a site has had its say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class JobRequest:
    """What a user asks for; ``None`` and empty leave it to the site."""

    nodes: int = 1
    ranks_per_node: int | None = None
    cores_per_rank: int | None = None
    gpus_per_rank: int | None = None
    memory_gib: int | None = None
    """Of a node."""
    time: str = "01:00:00"
    account: str = ""
    queue: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    modules: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    """Container image that every rank runs in, by the site's words."""
    local_path: str = ""
    warn_s: int = 120
    """Seconds before the time limit at which the job is told, to write a checkpoint."""
    attempts: int = 10
    """How often the job starts at most: again after each time limit."""
    bring_environment: bool = False
    """Whether each node first gets a copy of the Python environment, from which the ranks run."""
