"""``hpcbench project``: the expected score of a submission, before machine time is spent on it."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from staging.errors import InputError
from staging.number_options import add_real

DESCRIPTION = """\
Project the time to train that a submission would score: known epochs x the rate that your own
runs measured at that size, plus the other time that a run takes, with an interval.

  hpcbench project runs/short-1 runs/short-2
  hpcbench project runs/short-1 --epochs 22 23 23 25

The runs may be short (--train.max_steps 200), but must have the nodes and the global batch of
the submission, on real nodes and ranks, with samples of the published shape. Runs that did not end
are left out, each with a line. Epochs are those of the reference convergence point at this batch,
or between two such points, times the ratios of published entries to the reference: of those with
its recipe if your runs have it, else of those with another recipe. --epochs gives your own: a
number for each run that reached the published quality.

The interval holds 90 % of simulated submissions: epochs are drawn from the known ones, rates
around the measured ones with their spread and that of published submissions, 2.4 %. The scatter of
epochs of your own is pooled with that of published seeds, which stands alone where you give one.
Runs of two epochs or more show how much longer the first one takes; without them the projection
omits this.

Exit code 0: done. 2: bad input.
"""
FEWEST, MOST = 1e-3, 1e6  # epochs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders of one size and batch")
    add_real(parser, "--epochs", FEWEST, MOST, "epochs that your own runs took to the quality", nargs="+", metavar="N")


def run(args: argparse.Namespace) -> int:
    """Read the runs, project, and say how."""
    from hpcbench.mlperf.convergence_check import RUNS
    from hpcbench.prediction.epochs import fit_spreads
    from hpcbench.results.not_verified import NOT_VERIFIED
    from hpcbench.submission.measured_costs import read_costs
    from hpcbench.submission.projection import interval_words, own_known_epochs, project, reference_epochs
    from hpcbench.submission.published_ratios import (
        is_reference_recipe,
        on_another_system,
        published_entries,
        ratios_of,
    )  # fmt: skip

    measured = read_costs(args.runs)
    application, ruleset, batch = measured.application, measured.ruleset, measured.batch
    try:
        known, reference = reference_epochs(application, ruleset, batch)
    except InputError:
        if args.epochs is None:
            raise
        known, reference = None, None
    if args.epochs is not None:
        known = own_known_epochs(args.epochs, fit_spreads(published_entries()).seeds)
    else:
        assert known is not None
        of_reference = is_reference_recipe(application, ruleset, batch, measured.recipe)
        known = on_another_system(known, ratios_of(published_entries(), of_reference), of_reference)
    projection = project(known, measured.costs, RUNS[application], reference if measured.division == "closed" else None)
    for line in filter(None, (*measured.left_out, measured.smaller_set)):
        print(textwrap.fill(line, 98, subsequent_indent="  "))
    print(f"{textwrap.fill(measured.words, 98, subsequent_indent='  ')}\n")
    for line in interval_words(projection, known):
        print(textwrap.fill(line, 98, subsequent_indent="  "))
    print(f"\nA projection, and no result. {NOT_VERIFIED}.")
    return 0
