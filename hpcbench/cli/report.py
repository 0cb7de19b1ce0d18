"""``hpcbench report``: pages with the plots and numbers of runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hpcbench.cli.run_folders import ended_runs
from staging.errors import InputError

DESCRIPTION = """\
Write a page into each run folder: whether the target was reached, how fast, how good
compared with the baselines, where the time went, and how to repeat it. A page is one HTML
file without scripts or external links, fit for mail and print. Several runs are also compared.

  hpcbench report runs/cosmoflow-laptop-20260314-092653
  hpcbench report runs/* --out comparison.html      compare runs of any size and seed
  hpcbench report runs/* --png                      plots as PNG files beside each page
  hpcbench report runs/* --beside published         beside results of Fugaku, Perlmutter, Selene

Pages of earlier reports and runs that have not ended are left out. Published results are those
of MLPerf HPC v0.7 to v2.0 that come with the suite, the fastest of each machine in each size
class; the pages say what a run does differently.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the report."""
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR", help="folder of a run")
    parser.add_argument("--out", type=Path, metavar="FILE", help="page of the comparison, or of a single run")
    parser.add_argument("--beside", choices=("published",), help="show published results of MLPerf HPC beside the runs")
    parser.add_argument("--png", action="store_true", help="also write every plot to figures/ beside its page")


def run(args: argparse.Namespace) -> int:
    """Write the pages; print the table of the runs and where the pages are."""
    from hpcbench.results.not_verified import NOT_VERIFIED
    from hpcbench.results.records import load_runs
    from hpcbench.results.report import write_report
    from hpcbench.results.tables import runs_table

    folders = ended_runs(args.run_dirs)
    if args.beside is not None:
        from hpcbench.mlperf.beside_published import beside_published

        check_published(folders)
        pages = write_report(folders, args.out, args.png, beside_published, tell=to_stderr)
    else:
        pages = write_report(folders, args.out, args.png, tell=to_stderr)
    print(f"{runs_table(load_runs(folders))}\n{NOT_VERIFIED}.\n")
    if args.beside is not None:
        print_beside(folders)
    for page in pages:
        print(f"report: {page}")
    return 0


def to_stderr(line: str) -> None:
    """Print a line beside the results."""
    print(line, file=sys.stderr)


def check_published(folders: list[Path]) -> None:
    """Raise ``InputError`` if no run is of an application with published results."""
    from hpcbench.mlperf.published import published_applications
    from hpcbench.results.records import read_summary

    applications = {read_summary(folder).summary.application for folder in folders}
    known = published_applications()
    if not applications & set(known):
        raise InputError(
            f"--beside published: there are no published results of {', '.join(sorted(applications))}; "
            f"those that there are, are of {', '.join(known)}"
        )


def print_beside(folders: list[Path]) -> None:
    """Print for each application its runs and the published entries, with what the runs do differently."""
    from hpcbench.mlperf.beside_published import beside_published
    from hpcbench.results.beside import beside_text
    from hpcbench.results.compare import run_names
    from hpcbench.results.records import read_summary

    runs = [read_summary(folder) for folder in folders]
    named = dict(zip(run_names(runs) if len(runs) > 1 else ["this run"], runs, strict=True))
    for application in dict.fromkeys(run.summary.application for run in runs):
        members = {name: run for name, run in named.items() if run.summary.application == application}
        beside = beside_published(members, draw=False)
        if beside is not None:
            print(f"{application} beside published results of MLPerf HPC\n\n{beside_text(beside)}\n")
