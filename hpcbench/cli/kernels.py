"""``hpcbench kernels``: an application's own operations at their shapes, each alone and against its roof."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import resolve_arguments
from hpcbench.cli.characterize import seconds
from hpcbench.suggest import suggest
from staging.errors import InputError
from staging.number_options import add_whole

DESCRIPTION = """\
Time every operation of a training step alone, at the shapes, types and layouts that the
application uses: convolutions, matrix products, batch norms, pooling, reductions, copies, and
on several ranks its messages (--kind message). Each is shown beside the least time that this
machine's roofs allow, and the list begins with what loses most time in a step.

  hpcbench kernels cosmoflow --preset smoke
  hpcbench kernels deepcam --preset smoke --kind convolution --top 40
  mpiexec -n 2 hpcbench kernels cosmoflow --preset laptop --seconds 30

`roof` says what bounds an operation: compute, memory, the cost of a launch, or the network.
`hpcbench characterize` writes the same numbers into its file.
"""
MOST_KERNELS = 10**6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; dotted settings come on top."""
    parser.add_argument("app", metavar="APP", help="application; `hpcbench apps` lists them")
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings; repeatable"
    )
    parser.add_argument("--seconds", type=seconds, default=30.0, help="time for all kernels together (default: 30)")
    parser.add_argument("--kind", help="show only one kind, such as convolution, 'batch norm' or message")
    add_whole(parser, "--top", 1, MOST_KERNELS, "how many kernels to show (default: 30)", default=30)


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Time the kernels on the ranks at hand, and print them."""
    check(args)
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "train")
    devices = config.parallel.devices
    if devices is not None and devices > 1 and "HPCBENCH_SPAWNED" not in os.environ:
        from hpcbench.parallel.machine_limits import check_machine
        from hpcbench.parallel.spawn import spawn

        check_machine(config, starts_ranks=True)
        return spawn(sys.argv[1:], devices, os.environ)
    from hpcbench.characterisation.characterize import kernels_alone
    from hpcbench.characterisation.page import kernels_text
    from hpcbench.train.ranks import connect_ranks
    from staging.ranks.launch import detect

    with connect_ranks(detect(os.environ), config) as ranks:
        characterisation = kernels_alone(application, config, ranks, args.seconds)
        if ranks.launch.rank == 0:
            print(kernels_text(characterisation, args.kind, args.top))
    return 0


def check(args: argparse.Namespace) -> None:
    """Raise ``InputError`` for a ``--kind`` that does not exist."""
    from typing import get_args

    from hpcbench.characterisation.model import MESSAGE, Kind

    kinds = [*get_args(Kind), MESSAGE]
    if args.kind is not None and args.kind not in kinds:
        raise InputError(f"--kind ({args.kind}) is no kind of operation; {suggest(args.kind, kinds)}")
