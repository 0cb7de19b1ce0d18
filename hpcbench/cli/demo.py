"""``hpcbench demo``: the whole workflow on this machine, both applications from data to report."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from hpcbench.application import applications, find_application
from hpcbench.config.schema import LARGEST_SEED
from hpcbench.exits import DONE
from staging.number_options import add_whole

DESCRIPTION = """\
Run the whole workflow at laptop size: for each application, simulate a dataset in the
published format, stage it, train to the target, and write a report page.

  hpcbench demo                       both applications, in five to seven minutes on two cores
  hpcbench demo --preset smoke        the same in a minute, to see that everything works
  hpcbench demo --app cosmoflow       one application

Datasets are kept in --out and reused; every call makes new run folders beside them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the demo."""
    parser.add_argument("--app", action="append", metavar="APP", help="only this application; may be repeated")
    parser.add_argument("--preset", default="laptop", help="size of the job (default: laptop)")
    parser.add_argument("--out", type=Path, default=Path("hpcbench-demo"), help="folder for data and runs")
    add_whole(parser, "--seed", 0, LARGEST_SEED, "seed of the training runs (default: 1)", default=1)


def run(args: argparse.Namespace) -> int:
    """Run the workflow; the exit code is the worst of its parts."""
    chosen = [find_application(name) for name in args.app] if args.app else list(applications().values())
    published = [application for application in chosen if args.app or application.package.startswith("apps.")]
    started = time.monotonic()
    worst, folders = DONE, []
    for application in published:
        code, folder = demonstrate(application.name, args.preset, args.out, args.seed)
        worst = max(worst, code)
        if folder is not None:
            folders.append(folder)
    if folders:
        finish(folders, time.monotonic() - started)
    return worst


def demonstrate(app: str, preset: str, out: Path, seed: int) -> tuple[int, Path | None]:
    """Run the commands of one application, shown as a user would type them.

    Returns the exit code, and the run folder if the run left a summary.
    """
    from hpcbench.results.run_folder import default_path

    data = out / "data" / f"{app}-{preset}"
    folder = default_path(app, preset, out / "runs")
    code = command("data", "simulate", app, "--preset", preset, "--out", str(data))
    if code == DONE:
        staged = out / "staged" / f"{app}-{preset}"
        where = ["--data.root", str(data), "--staging.destination", str(staged), "--run-dir", str(folder)]
        code = command("train", app, "--preset", preset, *where, "--seed", str(seed))
    return code, folder if (folder / "summary.json").exists() else None


def command(*words: str) -> int:
    """Print a command of the suite and run it; returns its exit code."""
    print("\n$ hpcbench " + " ".join(words), flush=True)
    return subprocess.run([sys.executable, "-m", "hpcbench", *words], check=False).returncode


def finish(folders: list[Path], seconds: float) -> None:
    """Print the table of the runs, and where their pages are."""
    from hpcbench.results.not_verified import NOT_VERIFIED
    from hpcbench.results.records import load_runs
    from hpcbench.results.tables import runs_table

    print(f"\n{runs_table(load_runs(folders))}\n{NOT_VERIFIED}.\n")
    for page in (folder / "report.html" for folder in folders):
        if page.exists():
            print(f"report: {page}")
    print(f"done in {seconds:.0f} s")
