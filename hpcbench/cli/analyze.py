"""``hpcbench analyze``: why one system is faster than another."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.run_folders import is_of_a_report
from staging.one_line import one_line

if TYPE_CHECKING:
    from hpcbench.analysis.analysis import Analysis
    from hpcbench.analysis.ranking import Ranking
    from hpcbench.batch.machine import Machine
    from hpcbench.mlperf.find_logs import LogLocation
    from hpcbench.mlperf.run_record import RunRecord

DESCRIPTION = """\
Compare systems by their runs, your own and published ones, and write a page that explains why
one is faster: epochs, rate per accelerator, number of accelerators, evaluation, staging.

  hpcbench analyze --published
  hpcbench analyze runs/* --published --machine perlmutter-gpu --out mine
  hpcbench analyze hpc_results_v1.0 hpc_results_v2.0 --out rounds
  hpcbench analyze --published --application deepcam --base "selene v1.0" --out selene

The ratio of two times splits exactly into factors. Entries are ranked by application and
mode. Each is compared with the best, or with `--base`: the name of an entry, or words from
that name or from the name of its machine. If several entries match, the best is taken.
Single logs and run folders are entries of no round. `hpcbench sites --machines` lists
machines. Report pages among the paths are left out.

The folder of `--out` gets analysis.html, the plots as PNG and SVG in figures, and all numbers
as CSV in tables. Parsed logs and finished analyses are cached in $XDG_CACHE_HOME/hpcbench, else
in ~/.cache/hpcbench; the same command on the same logs copies its earlier result.
Exit code 0: done. 2: bad input.
"""
MOST_LINES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="run folder, log, or folder that contains any"
    )
    parser.add_argument("--published", action="store_true", help="add the shipped records of published rounds")
    parser.add_argument("--base", metavar="ENTRY", help="compare with this entry (default: the best on the usual set)")
    parser.add_argument("--against", metavar="ENTRY", help="draw the steps from the base to this entry")
    parser.add_argument("--application", metavar="APP", help="only this one: cosmoflow, deepcam, ...")
    parser.add_argument(
        "--machine", metavar="NAME", help="machine of your own runs: hpcbench sites --machines, or a file"
    )
    parser.add_argument("--no-cache", action="store_true", help="read every log, draw every plot, and cache nothing")
    parser.add_argument(
        "--out", type=Path, default=Path("analysis"), metavar="FOLDER", help="a new folder (default: analysis)"
    )


def run(args: argparse.Namespace) -> int:
    """Read, analyze, write and show; or copy an analysis that was made before."""
    from hpcbench.analysis.analysis_cache import AnalysisCache, analyses_folder, analysis_key
    from hpcbench.analysis.analysis_files import check_out
    from hpcbench.batch.site import machine_folders
    from staging.errors import InputError

    if not args.paths and not args.published:
        raise InputError("give run folders, logs, or folders of a round, or --published; --help shows examples")
    check_out(args.out)
    machine = named_machine(args.machine)
    locations = find(args.paths)
    asked = (args.published, args.base, args.against, args.application, machine and asdict(machine))
    cache = None if args.no_cache else AnalysisCache(analyses_folder())
    key = None if cache is None else analysis_key(locations, asked, machine_folders())
    made_before = None if cache is None or key is None else cache.get(key)
    if made_before is not None:
        page, text = made_before.write(args.out), made_before.printed
    else:
        records = read(locations, not args.no_cache)
        page, text = make(args, records, machine)
        if cache is not None and key is not None and all(record.start_unix_s is not None for record in records):
            cache.put(key, args.out, text)
    print(f"{text}\n\nanalysis: {page}")
    return 0


def make(args: argparse.Namespace, records: list[RunRecord], machine: Machine | None) -> tuple[Path, str]:
    """Analyze runs, and the shipped ones if asked, and write the analysis; return its page and what to print."""
    from hpcbench.analysis.analysis import Question, analyze
    from hpcbench.analysis.write_analysis import write_analysis
    from hpcbench.batch.machine import known_machines
    from hpcbench.batch.site import machine_folders
    from hpcbench.mlperf.published import published_runs

    question = Question(args.base, args.against, args.application, machine)
    shipped = published_runs() if args.published else []
    analysis = analyze([*records, *shipped], known_machines(machine_folders()), question)
    return write_analysis(analysis, args.out), printed(analysis)


def named_machine(name: str | None) -> Machine | None:
    """The machine called ``name``; ``None`` without a name. Raises ``InputError`` if it is unknown."""
    from hpcbench.batch.machine import find_machine
    from hpcbench.batch.site import machine_folders

    return None if name is None else find_machine(name, machine_folders())


def find(paths: list[Path]) -> list[LogLocation]:
    """Find the runs below ``paths``; folders of reports are left out, unless there is nothing else."""
    from hpcbench.mlperf.find_logs import find_runs

    return find_runs([path for path in paths if not is_of_a_report(path)] or paths) if paths else []


def read(locations: Sequence[LogLocation], cached: bool) -> list[RunRecord]:
    """Read the records of runs."""
    from hpcbench.mlperf.log_cache import LogCache, cache_file
    from hpcbench.mlperf.read_runs import read_runs

    cache = LogCache(cache_file()) if cached else None
    cores = len(os.sched_getaffinity(0))
    return read_runs(locations, processes=cores, cache=cache, quiet=False) if locations else []


def printed(analysis: Analysis) -> str:
    """The rankings and the findings as plain text."""
    from hpcbench.analysis.write_analysis import summary
    from hpcbench.application_names import application_name
    from hpcbench.results.not_verified import NOT_VERIFIED

    rankings = [
        f"{application_name(ranking.application)}, {ranking.mode}\n{ranking_table(analysis, ranking)}\n"
        for ranking in analysis.rankings
    ]
    sentences = [
        textwrap.fill(one_line(sentence), 98, subsequent_indent="  ") for sentence in summary(analysis, pairs=True)
    ]
    sentences += [
        textwrap.fill(
            one_line(f"{entry.name} ({application_name(entry.key[0])}) is left out: {entry.why_not}."), 98,
            subsequent_indent="  ",
        )
        for entry in analysis.entries if entry.why_not is not None
    ]  # fmt: skip
    sentences += [
        textwrap.fill(one_line(f"{entry.name} ({application_name(entry.key[0])}): {note}."), 98, subsequent_indent="  ")
        for entry in analysis.entries if entry.is_own for note in entry.notes
    ]  # fmt: skip
    own = [f"\nEntries of no round: {NOT_VERIFIED}."] if analysis.has_own_entries else []
    return "\n".join([*rankings, *sentences, *own])


def ranking_table(analysis: Analysis, ranking: Ranking) -> str:
    """The first lines of a ranking as plain text."""
    from hpcbench.analysis.ranking import ranking_rows
    from hpcbench.results import units
    from hpcbench.results.tables import table

    rows = ranking_rows(ranking)
    score = "models/min" if ranking.mode == "throughput" else "minutes"
    headers = ["", "entry", "batch", score, "epochs", "s/epoch", "samples/s/acc.", "staging", "compares"]
    cells = [
        [str(row.place), analysis.labels[ranking.application, row.entry], units.integer(row.batch),
         units.significant(row.models_per_min if ranking.mode == "throughput" else row.minutes),
         units.significant(row.epochs), units.significant(row.epoch_s), units.significant(row.rate),
         units.percent(row.staging_share), row.compares.split(":")[0]]
        for row in rows[:MOST_LINES]
    ]  # fmt: skip
    more = f"\nand {len(rows) - MOST_LINES} more, on the page" if len(rows) > MOST_LINES else ""
    return table(headers, cells, right=[head for head in headers if head not in ("entry", "compares")]) + more
