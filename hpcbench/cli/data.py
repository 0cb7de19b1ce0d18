"""``hpcbench data``: simulate, inspect, verify, split and index datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.application import Application, find_application, installed
from hpcbench.cli.arguments import (
    Parser,
    Subcommand,
    add_preset_options,
    add_run_options,
    resolve_arguments,
    run_subcommand,
)
from hpcbench.config.schema import RunConfig
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError
from staging.number_options import MOST_PER_NODE, add_whole

DESCRIPTION = """\
Simulate, inspect, verify, split or index datasets in the published on-disk formats.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
  hpcbench data verify data/cosmoflow

`hpcbench data COMMAND --help` shows the options of a command, with an example.
"""
SIMULATE = """\
Write synthetic but physical data in the published format. A repeated call continues where the
last one stopped.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow

Dotted settings such as --simulate.seed 7 come on top of the preset's.
"""
INSPECT = """\
Say what files hold, or the first file of each split of a folder.

  hpcbench data inspect data/cosmoflow

The application is recognized from the first files; you may also name it before the paths.
"""
VERIFY = """\
Read every file of a dataset in parallel and list each bad one; exit code 2 if there is one.

  hpcbench data verify data/cosmoflow
  hpcbench data verify cosmoflow data/cosmoflow --preset laptop

The application and the form of the data are recognized from the first files. You may also name
the application before the folder, and give the form with --preset, --config or a setting.
"""
SPLIT = """\
Cut files that hold many samples, such as a whole universe, into samples.

  hpcbench data split cosmoflow --preset mlperf universes/*.hdf5 --out data/cosmoflow/train
"""
INDEX = """\
List the files of any dataset, with checksums, in a file that staging reads.

  hpcbench data index data/cosmoflow
"""


def add_arguments(parser: Parser) -> None:
    """The subcommands."""
    parser.add_subcommands(SUBCOMMANDS)


def add_processes(parser: Parser, what: str = "worker processes") -> None:
    """Add the option for how many workers run at once."""
    add_whole(parser, "--processes", 1, MOST_PER_NODE, f"{what} (default: the allowed cores)")


def add_simulate_arguments(parser: Parser) -> None:
    """Options of ``simulate``."""
    add_run_options(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the dataset")
    add_processes(parser)
    parser.add_argument("--device", default="cpu", help="device to simulate on: cpu, or an accelerator such as cuda")


def add_inspect_arguments(parser: Parser) -> None:
    """Options of ``inspect``."""
    parser.add_argument("app", metavar="APP|PATH", help="application, or the first path")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders")


def add_verify_arguments(parser: Parser) -> None:
    """Options of ``verify``."""
    add_run_options(parser, "APP|DIR", "application, or the dataset")
    parser.add_argument("paths", nargs="*", type=Path, metavar="DIR", help="the dataset")
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
    application, paths = application_and_paths(args, alone=False)
    if not paths:
        raise InputError("data inspect: name the files to inspect")
    from hpcbench.data.inspect import describe
    from hpcbench.data.recognize import recognize

    for path in paths:
        if application is None:
            recognized = recognize(path)
            print(f"{path}: {recognized}")
        print(describe(application or recognized.application, path))
    return 0


def verify(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Read every file; exit code 2 if one is bad."""
    application, paths = application_and_paths(args, alone=bool(args.config) or "data.root" in overrides)
    if len(paths) > 1:
        raise InputError(f"data verify takes one dataset, not {paths[1]} as well; verify one after the other")
    if paths and "data.root" in overrides:
        raise InputError(f"data verify: {paths[0]} and --data.root {overrides['data.root']} are two; name one")
    if paths:
        overrides = overrides | {"data.root": str(paths[0])}
    application, config = form_to_verify(application, args, overrides)
    from hpcbench.data.verify import verify_dataset

    bad = verify_dataset(application, config, args.processes)
    for line in bad:
        print(line)
    return 2 if bad else 0


def application_and_paths(args: argparse.Namespace, alone: bool) -> tuple[Application | None, list[Path]]:
    """The application that the first word names, and the paths after it; ``None`` if that word is a path itself.

    The name of an application without paths is taken as a path if that path exists, unless ``alone`` is set. Raises
    ``InputError`` for a word that is neither.
    """
    here = Path(args.app)
    if args.app in installed() and (alone or args.paths or not here.exists()):
        return find_application(args.app), args.paths
    if not here.exists():
        if len(here.parts) > 1:
            raise InputError(f"{here} does not exist; name a file or folder of a dataset")
        near = suggest(args.app, list(installed()))
        raise InputError(f"unknown application '{shown(args.app)}', and no such file or folder; {near}")
    return None, [here, *args.paths]


def form_to_verify(
    application: Application | None, args: argparse.Namespace, overrides: dict[str, str]
) -> tuple[Application, RunConfig]:
    """The application whose files to verify, and their form: from --preset, --config and settings, else as found."""
    from hpcbench.data.recognize import Recognized, form_of, recognize

    recognized: Recognized | None = None
    if application is None:
        root = Path(overrides["data.root"])
        if not root.is_dir():
            raise InputError(f"{root} is not a folder; name the folder of a dataset, or `hpcbench data inspect` a file")
        recognized = recognize(root)
        application = recognized.application
    config = resolve_arguments(application, args, overrides, "data")
    if args.preset or args.config or not config.data.root:
        return application, config
    recognized = recognized or Recognized(application, form_of(application, Path(config.data.root)))
    form_settings = {f"data.{key}": value for key, value in recognized.form.items()}
    print(f"{config.data.root}: {recognized}")
    return application, resolve_arguments(application, args, form_settings | overrides, "data")


def split(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Cut files that hold many samples each into samples."""
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "data")
    from hpcbench.data.split import cut_files
    from hpcbench.results.units import counted

    samples = cut_files(application, config, args.paths, args.out, args.processes)
    print(f"{args.out}: {counted(samples, 'sample')}")
    return 0


def index(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Write the index of a folder; its format is the same for all applications."""
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
