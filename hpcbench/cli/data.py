"""``hpcbench data``: simulate, inspect, verify, split and index datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.cli.arguments import (
    Parser,
    Subcommand,
    add_application,
    add_preset_options,
    add_run_options,
    resolve_arguments,
    run_subcommand,
)
from staging.errors import InputError
from staging.number_options import MOST_PER_NODE, add_whole

HELP = "simulate, inspect, verify, split or index a dataset"
DESCRIPTION = """\
Datasets in the published on-disk formats.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench data verify cosmoflow --preset laptop --data.root data/cosmoflow

`hpcbench data COMMAND --help` shows the options of a command, with an example.
"""
SIMULATE = """\
Write synthetic but physical data in the published format; continues where it stopped.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow

Dotted settings such as --simulate.seed 7 come on top of the preset's.
"""
INSPECT = """\
Say what files hold, or the first file of each split of a folder.

  hpcbench data inspect cosmoflow data/cosmoflow
"""
VERIFY = """\
Read every file of a dataset in parallel and list each bad one; exit code 2 when there is one.

  hpcbench data verify cosmoflow --preset laptop --data.root data/cosmoflow
"""
SPLIT = """\
Cut files that hold many samples, such as a whole universe, into samples.

  hpcbench data split cosmoflow --preset mlperf universes/*.hdf5 --out data/cosmoflow/train
"""
INDEX = """\
List any dataset with checksums in a file that staging reads.

  hpcbench data index data/cosmoflow
"""


def add_arguments(parser: Parser) -> None:
    """The subcommands."""
    parser.add_subcommands(SUBCOMMANDS)


def add_processes(parser: Parser, what: str = "worker processes") -> None:
    """How many work at once."""
    add_whole(parser, "--processes", 1, MOST_PER_NODE, f"{what} (default: the allowed cores)")


def add_simulate_arguments(parser: Parser) -> None:
    """Options of ``simulate``."""
    add_run_options(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the dataset")
    add_processes(parser)
    parser.add_argument("--device", default="cpu", help="cpu, or an accelerator such as cuda, to simulate on")


def add_inspect_arguments(parser: Parser) -> None:
    """Options of ``inspect``."""
    add_application(parser)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files or folders")


def add_verify_arguments(parser: Parser) -> None:
    """Options of ``verify``."""
    add_run_options(parser)
    parser.add_argument("paths", nargs="*", type=Path, help=argparse.SUPPRESS)
    add_processes(parser)


def add_split_arguments(parser: Parser) -> None:
    """Options of ``split``."""
    add_preset_options(parser)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files to split")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the samples")
    add_processes(parser)


def add_index_arguments(parser: Parser) -> None:
    """Options of ``index``."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the dataset")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: in the folder)")
    add_processes(parser, "threads")


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
    if args.paths:
        raise InputError(f"data verify takes no path ({args.paths[0]}); say where the dataset is with --data.root DIR")
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
    """Write the index of a folder; it is the same for all applications."""
    from staging.source.make_index import index_dataset

    print(index_dataset(args.folder, args.out, args.processes))
    return 0


SUBCOMMANDS = (
    Subcommand("simulate", "write a synthetic dataset", SIMULATE, add_simulate_arguments, simulate),
    Subcommand("inspect", "say what files hold", INSPECT, add_inspect_arguments, inspect, takes_settings=False),
    Subcommand("verify", "read every file and list each bad one", VERIFY, add_verify_arguments, verify),
    Subcommand("split", "cut files of many samples into samples", SPLIT, add_split_arguments, split),
    Subcommand("index", "list a dataset with checksums, for staging", INDEX, add_index_arguments, index,
               takes_settings=False),
)  # fmt: skip
run_with_overrides = run_subcommand
