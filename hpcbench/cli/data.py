"""``hpcbench data``: simulate, inspect, verify, split and index datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import add_run_options, resolve_arguments
from staging.errors import InputError
from staging.number_options import MOST_PER_NODE, add_whole

HELP = "simulate, inspect, verify, split or index a dataset"
DESCRIPTION = """\
Datasets in the published on-disk formats.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
      writes synthetic but physical data, resumes where it stopped
  hpcbench data inspect cosmoflow data/cosmoflow/train/FILE
      says what a file holds
  hpcbench data verify cosmoflow --preset laptop --data.root data/cosmoflow
      reads every file in parallel and lists each bad one
  hpcbench data split cosmoflow --preset mlperf universes/*.hdf5 --out data/cosmoflow/train
      cuts files that hold many samples, such as a whole universe, into samples
  hpcbench data index data/cosmoflow
      lists any dataset with checksums in a file that staging reads (--out: another place)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the actions."""
    parser.add_argument("action", choices=tuple(ACTIONS), metavar="|".join(ACTIONS))
    add_run_options(parser)
    parser.add_argument("paths", nargs="*", type=Path, metavar="path", help="files or folders to inspect, or to split")
    parser.add_argument(
        "--out", type=Path, help="folder to write to: of the simulated dataset, or of the samples; file of an index"
    )
    add_whole(
        parser, "--processes", 1, MOST_PER_NODE, "worker processes, threads of an index (default: the allowed cores)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, or an accelerator such as cuda, to simulate on")


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Run one of the actions."""
    if args.action in ("inspect", "split") and not args.paths:
        raise InputError(f"data {args.action}: name the files to {args.action}")
    if args.action in ("simulate", "verify") and args.paths:
        raise InputError(f"data {args.action} takes no path ({args.paths[0]}); {PLACES[args.action]}")
    if args.action in ("simulate", "split") and args.out is None:
        raise InputError(f"data {args.action}: say where to write with --out DIR")
    if args.action == "index" and (args.paths or overrides):
        surplus = args.paths[0] if args.paths else f"--{next(iter(overrides))}"
        raise InputError(f"data index takes one folder, --out and --processes, not {surplus}")
    return ACTIONS[args.action](args, overrides)


def simulate(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write a simulated dataset."""
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "simulate")
    from hpcbench.data.simulate import simulate_dataset

    written = simulate_dataset(application, config, args.out, args.processes, device=args.device)
    print(f"{args.out}: {written.summary()}")
    return 0


def inspect(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Describe files, or the first file of each split of folders."""
    application = find_application(args.app)
    from hpcbench.data.inspect import describe

    for path in args.paths:
        print(describe(application, path))
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


def split(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Cut files that hold many samples each into samples."""
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "data")
    from hpcbench.data.split import split_files

    print(f"{args.out}: {split_files(application, config, args.paths, args.out, args.processes)} samples")
    return 0


def index(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the index of a folder; it is the same for all applications, so the folder stands in place of one."""
    from staging.source.make_index import index_dataset

    print(index_dataset(Path(args.app), args.out, args.processes))
    return 0


ACTIONS = {"simulate": simulate, "inspect": inspect, "verify": verify, "split": split, "index": index}
PLACES = {"simulate": "say where to write with --out DIR", "verify": "say where the dataset is with --data.root DIR"}
