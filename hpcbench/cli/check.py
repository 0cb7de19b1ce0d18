"""``hpcbench check``: the verdicts of the official checkers, and notes on what they do not check."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.run_folders import ended_runs
from staging.errors import InputError
from staging.one_line import one_line

if TYPE_CHECKING:
    from hpcbench.mlperf.check_targets import Target
    from hpcbench.mlperf.verdicts import Verdict

DESCRIPTION = """\
Check official logs (`:::MLLOG` lines) and submissions, the suite's own or published ones.

  hpcbench check runs/cosmoflow-laptop-20260101-120000
  hpcbench check runs/* --ruleset 2.0.0
  hpcbench check results/my_system/strong/deepcam --division closed
  hpcbench check hpc_results_v2.0/MyCentre
  hpcbench check hpc_results_v1.0 hpc_results_v2.0

The verdict is that of the official tools, `mlperf_logging`:
  a log, a run folder    its compliance checker
  a folder of runs       its package checker: how many runs, at most one bad log, and in the
  (result_*.txt)         closed division seeds and epochs against the reference points
  an organization        its package checker for the whole tree, systems/ and results/
  a round, or several    the same for each organization

  pass          accepted
  FAIL          rejected, or the official tool crashes; the lines below the table say why
  own target    a run of the open division that reached its own target, not the published
                quality, and that the official checker rejects for nothing else
  common rules  an application that the official checker does not know keeps its rules for all
                applications
  no rules      round v0.7, for which there are no official HPC rules; --ruleset names some
  no runs       an organization without any log

A violation of rules that no official tool checks is a note, and never changes the verdict:
run_stop without success, epochs not numbered from 1, times that go backwards, throughput
without a time to train, instances of several sizes, and more.

The ruleset is --ruleset, else that of the round's folder (v1.0 or hpc_results_v1.0), else
the one in the run's summary, else 3.0.0. Under 1.0.0 and 2.0.0, staging must lie inside the
clock. Report pages and runs that have not ended are left out. Nothing is written.
Exit code 0: all pass, or keep the common rules. 1: something does not pass; own targets do
not. 2: bad input.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="run folder, log, folder of result_*.txt, or submission"
    )
    parser.add_argument("--division", help="open or closed, for logs and folders of runs (default: the one they name)")
    parser.add_argument("--ruleset", help="1.0.0, 2.0.0 or 3.0.0 (default: that of the round, or the run's own)")


def run(args: argparse.Namespace) -> int:
    """Check everything that the paths name and print tables; exit code 1 if something does not pass."""
    from hpcbench.mlperf.check_targets import targets_of
    from hpcbench.mlperf.compliance import DIVISIONS
    from hpcbench.mlperf.rulesets import check_ruleset
    from hpcbench.mlperf.verdicts import verdicts_on

    if args.ruleset is not None:
        check_ruleset(args.ruleset)
    if args.division not in (None, *DIVISIONS):
        raise InputError(f"division '{args.division}' is neither open nor closed")
    targets = [target for path in ended_runs(args.paths) for target in targets_of(path)]
    if args.division is not None and any(target.kind == "organization" for target in targets):
        raise InputError("--division is for logs and folders of runs; a submission's is in its system descriptions")
    refuse_special_files(targets)
    refuse_other_files(targets)
    refuse_mixtures(targets)
    verdicts = [verdict for target in targets for verdict in verdicts_on(target, args.ruleset, args.division)]
    show(verdicts)
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def refuse_special_files(targets: Sequence[Target]) -> None:
    """Raise ``DataError`` for a pipe, a socket or a device in the place of a file: the official tools would block."""
    from hpcbench.mlperf.official_score import log_files
    from staging.formats.regular import refuse_special

    for target in targets:
        if target.kind == "organization":
            for name in ("systems", "results"):
                refuse_special_below(target.path / name)
        else:
            for path in [target.path] if target.kind == "log" else log_files(target.path):
                refuse_special(path)


def refuse_special_below(folder: Path) -> None:
    """Raise ``DataError`` for anything below a folder that exists and is neither a file nor a folder."""
    from staging.formats.regular import refuse_special

    for above, _, names in os.walk(folder):
        for path in (Path(above) / name for name in names):
            if path.exists() and not path.is_file():
                refuse_special(path)


def refuse_other_files(targets: Sequence[Target]) -> None:
    """Raise ``InputError`` if all that is to be checked are files without a line of an official log."""
    from hpcbench.results.mllog_reader import MARK
    from staging.errors import DataError
    from staging.formats.regular import read_text

    def is_log(path: Path) -> bool:
        try:
            return MARK in read_text(path, encoding="latin-1")
        except OSError as error:
            raise DataError(path, f"cannot be read ({error.strerror})", "check its permissions") from None

    if any(target.kind != "log" or is_log(target.path) for target in targets):
        return
    line, advice = f"line of an official log ({MARK.strip()})", "give logs of MLPerf HPC"
    if len(targets) == 1:
        raise DataError(targets[0].path, f"holds no {line}", advice)
    raise InputError(f"none of {len(targets)} files holds a {line}, the first is {targets[0].path}; {advice}")


def refuse_mixtures(targets: Sequence[Target]) -> None:
    """Raise ``DataError`` for runs of several benchmarks or batches, on which the official tool crashes."""
    from hpcbench.mlperf.official_score import log_files
    from hpcbench.results.mllog_reader import read_events
    from staging.errors import DataError

    several = {"submission_benchmark": "benchmarks", "global_batch_size": "global batches"}
    for folder in (target.path for target in targets if target.kind == "folder"):
        first_log: dict[str, dict[str, str]] = {key: {} for key in several}
        for path in sorted(log_files(folder)):
            events, _ = read_events(path, lambda line: any(key in line for key in several))
            for event in events:
                if event.key in several:
                    first_log[event.key].setdefault(str(event.value), path.name)
        for key, values in first_log.items():
            if len(values) > 1:
                named = ", ".join(f"{value} ({name})" for value, name in list(values.items())[:3])
                fault = f"has runs of {len(values)} {several[key]}: {named}"
                raise DataError(folder, fault, "give runs of one benchmark and batch")


def show(verdicts: list[Verdict]) -> None:
    """Print a table of each kind, then the details; rows with the same details are grouped."""
    from hpcbench.mlperf.verdicts import COLUMNS
    from hpcbench.results.tables import table, tables_by

    tables = []
    for kind, columns in COLUMNS.items():
        rows = [verdict.cells for verdict in verdicts if verdict.kind == kind]
        if rows:
            right = ("notes", "logs", "bad", "folders", "failed")
            if kind == "folder":
                named = [dict(zip(columns, row, strict=True)) for row in rows]
                tables.append(tables_by(("benchmark", "mode"), named, right))
            else:
                tables.append(table(columns, rows, right))
    print("\n\n".join(tables))
    alike: dict[tuple[str, ...], list[str]] = {}
    for verdict in verdicts:
        alike.setdefault(verdict.details, []).append(verdict.name)
    for lines, names in alike.items():
        if lines:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print("\n" + textwrap.fill(one_line(f"{names[0]}{others}"), 100))
            for line in lines:
                print(textwrap.fill(one_line(line), 100, initial_indent="  ", subsequent_indent="    "))
    if any(verdict.assumed for verdict in verdicts):
        print("\nRuleset 3.0.0, where neither a round's folder nor a run's summary names one; see --ruleset.")
