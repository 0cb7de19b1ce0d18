"""``hpcbench characterize``: what a training demands of a machine, and what this machine delivers."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from hpcbench.application import find_application
from hpcbench.cli.arguments import resolve_arguments
from staging.errors import InputError
from staging.number_options import add_whole

if TYPE_CHECKING:
    from hpcbench.characterisation.model import Characterisation, MovedBytes
    from hpcbench.config.schema import RunConfig

DESCRIPTION = """\
Count what a training step demands (operations, bytes, memory, input, messages), measure what
this machine delivers (products, memory, caches, storage, links, steps, every kernel alone), and
put both on one page. It works on a processor or any accelerator, on one rank or many, in minutes.

  hpcbench characterize cosmoflow --preset smoke
  hpcbench characterize deepcam --preset mlperf --counts-only --page deepcam.html
  hpcbench characterize cosmoflow --preset laptop --data.root data/cosmoflow \\
      --storage $SCRATCH --out laptop.json
  mpiexec -n 4 hpcbench characterize cosmoflow --preset laptop --out four-ranks.json
  hpcbench characterize --from four-ranks.json --page again.html --dlio four-ranks.yaml

The file (--out) is JSON, described in docs/characterisation.md. --from reads one instead of
measuring, to draw its page again, to export it, or to add the values of counters: --counters
takes the output of perf stat -x, of Nsight Compute and rocprof (CSV), and of darshan-parser.
Its readers follow the documented formats. They were not tried on counters: perf's events
are those of Intel's memory controllers.
"""
DEFAULT_SECONDS, MOST_SECONDS = 60.0, 24 * 3600.0
MOST_STEPS = 10**9
MEASURING = ("preset", "config", "seconds", "storage", "counts_only")
"""Options that say what is measured."""
MEASURED = ("storage", "extra_p", "dlio")
"""Options that need something measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; dotted settings come on top."""
    parser.add_argument("app", metavar="APP", nargs="?", help="application; `hpcbench apps` lists them")
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings; repeatable"
    )
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="a characterisation to read "
                        "instead of measuring")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: "
                        "APP-PRESET-characterisation.json; none with --from)")  # fmt: skip
    parser.add_argument("--page", type=Path, metavar="FILE", help="page to write (default: beside the file)")
    parser.add_argument("--seconds", type=seconds, help="time for steps and kernels together (default: 60)")
    parser.add_argument("--storage", action="append", default=[], type=Path, metavar="DIR",
                        help="folder whose storage is probed; repeatable")  # fmt: skip
    parser.add_argument("--counts-only", action="store_true", help="count only, and measure nothing")
    parser.add_argument("--counters", action="append", default=[], type=Path, metavar="FILE",
                        help="output of perf, ncu, rocprof or darshan-parser; repeatable (readers "
                        "untried)")  # fmt: skip
    add_whole(parser, "--counted-steps", 1, MOST_STEPS, "optimizer steps that --counters cover")
    parser.add_argument("--machine-out", type=Path, metavar="FILE", help="write this machine's facts as a machine file")
    parser.add_argument("--hatchet", type=Path, metavar="FILE", help="write the kernels for Hatchet and Thicket (JSON)")
    parser.add_argument("--extra-p", type=Path, metavar="FILE", help="write the steps for Extra-P (JSON lines)")
    parser.add_argument("--dlio", type=Path, metavar="FILE", help="write the input as a DLIO workload (YAML)")


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"({text}) must be a number of seconds above 0 and at most {MOST_SECONDS:g}")
    return number


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Measure here, or read a file; then write what was asked for."""
    check(args, overrides)
    args.out_given = args.out is not None
    if args.source is not None:
        check_outputs(args)
        from hpcbench.characterisation.file import read_characterisation

        characterisation = read_characterisation(args.source)
        return deliver(args, with_counters(args, characterisation))
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "train")
    args.out = args.out or Path(f"{application.name}-{config.preset}-characterisation.json")
    check_outputs(args)
    devices = config.parallel.devices
    from hpcbench.parallel.machine_limits import check_machine

    check_machine(config, starts_ranks="HPCBENCH_SPAWNED" not in os.environ)
    if devices is not None and devices > 1 and "HPCBENCH_SPAWNED" not in os.environ:
        from hpcbench.parallel.spawn import spawn

        return spawn(sys.argv[1:], devices, os.environ)
    return measure(args, config)


def measure(args: argparse.Namespace, config: RunConfig) -> int:
    """Characterise on the ranks at hand; the first of them writes."""
    from hpcbench.characterisation.characterize import Wanted, characterize
    from hpcbench.train.ranks import connect_ranks
    from staging.ranks.launch import detect

    wanted = Wanted(args.seconds or DEFAULT_SECONDS, tuple(args.storage), not args.counts_only)
    with connect_ranks(detect(os.environ), config) as ranks:
        characterisation = characterize(find_application(args.app), config, ranks, wanted)
        # All ranks end together: if the first cannot write, that is bad input for all.
        ranks.together(lambda: deliver(args, with_counters(args, characterisation)) if ranks.launch.rank == 0 else 0)
    return 0


def check(args: argparse.Namespace, overrides: dict[str, str]) -> None:
    """Raise ``InputError`` for options that do not go together, and for input that is not there."""
    if (args.app is None) == (args.source is None):
        raise InputError("name an application, or a characterisation to read with --from FILE, and not both")
    if args.source is not None:
        for name in (*overrides, *(name for name in MEASURING if getattr(args, name))):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for a measurement; leave it out when --from reads a file")
    for name in MEASURED if args.counts_only else ():
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} needs a measurement, and --counts-only makes none; leave one of them out")
    if args.counted_steps is not None and not args.counters:
        raise InputError("--counted-steps says what --counters cover; give --counters FILE with it, or leave it out")
    for path in args.storage:
        if not path.is_dir():
            raise InputError(f"--storage {path} is no folder; name one that ranks may write to")
    read_counters(args)


def outputs(args: argparse.Namespace) -> dict[str, Path]:
    """What is written, by its option; the page lies beside the file if ``--page`` does not name it."""
    page = args.page or (args.out.with_suffix(".html") if args.out is not None and args.out.name else None)
    every = {"--out": args.out, "--page": page, "--machine-out": args.machine_out, "--hatchet": args.hatchet,
             "--extra-p": args.extra_p, "--dlio": args.dlio}  # fmt: skip
    return {option: path for option, path in every.items() if path is not None}


def check_outputs(args: argparse.Namespace) -> None:
    """Raise ``InputError`` for outputs that exist already, that share a name, or that cannot be written."""
    if "HPCBENCH_SPAWNED" in os.environ:
        return  # the process that started this one has checked, and its first rank may have begun to write
    options: dict[Path, str] = {}
    for option, path in outputs(args).items():
        given = args.out_given if option == "--out" else option != "--page" or args.page is not None
        check_new(option, path, f"{option} {path}" if given else f"{path} (the default of {option})")
        own = option if given else f"the default of {option}"
        other = options.setdefault(path.resolve(), own)
        if other != own:
            raise InputError(f"{other} and {own} are both {path}; give each a name of its own")


def check_new(option: str, path: Path, name: str) -> None:
    """Raise ``InputError`` for a file that exists already, and for one that its folder cannot take.

    The message begins with ``name``, which tells an option that was given from the default of one that was not.
    """
    try:
        if path.exists() or path.is_symlink():
            what = "is a folder; give the name of a file" if path.is_dir() else "is there already; give another name"
            raise InputError(f"{name} {what} with {option}, or remove it")
        with TemporaryFile(dir=next(folder for folder in path.absolute().parents if folder.exists())):
            pass
    except OSError as error:
        raise InputError(f"{name} cannot be written ({error.strerror}); give another name with {option}") from None


def with_counters(args: argparse.Namespace, characterisation: Characterisation) -> Characterisation:
    """The characterisation with the bytes that counters measured."""
    return replace(characterisation, moved=(*characterisation.moved, *read_counters(args)))


def read_counters(args: argparse.Namespace) -> list[MovedBytes]:
    """What the files of --counters hold. Raises ``InputError``."""
    if not args.counters:
        return []
    from hpcbench.characterisation.counters.read_moved import read_moved

    return [moved for path in args.counters for moved in read_moved(path, args.counted_steps)]


def deliver(args: argparse.Namespace, characterisation: Characterisation) -> int:
    """Write the files and the page, and print the tables and where each file is."""
    from hpcbench.characterisation.exports import write_dlio, write_extra_p, write_hatchet
    from hpcbench.characterisation.file import write_characterisation
    from hpcbench.characterisation.machine_file import write_machine
    from hpcbench.characterisation.page import as_text, write_characterisation_page

    command = shlex.join(["hpcbench", *sys.argv[1:]])
    writers: dict[str, Callable[[Characterisation, Path], Path]] = {
        "--out": write_characterisation,
        "--page": lambda written, path: write_characterisation_page(written, path, command),
        "--machine-out": write_machine, "--hatchet": write_hatchet, "--extra-p": write_extra_p, "--dlio": write_dlio,
    }  # fmt: skip
    print(as_text(characterisation))
    written = {path: writers[option](characterisation, path) for option, path in outputs(args).items()}
    print("\n" + "\n".join(written_line(path, found) for path, found in written.items()))
    return 0


def written_line(asked: Path, written: Path) -> str:
    """Where a file is; it has a number if another process made one of that name during the measurement."""
    return f"Written: {written}" + ("" if written == asked else f" ({asked} has come to exist and is left as it is)")
