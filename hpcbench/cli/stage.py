"""``hpcbench stage``: the same as ``python -m staging``, with a plot on request."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from staging.cli import run as run_staging
from staging.cli import said_once
from staging.cli_options import DESCRIPTION
from staging.cli_options import add_arguments as add_staging_arguments
from staging.errors import InputError

__all__ = ["DESCRIPTION", "add_arguments", "run"]

FORMATS = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_staging_arguments(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw what landed when on each node (.png, .svg)")


def run(args: argparse.Namespace) -> int:
    """Stage as ``staging.cli.run`` does, with a plot if ``--plot`` asks for one; returns the exit code."""
    if args.plot is None:
        return run_staging(args)
    said_once(lambda: refuse_plot(args))
    return run_staging(args, partial(draw, args.plot))


def refuse_plot(args: argparse.Namespace) -> None:
    """Raise ``InputError`` if nothing could be drawn."""
    if args.plot.suffix not in FORMATS:
        raise InputError(f"--plot {args.plot} must end in {' or '.join(FORMATS)}")
    if args.clean is not None or args.verify_only is not None or args.plan_only or args.probe:
        raise InputError("--plot draws a staging; leave out --clean, --verify-only, --plan-only and --probe")
    if not args.plot.absolute().parent.is_dir():
        raise InputError(f"--plot {args.plot} has no folder to lie in; make {args.plot.absolute().parent} first")


def draw(path: Path, report: dict[str, Any]) -> None:
    """Write the plot of a staging report to ``path``. Raises ``InputError`` where it can't be written."""
    from hpcbench.results import style
    from hpcbench.results.staging_plots import timelines

    figure = timelines(report)
    if figure is None:
        print(f"nothing landed, so there is no {path}")
        return
    try:
        style.save(figure.figure, path)
    except OSError as error:
        raise InputError(f"--plot {path} cannot be written ({error.strerror})") from error
