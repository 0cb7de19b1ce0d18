"""``hpcbench report``: pages with the plots and numbers of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.cli.run_folders import ended_runs

HELP = "write pages with plots and numbers of runs"
DESCRIPTION = """\
Write a page into each run folder: whether the target was reached, how fast, how good
beside the baselines, where the time went, and how to repeat it. One HTML file without
scripts or links to the outside, fit for mail and paper. Several runs are also compared.

  hpcbench report runs/cosmoflow-laptop-20260314-092653
  hpcbench report runs/* --out comparison.html      compare runs of any size and seed
  hpcbench report runs/* --png                      plots as PNG files beside each page

Pages of earlier reports and runs that have not ended are left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the report."""
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR", help="folder of a run")
    parser.add_argument("--out", type=Path, metavar="FILE", help="page of the comparison, or of a single run")
    parser.add_argument("--png", action="store_true", help="also write every plot to figures/ beside its page")


def run(args: argparse.Namespace) -> int:
    """Write the pages, print the table of the runs and where the pages are."""
    from hpcbench.results.records import load_runs
    from hpcbench.results.report import write_report
    from hpcbench.results.tables import runs_table

    folders = ended_runs(args.run_dirs)
    pages = write_report(folders, args.out, args.png)
    print(f"{runs_table(load_runs(folders))}\n")
    for page in pages:
        print(f"report: {page}")
    return 0
