"""``hpcbench characterize``: what a training demands of a machine, and what this machine delivers."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import find_application
from hpcbench.cli.arguments import resolve_arguments
from staging.errors import InputError
from staging.number_options import add_whole

if TYPE_CHECKING:
    from hpcbench.characterisation.model import Characterisation, MovedBytes
    from hpcbench.config.schema import RunConfig

HELP = "show what a training demands of a machine, beside this machine's roofs"
DESCRIPTION = """\
Count what a training step demands (operations, bytes, memory, input, messages), measure what
this machine delivers (products, memory, caches, storage, links, steps, every kernel alone), and
put both on one page. It works on a processor or any accelerator, on one rank or many, in minutes.

  hpcbench characterize cosmoflow --preset smoke
  hpcbench characterize deepcam --preset mlperf --counts-only --page deepcam.html
  hpcbench characterize cosmoflow --preset laptop --data.root data/cosmoflow \\
      --storage $SCRATCH --out laptop.json
  mpiexec -n 4 hpcbench characterize cosmoflow --preset laptop --out four-ranks.json
  hpcbench characterize --from four-ranks.json --page four-ranks.html --dlio four-ranks.yaml

The file (--out) is JSON, described in docs/characterisation.md. --from reads one instead of
measuring, to draw its page again, to export it, or to add the values of counters: --counters
takes the output of perf stat -x, of Nsight Compute and rocprof (CSV), and of darshan-parser.
"""
MOST_SECONDS = 24 * 3600.0
MOST_STEPS = 10**9


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
    parser.add_argument(
        "--seconds", type=seconds, default=60.0, help="time for steps and kernels together (default: 60)"
    )
    parser.add_argument("--storage", action="append", default=[], type=Path, metavar="DIR",
                        help="folder whose storage is probed; repeatable")  # fmt: skip
    parser.add_argument("--counts-only", action="store_true", help="count only, and measure nothing")
    parser.add_argument("--counters", action="append", default=[], type=Path, metavar="FILE",
                        help="output of perf, ncu, rocprof or darshan-parser; repeatable")  # fmt: skip
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
    if args.source is not None:
        from hpcbench.characterisation.file import read_characterisation

        characterisation = read_characterisation(args.source)
        return deliver(args, with_counters(args, characterisation))
    application = find_application(args.app)
    config = resolve_arguments(application, args, overrides, "train")
    out = args.out or Path(f"{application.name}-{config.preset}-characterisation.json")
    check_new(out)
    devices = config.parallel.devices
    from hpcbench.parallel.machine_limits import check_machine

    check_machine(config, starts_ranks="HPCBENCH_SPAWNED" not in os.environ)
    if devices is not None and devices > 1 and "HPCBENCH_SPAWNED" not in os.environ:
        from hpcbench.parallel.spawn import spawn

        return spawn(sys.argv[1:], devices, os.environ)
    args.out = out
    return measure(args, config)


def measure(args: argparse.Namespace, config: RunConfig) -> int:
    """Characterise on the ranks at hand; the first of them writes."""
    from hpcbench.characterisation.characterize import Wanted, characterize
    from hpcbench.train.ranks import connect_ranks
    from staging.ranks.launch import detect

    wanted = Wanted(args.seconds, tuple(args.storage), not args.counts_only)
    with connect_ranks(detect(os.environ), config) as ranks:
        characterisation = characterize(find_application(args.app), config, ranks, wanted)
        # All ranks end together: if the first cannot write, that is bad input for all.
        ranks.together(lambda: deliver(args, with_counters(args, characterisation)) if ranks.launch.rank == 0 else 0)
    return 0


def check(args: argparse.Namespace, overrides: dict[str, str]) -> None:
    """Raise ``InputError`` for options that do not go together, and for files that would be overwritten."""
    if (args.app is None) == (args.source is None):
        raise InputError("name an application, or a characterisation to read with --from FILE, and not both")
    if args.source is not None and overrides:
        raise InputError(f"--{next(iter(overrides))} is for a measurement; leave it out when --from reads a file")
    if args.counted_steps is not None and not args.counters:
        raise InputError("--counted-steps says what --counters cover; give --counters FILE with it, or leave it out")
    for path in (args.out, args.machine_out, args.hatchet, args.extra_p, args.dlio):
        if path is not None:
            check_new(path)
    for path in args.storage:
        if not path.is_dir():
            raise InputError(f"--storage {path} is no folder; name one that ranks may write to")
    read_counters(args)


def check_new(path: Path) -> None:
    """Raise ``InputError`` for a file that already exists."""
    if path.exists() and "HPCBENCH_SPAWNED" not in os.environ:
        raise InputError(f"{path} is there already; give another name, or remove it")


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
    """Write the files and the page, and print the tables."""
    from hpcbench.characterisation.exports import write_dlio, write_extra_p, write_hatchet
    from hpcbench.characterisation.file import write_characterisation
    from hpcbench.characterisation.machine_file import write_machine
    from hpcbench.characterisation.page import as_text, write_characterisation_page

    page = args.page or (args.out.with_suffix(".html") if args.out is not None else None)
    print(as_text(characterisation))
    if args.out is not None:
        write_characterisation(characterisation, args.out)
    if page is not None:
        write_characterisation_page(characterisation, page, shlex.join(["hpcbench", *sys.argv[1:]]))
    for path, write in ((args.machine_out, write_machine), (args.hatchet, write_hatchet),
                        (args.extra_p, write_extra_p), (args.dlio, write_dlio)):  # fmt: skip
        if path is not None:
            write(characterisation, path)
    written = [args.out, page, args.machine_out, args.hatchet, args.extra_p, args.dlio]
    print("\n" + "\n".join(f"Written: {path}" for path in written if path is not None))
    return 0
