"""The commands of ``hpcbench``, each a module of its name beside this one."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

COMMANDS = {
    "demo": "simulate, stage, train and report both applications, in minutes",
    "apps": "list applications and their presets",
    "app": "start an application of your own, or wrap a model and a dataset",
    "data": "simulate, inspect, verify, split or index a dataset",
    "stage": "bring a dataset to node-local storage, fast, safely and measured",
    "plan": "show which mesh of ranks fits a machine: memory and bytes sent",
    "characterize": "show what a training demands of a machine, beside this machine's roofs",
    "kernels": "time an application's operations at their shapes, against the roofs",
    "predict": "predict the time to solution on a machine, with its parts and interval",
    "train": "train an application until its target quality",
    "submit": "submit a training as a batch job, or print its script",
    "jobs": "show the status of submitted jobs, or cancel them",
    "sites": "list the sites that `submit` knows and the machines with facts, or show one",
    "study": "run a matrix of trainings: convergence against batch, speed against nodes",
    "optimizers": "list optimizers, their options and defaults",
    "check": "check official logs and whole submissions against the MLPerf HPC rules",
    "results": "read your own and published runs into one table",
    "analyze": "explain why one system is faster than another, from your own and published runs",
    "project": "project the score of a submission from short runs",
    "package": "build the tree of an MLPerf HPC submission, and check it",
    "campaign": "run and report by the rules of a benchmark campaign",
    "report": "write pages with plots and numbers of runs",
    "doctor": "say what works on this machine and what is missing",
    "bundle": "pack hpcbench for a machine without a network",
    "environment": "copy the Python environment to the nodes' own storage",
    "completion": "print the script with which a shell completes hpcbench commands",
}
"""What each command does, in a line; the list of commands is printed without importing their modules."""


def takes_settings(module: ModuleType) -> bool:
    """Whether a command, or one of its subcommands, takes dotted settings."""
    return hasattr(module, "run_with_overrides")


def command(name: str) -> ModuleType:
    """The module of a command; importing it is cheap."""
    return import_module(f"hpcbench.cli.{name}")
