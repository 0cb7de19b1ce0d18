"""``hpcbench data``: simulate, inspect, verify, split and index datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.application import Application, find_application, installed
from hpcbench.cli.arguments import add_run_options, resolve_arguments
from hpcbench.config.schema import RunConfig
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError
from staging.number_options import MOST_PER_NODE, add_whole

HELP = "simulate, inspect, verify, split or index a dataset"
DESCRIPTION = """\
Datasets in the published on-disk formats.

  hpcbench data simulate cosmoflow --preset laptop --out data/cosmoflow
      writes synthetic but physical data, resumes where it stopped
  hpcbench data inspect data/cosmoflow
      says what a file holds, or the first file of each split of a folder
  hpcbench data verify data/cosmoflow
      reads every file in parallel and lists each bad one
  hpcbench data split cosmoflow --preset mlperf universes/*.hdf5 --out data/cosmoflow/train
"""
INDEX = """\
List any dataset with checksums in a file that staging reads.

  hpcbench data index data/cosmoflow
      lists any dataset with checksums in a file that staging reads (--out: another place)

Whose files inspect and verify are given, and in which form, they find out from the first ones.
An application may be named before the folder (`hpcbench data verify cosmoflow DIR`), and --preset,
--config or a setting says the form.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the actions."""
    parser.add_argument("action", choices=tuple(ACTIONS), metavar="|".join(ACTIONS))
    add_run_options(parser, "APP|DIR", "application, or a dataset to inspect, verify or index")
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="path",
        help="dataset to verify, files or folders to inspect, files to split",
    )
    parser.add_argument(
        "--out", type=Path, help="folder to write to: of the simulated dataset, or of the samples; file of an index"
    )
    add_whole(
        parser, "--processes", 1, MOST_PER_NODE, "worker processes, threads of an index (default: the allowed cores)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, or an accelerator such as cuda, to simulate on")


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Run one of the actions."""
    if args.action == "split" and not args.paths:
        raise InputError("data split: name the files to split")
    if args.action == "simulate" and args.paths:
        raise InputError(f"data simulate takes no path ({args.paths[0]}); say where to write with --out DIR")
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
    application, paths = application_and_paths(args, alone=False)
    if not paths:
        raise InputError("data inspect: name the files to inspect")
    from hpcbench.data.inspect import describe
    from hpcbench.data.recognize import recognize

    for path in paths:
        if application is None:
            found = recognize(path)
            print(f"{path}: {found}")
        print(describe(application or found.application, path))
    return 0


def verify(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Read every file; exit code 2 when one is bad."""
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
    """The application that the first word names, and the paths behind it; ``None`` where that word is a path, too.

    The name of an application that stands alone is a path where there is one, unless it is to be taken ``alone``.
    Raises ``InputError`` for a word that is neither.
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
    """Whose files to verify, and what they should be: as --preset, --config and settings say, else as found there."""
    from hpcbench.data.recognize import Recognized, form_of, recognize

    found: Recognized | None = None
    if application is None:
        root = Path(overrides["data.root"])
        if not root.is_dir():
            raise InputError(f"{root} is not a folder; name the folder of a dataset, or `hpcbench data inspect` a file")
        found = recognize(root)
        application = found.application
    config = resolve_arguments(application, args, overrides, "data")
    if args.preset or args.config or not config.data.root:
        return application, config
    found = found or Recognized(application, form_of(application, Path(config.data.root)))
    own = {f"data.{key}": value for key, value in found.form.items()}
    print(f"{config.data.root}: {found}")
    return application, resolve_arguments(application, args, own | overrides, "data")


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


ACTIONS = {"simulate": simulate, "inspect": inspect, "verify": verify, "split": split, "index": index}
