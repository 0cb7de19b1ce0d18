"""Options that a scheduler or a launcher cannot take: refused in one line, since they would be dropped silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from staging.errors import InputError

if TYPE_CHECKING:
    from hpcbench.batch.job_request import JobRequest
    from hpcbench.batch.site import Site

ALONE = "this machine has no scheduler; leave it out"
REFUSED: Mapping[str, Mapping[str, str]] = {
    "flux": {
        "memory_gib": "Flux counts no memory; leave it out, and take whole nodes, or fewer --ranks-per-node with more "
        "--cores-per-rank each",
        "qos": "Flux has no quality of service; name the --queue",
        "reservation": "Flux has no reservations; name the --queue that holds the nodes",
    },
    "local": dict.fromkeys(("memory_gib", "account", "queue", "qos", "constraint", "reservation"), ALONE),
    "jsrun": {
        "memory_gib": "jobs with jsrun have whole nodes, and so all memory of each; leave it out",
    },
}
"""Options of a request by scheduler or launcher, with why it cannot use them and what to use instead."""


def refuse_unused(site: Site, request: JobRequest) -> None:
    """Raise ``InputError`` for the first option that neither the site's scheduler nor its launcher takes."""
    if site.scheduler == "pbs" and request.reservation and request.queue:
        raise InputError(
            f"--queue ({request.queue}) is not for a job with --reservation ({request.reservation}) on site "
            f"{site.name}: in PBS a reservation is a queue of its own; leave out --queue"
        )
    for name in (site.scheduler, site.launcher):
        for option, reason in REFUSED.get(name, {}).items():
            value = getattr(request, option)
            if value not in (None, ""):
                raise InputError(f"--{option.replace('_', '-')} ({value}) is not for site {site.name}: {reason}")
