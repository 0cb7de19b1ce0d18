"""``hpcbench results``: your own runs and those of published rounds as one table."""

from __future__ import annotations

import argparse
import os
import statistics
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.run_folders import is_of_a_report
from staging.one_line import one_line

if TYPE_CHECKING:
    from hpcbench.mlperf.entry import Entry
    from hpcbench.mlperf.run_record import RunRecord

DESCRIPTION = """\
Read run folders, official logs and whole rounds of MLPerf HPC, and make one table of runs.

  hpcbench results runs/*
  hpcbench results hpc_results_v1.0 hpc_results_v2.0 --out runs.csv
  hpcbench results hpc_results_v1.0/NVIDIA runs/mine --out runs.json --entries entries.csv
  hpcbench results --columns

The table has a row for each run: application, system, nodes, batch, recipe, seed, epochs,
quality, and the seconds of each phase. `--columns` says from which lines of the log each
column comes. A value that a log does not have is absent, never zero; if a log contradicts
itself, the column `notes` says so. On the screen the runs of a folder are one line.

Folders of a round are entries with two scores, in minutes. `score` is by the rules: time to
train is the mean without the fastest and the slowest run, and one failed run counts as the
slowest; throughput counts from the first start to the last stop. In the closed division epochs
are tested against the reference convergence points, and the score is normalised. `official` is
what `mlperf_logging` gives for the folder as it is; a line says why it differs, or that the
tool crashes. Rules that no official tool checks are checked too, each by its name; see
docs/results.md.

What was read from a log is kept in ~/.cache/hpcbench/logs.sqlite, and reused while the log has
the same size and modification time. Report pages among the paths are left out.
Exit code 0: done. 2: bad input.
"""
MINUTE_S = 60.0
MODELS = "models/min"
"""The column of throughput, shown where an entry has it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="run folder, log, or folder that contains any"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table: .csv, .json, or .parquet")
    parser.add_argument(
        "--entries", type=Path, metavar="FILE", help="write the entries and their scores, in the same formats"
    )
    parser.add_argument("--no-cache", action="store_true", help="read every log again, and cache nothing")
    parser.add_argument("--columns", action="store_true", help="list the columns with their sources and stop")


def run(args: argparse.Namespace) -> int:
    """Read, write and show."""
    from hpcbench.mlperf.entries import entries_of
    from hpcbench.mlperf.entries_table import entries_frame
    from hpcbench.mlperf.find_logs import find_runs
    from hpcbench.mlperf.log_cache import LogCache, cache_file
    from hpcbench.mlperf.read_runs import read_runs
    from hpcbench.mlperf.runs_table import runs_frame, writer
    from hpcbench.results.not_verified import NOT_VERIFIED
    from hpcbench.results.units import counted
    from staging.errors import InputError

    if args.columns:
        show_columns()
        return 0
    if not args.paths:
        raise InputError("give run folders, logs, or folders of a round; hpcbench results --help shows examples")
    if args.out is not None and args.entries is not None and args.out.resolve() == args.entries.resolve():
        raise InputError(f"--out and --entries are both {args.out}; give the table of entries another name")
    write = writer(args.out) if args.out is not None else None
    write_entries = writer(args.entries, "--entries") if args.entries is not None else None
    paths = [path for path in args.paths if not is_of_a_report(path)] or args.paths
    cache = None if args.no_cache else LogCache(cache_file())
    records = read_runs(find_runs(paths), processes=len(os.sched_getaffinity(0)), cache=cache, quiet=False)
    show(records)
    entries = entries_of(records, cache=cache)
    show_entries(entries)
    if not entries and any(record.origin != "published" and record.converged for record in records):
        print(f"\nMinutes are computed here from the logs. {NOT_VERIFIED}.")
    if write is not None:
        write(runs_frame(records))
        print(f"\n{counted(len(records), 'run')}: {args.out}")
    if write_entries is not None:
        write_entries(entries_frame(entries))
        print(f"\n{counted(len(entries), 'entry', 'entries')}: {args.entries}")
    return 0


def show_columns() -> None:
    """Print each column, its unit and its source."""
    from hpcbench.mlperf.runs_table import described_columns

    for name, unit, source in described_columns():
        head = f"{name} ({unit})" if unit else name
        print(textwrap.fill(source, 98, initial_indent=f"{head:36} ", subsequent_indent=" " * 37))


def show(records: list[RunRecord]) -> None:
    """Print a line for the runs of each folder, and their notes."""
    from hpcbench.results.tables import table

    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        place = record.path if record.origin == "own" else str(Path(record.path).parent)
        groups.setdefault((place, record.application or "-", record.mode or "-"), []).append(record)
    headers = ["round", "system", "application", "runs", "ok", "accel.", "batch", "epochs", "minutes"]
    print(table(headers, [line(group) for group in groups.values()], right=headers[3:]))
    told: dict[str, list[str]] = {}
    for record in records:
        for note in [*record.notes, *([record.reason] if record.reason else [])]:
            told.setdefault(note, []).append(record.path)
    for note, paths in told.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        print(textwrap.fill(one_line(f"{paths[0]}{more}: {note}"), 98, initial_indent="\n", subsequent_indent="  "))


def line(group: list[RunRecord]) -> list[str]:
    """The cells of the runs of a folder; epochs and minutes are medians of those that succeeded."""
    first = group[0]
    good = [record for record in group if record.converged]
    epochs = [record.epochs for record in good if record.epochs is not None]
    minutes = [record.time_to_train_s / MINUTE_S for record in good if record.time_to_train_s is not None]
    return [
        first.round if first.round and first.origin == "published" else first.origin,
        first.system or "-", first.application or "-", str(len(group)), str(len(good)),
        known(first.accelerators), known(first.global_batch_size),
        f"{statistics.median(epochs):g}" if epochs else "-", f"{statistics.median(minutes):.2f}" if minutes else "-",
    ]  # fmt: skip


def known(number: int | None) -> str:
    """A number, or a dash if it is not known."""
    return "-" if number is None else f"{number:,}"


def show_entries(entries: list[Entry]) -> None:
    """Print the score of each entry, and why one has none or breaks a rule."""
    from hpcbench.results.not_verified import NOT_VERIFIED
    from hpcbench.results.tables import tables_by

    if not entries:
        return
    rows = [entry_cells(entry) for entry in entries]
    right = ("score", "official", MODELS)
    print(f"\n{tables_by(('application', 'mode'), rows, right, optional=(MODELS,))}\n")
    for entry in entries:
        for text in [*entry.faults, *entry.notes]:
            print(textwrap.fill(one_line(f"{place(entry)}: {text}"), 98, subsequent_indent="  "))
    print(f"\nScores are computed here from the logs. {NOT_VERIFIED}.")


def entry_cells(entry: Entry) -> dict[str, str]:
    """The cells of an entry by their headers."""
    first = entry.first
    return {
        "round": f"{first.round or '-'} {first.division or ''}".strip(), "organization": first.organization or "-",
        "system": first.system or "-", "application": first.application or "-", "mode": first.mode or "-",
        "score": minutes(entry.score_min), "official": official_cell(entry),
        MODELS: "-" if entry.models_per_min is None else f"{entry.models_per_min:.4g}",
        "rules": "broken" if entry.faults else "kept",
    }  # fmt: skip


def minutes(value: float | None) -> str:
    """Minutes, or a dash; rounded to 1e-6 first, so that equal scores look equal."""
    return "-" if value is None else f"{round(value, 6) + 1e-9:.3f}"


def official_cell(entry: Entry) -> str:
    """The official score, or the word ``crash``."""
    if entry.official is None:
        return "-"
    return "crash" if entry.official.crash is not None else minutes(entry.official.minutes)


def place(entry: Entry) -> str:
    """An entry in words."""
    first = entry.first
    return " ".join(part for part in (first.round, first.organization, first.system, first.application) if part)
