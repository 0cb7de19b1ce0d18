"""The schedulers by name: those of the suite, and modules that other packages register in ``hpcbench.schedulers``."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any, get_type_hints

from hpcbench import plugins
from hpcbench.batch import flux, local, lsf, pbs, slurm
from hpcbench.batch.scheduler import Scheduler
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

SCHEDULERS: dict[str, Scheduler] = {"slurm": slurm, "pbs": pbs, "lsf": lsf, "flux": flux, "local": local}
"""The schedulers of the suite."""


def find_scheduler(name: str) -> Scheduler:
    """The scheduler called ``name``.

    Raises ``InputError`` for an unknown name, with the nearest one, and for a plug-in, with what is wrong with it.
    """
    point = plugins.find(plugins.SCHEDULERS, name, SCHEDULERS)
    if point is not None:
        module = plugins.load(point)
        wrong = faults(module)
        if wrong:
            raise InputError(f"{plugins.words(point)} {wrong[0]}; see docs/extending.md, or uninstall it")
        scheduler: Scheduler = module
        return scheduler
    if name not in SCHEDULERS:
        raise InputError(f"unknown scheduler '{shown(name)}'; {suggest(name, scheduler_names())}")
    return SCHEDULERS[name]


def scheduler_names() -> list[str]:
    """The schedulers of the suite, then those of other packages; nothing is imported."""
    return [*SCHEDULERS, *(name for name in plugins.names(plugins.SCHEDULERS) if name not in SCHEDULERS)]


def usable_schedulers() -> Iterator[Scheduler]:
    """All schedulers except plug-ins that cannot be used."""
    for name in scheduler_names():
        try:
            yield find_scheduler(name)
        except InputError:
            if name in SCHEDULERS:
                yield SCHEDULERS[name]


def faults(module: Any) -> list[str]:
    """What a module lacks of ``Scheduler``, or has in another form, in words."""
    problems = []
    for name, wanted in vars(Scheduler).items():
        if name.startswith("_"):
            continue
        given = getattr(module, name, None)
        if isinstance(wanted, property):
            kind = get_type_hints(wanted.fget)["return"]
            if not isinstance(given, kind):
                problems.append(f"{'lacks' if given is None else 'has another'} {name}, a {kind.__name__}")
        elif not callable(given):
            problems.append(f"lacks the function {name}{shape(wanted)}")
        elif len(signature(given).parameters) != len(signature(wanted).parameters) - 1:
            problems.append(f"has another {name} than {name}{shape(wanted)}")
    return problems


def shape(function: Any) -> str:
    """The parameters of a function of the protocol: ``(job_ids, ask)``."""
    return f"({', '.join([*signature(function).parameters][1:])})"
