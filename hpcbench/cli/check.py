"""``hpcbench check``: the official compliance checker, and rules that it does not look at."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.run_folders import ended_runs
from staging.errors import InputError

if TYPE_CHECKING:
    from hpcbench.measure.compliance import CheckResult

HELP = "check official logs against the MLPerf HPC rules"
DESCRIPTION = """\
Check the official logs (`:::MLLOG` lines) of runs, the suite's own or published ones.

  hpcbench check runs/cosmoflow-laptop-20260101-120000
  hpcbench check runs/* --ruleset 2.0.0
  hpcbench check results/my_system/strong/deepcam --division closed

Each log is read by the checker of the `mlperf_logging` package, then by further rules
that it does not look at: run_stop with success, epochs numbered from 1, times that never
go back, caches cleared before the clock, seeds, values that are not a number.

The column `official` says what the official checker found:
  pass           it accepts the log
  own target     it does, but for the published quality: this run, smaller than the
                 published problem and in the open division, reached its own target
  common rules   it does not know this application; the rules common to all hold
  fail           it rejects the log; the lines below the table say why

Pages of reports and runs that have not ended are left out.
Under 1.0.0 and 2.0.0, staging must lie inside the clock; 3.0.0 lets it come before.
Exit code 0: all logs pass. 1: a log fails. 2: bad input.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="RUN_DIR", help="run folder, log file, or folder of result_*.txt"
    )
    parser.add_argument("--division", help="open or closed (default: what the log names)")
    parser.add_argument("--ruleset", help="1.0.0, 2.0.0 or 3.0.0 (default: the run's own, else 3.0.0)")


def run(args: argparse.Namespace) -> int:
    """Check every log and print a table; exit code 1 when one fails."""
    from hpcbench.measure.compliance import check_log

    logs = [log for path in ended_runs(args.paths) for log in find_logs(path)]
    results = [check_log(log, args.division, args.ruleset or own_ruleset(log)) for log in logs]
    show(results)
    return 0 if all(result.ok for result in results) else 1


def find_logs(path: Path) -> list[Path]:
    """The logs that ``path`` names. Raises ``InputError`` when there is none."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise InputError(f"{path} does not exist; give a run folder or a log file")
    if (path / "mllog.txt").is_file():
        return [path / "mllog.txt"]
    if published := sorted(path.glob("result_*.txt")):
        return published
    raise InputError(f"{path} holds no mllog.txt and no result_*.txt; give a run folder or a log file")


def own_ruleset(log: Path) -> str:
    """The ruleset that the run of ``log`` followed, as its summary says; 3.0.0 where there is no summary."""
    from hpcbench.results.run_folder import RunFolder

    folder = RunFolder(log.parent)
    return folder.read_summary().ruleset if log == folder.mllog and folder.summary.exists() else "3.0.0"


def show(results: list[CheckResult]) -> None:
    """Print the table, and below it the faults and notes; logs with the same ones stand together."""
    from hpcbench.results.tables import table

    headers = ["log", "benchmark", "division", "ruleset", "official", "beyond it", "result"]
    print(table(headers, [row(result) for result in results]))
    alike: dict[tuple[str, ...], list[str]] = {}
    for result in results:
        alike.setdefault(details(result), []).append(label(result.path))
    for lines, names in alike.items():
        if lines:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print(f"\n{names[0]}{others}")
            for line in lines:
                print(textwrap.fill(line, 100, initial_indent="  ", subsequent_indent="    "))


def row(result: CheckResult) -> list[str]:
    """One log's line of the table."""
    faults = len(result.beyond_messages)
    beyond = f"{faults} fault{'s' if faults > 1 else ''}" if faults else "pass"
    names = [result.benchmark or "-", result.division or "-", result.ruleset]
    return [label(result.path), *names, result.official, beyond, "pass" if result.ok else "FAIL"]


def details(result: CheckResult) -> tuple[str, ...]:
    """Faults and notes of one log."""
    notes = list(result.notes)
    if result.official == "own target":
        notes.append("the published quality is not reached, but the target that the log names is (open division)")
    if result.official == "common rules":
        notes.append("the official checker does not know this benchmark; only its common rules were applied")
    return (*result.messages, *(f"note: {note}" for note in notes))


def label(path: Path) -> str:
    """The end of a log's path that tells it from others: the run folder, or the file in its folder."""
    name = path.absolute().parent.name if path.name == "mllog.txt" else f"{path.absolute().parent.name}/{path.name}"
    return name if len(name) <= 44 else "..." + name[-41:]
