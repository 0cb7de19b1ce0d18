"""``hpcbench predict``: how long a training takes on a machine, what limits it, and what would change it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from staging.errors import InputError
from staging.number_options import MOST_NODES, add_real, add_whole

DESCRIPTION = """\
Predict the time to solution of the published applications on a machine, size by size: its
parts, an 80 % interval, what limits it, and what would change it. Nothing is run.

  hpcbench predict cosmoflow --machine perlmutter-gpu --nodes 16,64,128,256
  hpcbench predict deepcam --machine eos --nodes 64 --batch 1024 --page prediction.html
  hpcbench predict deepcam --machine juwels-booster --nodes 32 --instances 22 --batch 128
  hpcbench predict cosmoflow deepcam --machine selene --nodes 16,32,64,128 --pool 256
  hpcbench predict 3xcosmoflow deepcam --machine selene --nodes 16,32,64 --pool 128
  hpcbench predict cosmoflow --machine selene --nodes 64 --interconnect

The model is fitted to the tuned code of MLPerf HPC v1.0 and v2.0 on A100; docs/prediction.md
has the formulas, and how far off the model was for sites that it had not seen.

  --batch     global batch. Without it each size gets the batch of the reference convergence
              points that is predicted to be fastest
  --recipe    reference: epochs of the reference point, and of published runs of that recipe;
              other: an interval from how much published recipes differ from the reference;
              FOLDER: epochs of your own runs there, such as a convergence study
  --calibrate runs on this machine (run folders, official logs): their step and staging times
              replace the model's, for all sizes
  --characterization  a file of `hpcbench characterize`: the device time is the sum over its
              kernels by the machine's peak and memory bandwidth, for your own code and size
  --probe     the probe.json of `hpcbench stage SRC DST --probe` on this machine (below DST): the
              staging is that of the plan of each size, at the rates of the probe
  --pool      the sizes that trainings of all APPs at once should have, on this many nodes;
              3xAPP, or APP three times, stands for three trainings, which may get different sizes

A part that the machine file does not determine becomes a named interval, or a refusal.
`hpcbench sites --machines` lists machines; your own files come first. --machine FILE.yaml takes any
other file, such as one that characterize has written (--machine-out).
Exit code 0: done. 2: bad input.
"""
MOST_INSTANCES = 100_000
MOST_TRAININGS = 1000
"""Of one application in a pool."""
COUNTED = re.compile(r"[0-9]{1,6}x.+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "apps", nargs="+", metavar="APP", help="cosmoflow, deepcam; with --pool several, such as 3xcosmoflow deepcam"
    )
    parser.add_argument("--machine", required=True, metavar="M", help="name or path (.yaml) of a machine file")
    parser.add_argument(
        "--nodes", required=True, type=sizes, metavar="N,N,...", help="nodes of a training; several with commas"
    )
    add_whole(parser, "--batch", 1, 10**9, "global batch, in samples", metavar="B")
    parser.add_argument("--recipe", default="reference", metavar="R", help="reference, other, or a folder of runs")
    parser.add_argument(
        "--software", choices=("v1.0", "v2.0"), default="v2.0", help="assume code as fast as that of this round"
    )
    add_whole(
        parser, "--instances", 1, MOST_INSTANCES, "trainings at once; the time is that of the last one", default=1
    )
    parser.add_argument("--staging", choices=("before", "first-epoch"), default="before", help="when the data arrive")
    add_real(
        parser, "--input-gb-s", 1e-3, 1e6, "GB/s at which a node brings samples to its accelerators; unset: an interval"
    )
    parser.add_argument("--calibrate", nargs="+", default=[], type=Path, metavar="RUN", help="runs on this machine")
    parser.add_argument(
        "--characterization", type=Path, metavar="FILE", help="device time from the kernels in this file"
    )
    parser.add_argument("--probe", type=Path, metavar="FILE", help="staging from its plan and this probe's rates")
    add_whole(parser, "--pool", 1, MOST_NODES, "nodes that the trainings of all APPs share")
    parser.add_argument("--interconnect", action="store_true", help="show what a slower interconnect would cost")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page with a plot of the parts")


def sizes(text: str) -> tuple[int, ...]:
    """Parse numbers of nodes separated by commas. Raises ``InputError`` for anything else."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--nodes {text[:40]} must be whole numbers with commas, such as 16,64,256") from None
    for nodes in counts:
        if not 1 <= nodes <= MOST_NODES:
            raise InputError(f"--nodes {nodes:,} must be from 1 to {MOST_NODES:,}")
    return tuple(sorted(set(counts)))


def trainings_of(words: Sequence[str]) -> dict[str, int]:
    """How many trainings there are of each application; ``3xcosmoflow`` is three.

    Raises ``InputError`` for none and for too many.
    """
    trainings: dict[str, int] = {}
    for word in words:
        count, _, name = word.partition("x") if COUNTED.fullmatch(word) else ("1", "", word)
        trainings[name] = trainings.get(name, 0) + int(count)
        if not 1 <= int(count) <= trainings[name] <= MOST_TRAININGS:
            raise InputError(f"{word[:40]}: trainings of {name} must be from 1 to {MOST_TRAININGS:,}")
    return trainings


def run(args: argparse.Namespace) -> int:
    """Predict and show."""
    trainings = trainings_of(args.apps)
    check(args, trainings)
    from hpcbench.batch.machine import find_machine, known_machines
    from hpcbench.batch.site import machine_folders
    from hpcbench.prediction.fitted import fit_published
    from hpcbench.prediction.predictions import Options, predictions
    from hpcbench.prediction.text import text_of
    from hpcbench.prediction.write import write_json, write_page

    folders = machine_folders()
    machine, machines = find_machine(args.machine, folders), known_machines(folders)
    options = Options(
        tuple(trainings), machine, args.nodes, args.batch, args.recipe, args.software, args.instances,
        args.staging == "before", args.input_gb_s, tuple(args.calibrate), args.pool, args.interconnect,
        args.characterization, args.probe, trainings,
    )  # fmt: skip
    predicted = predictions(options, fit_published(), machines)
    if args.out is not None:
        write_json(predicted, args.out)
    if args.page is not None:
        write_page(predicted, args.page)
    print(text_of(predicted))
    for path in (args.out, args.page):
        if path is not None:
            print(f"\nWritten: {path}")
    return 0


def check(args: argparse.Namespace, trainings: Mapping[str, int]) -> None:
    """Raise ``InputError`` for options that do not go together, and for output files that exist."""
    if sum(trainings.values()) > 1 and args.pool is None:
        raise InputError(f"several trainings ({', '.join(args.apps)}) share a pool; give its nodes with --pool N")
    for option, path, suffix in (("--out", args.out, ".json"), ("--page", args.page, ".html")):
        if path is None:
            continue
        if path.suffix != suffix:
            raise InputError(f"{option} {path} must end with {suffix}")
        if path.exists():
            raise InputError(f"{option} {path} exists; remove it, or give another name")
        if not path.absolute().parent.is_dir():
            raise InputError(f"{option} {path}: the folder {path.parent} does not exist")
