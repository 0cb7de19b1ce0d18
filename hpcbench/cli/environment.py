"""``hpcbench environment``: the Python environment on each node's own storage."""

from __future__ import annotations

import argparse
import os
from functools import partial

from staging.ranks.signals import Interrupted, Interrupts

DESCRIPTION = """\
Copy the Python environment that runs this command to a folder on each node's own storage.
It is read once in the job and sent between the nodes, so that ranks that start from the
copy do not contend for the metadata server of the shared filesystem.

  hpcbench environment /tmp/python                            on one node
  srun --ntasks-per-node 1 hpcbench environment /tmp/python   on all nodes of a job
  srun /tmp/python/environment/bin/python -P -m hpcbench train ...
  srun --ntasks-per-node 1 rm -r /tmp/python

`hpcbench submit --bring-environment` does this in a job. hpcbench must be installed in the
environment, and not with `pip install -e`. Hidden files and folders are left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("destination", metavar="DST", help="folder on each node; {node}, {rank} and $VARIABLES "
                        "are filled in")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Copy the environment, report what that took, and return the exit code."""
    from hpcbench.environment_copy import ENVIRONMENT, bring_environment
    from staging.cli import said_once
    from staging.print_line import print_line
    from staging.ranks.collective_errors import watch
    from staging.ranks.launch import detect
    from staging.ranks.mpi_world import mpi_world, one_node_per_rank
    from staging.ranks.unwatched import unwatched

    try:
        with Interrupts():
            with unwatched(said_once(partial(detect, os.environ))):
                launched = world = said_once(mpi_world)
                if "{rank}" in args.destination:
                    world = one_node_per_rank(world)
                watching = watch(launched, "hpcbench", node=world.place.node_name, until_exit=True)
            with watching as watcher:
                reports = bring_environment(args.destination, world, watcher)
            if world.place.rank == 0:
                for report in reports:
                    print(f"hpcbench: environment: {report.sentence()}")
                print(f"hpcbench: run {args.destination}/{ENVIRONMENT}/bin/python -P -m hpcbench", flush=True)
    except Interrupted as error:
        if error.speaks:
            print_line(f"hpcbench: aborted: {error}")
        return error.exit_code
    return 0
