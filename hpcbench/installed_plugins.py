"""The plug-ins that are installed, each tried as a run would use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from hpcbench import DISTRIBUTION, plugins
from staging.errors import InputError

REQUIRED_PARTS = ("data", "model", "task")
"""Modules that every application has. They are not imported here, since they import torch."""


@dataclass(frozen=True)
class Plugin:
    """A part that another package provides."""

    thing: str
    name: str
    origin: str
    """What its entry point names, and the package that has it."""
    wrong: str
    """Why it cannot be used; empty if it can."""


def installed_plugins() -> list[Plugin]:
    """All plug-ins, by group and name. Imports each of them."""
    return [
        Plugin(plugins.THINGS[group], name, origin, wrong)
        for group in plugins.THINGS
        if any(is_foreign(point) for point in plugins.registered(group))
        for name, origin, wrong in plugins.states(group, check_of(group), is_foreign)
    ]


def is_foreign(point: EntryPoint) -> bool:
    """Whether the entry point belongs to another package than the suite's."""
    return point.dist is None or point.dist.name != DISTRIBUTION


def check_of(group: str) -> Callable[[str], object]:
    """The function that raises ``InputError`` for the name of a bad plug-in of a group."""
    if group == plugins.APPLICATIONS:
        return usable_application
    if group == plugins.OPTIMIZERS:
        from hpcbench.config.optimizers import optimizer_info
        from hpcbench.optim.registry import builder_of

        return lambda name: builder_of(optimizer_info(name))
    if group == plugins.SCHEDULERS:
        from hpcbench.batch.schedulers import find_scheduler

        return find_scheduler
    if group == plugins.MEASUREMENTS:
        from hpcbench.train.measurements import find_measurement

        return find_measurement
    if group == plugins.FIGURES:
        from hpcbench.results.registered_figures import find_figure

        return find_figure
    from hpcbench.batch.site import package_folder

    return package_folder


def usable_application(name: str) -> None:
    """Raise ``InputError`` unless the application has its modules and a preset, and all its presets can be read."""
    from hpcbench.application import find_application
    from hpcbench.config.resolve import resolve

    application = find_application(name)
    missing = [part for part in REQUIRED_PARTS if not application.has(part)]
    if missing:
        raise InputError(f"application '{name}' has no module {application.package}.{missing[0]}; mend its package")
    if not application.presets():
        raise InputError(f"application '{name}' has no preset, a file configs/NAME.yaml; mend its package")
    for preset in application.presets():
        try:
            resolve(application, preset)
        except InputError as error:
            raise InputError(f"preset '{preset}' of application '{name}': {error}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"application '{name}' cannot be configured ({reason}); mend its package") from error
