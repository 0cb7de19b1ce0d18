"""``hpcbench data``: simulate, inspect and verify datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import add_run_options, resolve_arguments
from staging.errors import InputError

HELP = "simulate, inspect or verify a dataset"
DESCRIPTION = """\
Datasets in the published on-disk formats.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
      writes synthetic but physical data, resumes where it stopped
  hpcbench data inspect cosmoflow data/cosmoflow/train/FILE
      says what a file holds
  hpcbench data verify cosmoflow --preset laptop --data.root data/cosmoflow
      reads every file in parallel and lists each bad one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the three actions."""
    parser.add_argument("action", choices=("simulate", "inspect", "verify"), metavar="simulate|inspect|verify")
    add_run_options(parser)
    parser.add_argument("path", nargs="?", type=Path, help="file or folder to inspect")
    parser.add_argument("--out", type=Path, help="folder to write the simulated dataset to")
    parser.add_argument("--processes", type=int, help="worker processes (default: the allowed cores)")
    parser.add_argument("--device", default="cpu", help="cpu, or an accelerator such as cuda, to simulate on")


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Run one of the actions."""
    if args.action == "inspect" and args.path is None and not overrides:
        raise InputError("data inspect: name the file or folder to inspect")
    if args.processes is not None and args.processes < 1:
        raise InputError(f"--processes ({args.processes}) must be at least 1")
    return {"simulate": simulate, "inspect": inspect, "verify": verify}[args.action](args, overrides)


def simulate(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write a simulated dataset."""
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "simulate")
    if args.out is None:
        raise InputError("data simulate: say where to write with --out DIR")
    from hpcbench.data.simulate import simulate_dataset

    written = simulate_dataset(application, config, args.out, args.processes, device=args.device)
    print(f"{args.out}: {written.summary()}")
    return 0


def inspect(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Describe a file, or the first file of each split of a folder."""
    application = find_application(args.app)
    from hpcbench.data.inspect import describe

    print(describe(application, args.path))
    return 0


def verify(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Read every file; exit code 2 when one is bad."""
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "data")
    from hpcbench.data.verify import verify_dataset

    bad = verify_dataset(application, config, args.processes)
    for line in bad:
        print(line)
    return 2 if bad else 0
