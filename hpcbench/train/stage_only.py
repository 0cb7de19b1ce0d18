"""Stages what a run would stage, reports the figures, and ends: measures staging without training."""

from __future__ import annotations

import os
import secrets

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.train.build import open_data
from hpcbench.train.dataset_staging import check_transform, names, options_of, world_of
from hpcbench.train.ranks import connect_ranks
from staging.errors import InputError
from staging.ranks.launch import detect
from staging.ranks.signals import Interrupts
from staging.stage import stage


def stage_only(application: Application, config: RunConfig, interrupts: Interrupts) -> int:
    """Stage the run's dataset to every node, print the figures, and return the exit code.

    ``interrupts`` must be entered. Raises ``InputError`` on all ranks for bad input, and if ``staging.destination`` is
    not set.
    """
    with connect_ranks(detect(os.environ), config) as ranks:
        ranks.together(lambda: check(application, config))
        seed = ranks.group.broadcast_object(
            secrets.randbelow(2**31) if config.train.seed is None else config.train.seed
        )
        options = ranks.together(lambda: options_of(application, config, seed))
        world = world_of(ranks.group, config.staging.destination)
        report = stage(options, world, names(application, config), watcher=ranks.watcher)
        if ranks.launch.rank == 0:
            print(report.table())
    return 0


def check(application: Application, config: RunConfig) -> None:
    """Raise ``InputError`` if there is nothing to stage, or no destination."""
    if not config.staging.destination:
        raise InputError("--stage-only needs --staging.destination DIR, a folder on each node")
    check_transform(application, config)
    open_data(application, config)
