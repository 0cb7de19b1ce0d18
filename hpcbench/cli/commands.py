"""The commands of ``hpcbench``, each a module of its name beside this one."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

COMMANDS = (
    "demo", "apps", "app", "data", "stage", "plan", "characterize", "kernels", "predict", "train", "submit", "jobs",
    "sites", "study", "optimizers", "check", "results", "analyze", "project", "package", "campaign", "report", "doctor",
    "bundle", "environment", "completion",
)  # fmt: skip


def takes_settings(module: ModuleType) -> bool:
    """Whether a command, or one of its subcommands, takes dotted settings."""
    return hasattr(module, "run_with_overrides")


def command(name: str) -> ModuleType:
    """The module of a command; importing it is cheap."""
    return import_module(f"hpcbench.cli.{name}")
