"""``hpcbench package``: the tree of an MLPerf HPC submission, checked by the official tools."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from staging.errors import InputError

if TYPE_CHECKING:
    from hpcbench.submission.findings import Finding
    from hpcbench.submission.package import Package
    from hpcbench.submission.submitted_runs import SubmittedRun

DESCRIPTION = """\
Build the tree of a submission from run folders or studies, and run the official checkers on it.

  hpcbench package LAB runs/* --write-facts lab.yaml      what only people know, to fill in
  hpcbench package LAB runs/* --facts lab.yaml --system mymachine
  hpcbench package LAB runs/* --throughput studies/models --facts lab.yaml --out submissions/v3.0

Runs make a score for time to train: 10 of CosmoFlow, 5 of DeepCAM, of one size and recipe, each
with its own seed. Of more runs the rules take the consecutive ones whose score is the median. Runs
after --throughput are instances that trained side by side; those that did not converge are pruned.

The folder OUT/LAB gets systems, results, and, below benchmarks, code and settings. User names,
host names and paths are removed. Nothing is overwritten, and a call that fails leaves nothing.

The command then says what is missing, and which command makes it. Below that are the messages of
the official package checker and repository checker.

Exit code 0: submittable. 1: built, but something is missing or a checker objects. 2: bad input.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("organization", metavar="ORG", help="who submits: the name of the tree's folder")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folder, or a study, for time to train")
    parser.add_argument("--throughput", nargs="+", action="extend", default=[], type=Path, metavar="RUN",
                        help="run folders or a study of instances that trained side by side")  # fmt: skip
    parser.add_argument(
        "--facts", type=Path, metavar="FILE", help="YAML file of what only people know about the system"
    )
    parser.add_argument("--write-facts", type=Path, metavar="FILE", help="write that file, to fill in, and stop")
    parser.add_argument("--system", metavar="NAME", help="name of the system (default: system_name of the facts, "
                        "else submission.platform of the runs)")  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to make the folder ORG (default: submissions/ROUND)"
    )


def run(args: argparse.Namespace) -> int:
    """Build, check, and say what is missing."""
    from hpcbench.cli.run_folders import is_of_a_report
    from hpcbench.submission.package import build
    from hpcbench.submission.planned_entries import plan_entries
    from hpcbench.submission.submitted_runs import read_submitted
    from hpcbench.submission.system_facts import checked_name, read_facts

    checked_name(args.organization, "ORG")
    strong, weak = ([path for path in paths if not is_of_a_report(path)] for paths in (args.runs, args.throughput))
    if not strong and not weak:
        raise InputError("give run folders or a study after ORG; hpcbench package --help shows examples")
    runs, left_out = read_submitted(strong) if strong else ([], [])
    instances, more = read_submitted(weak, instances=True) if weak else ([], [])
    entries = plan_entries(runs, instances)
    if args.write_facts is not None:
        return write_template(args.write_facts, entries[0].first, args.organization)
    facts = read_facts(args.facts, list(entries[0].first.system))
    made = build(args.organization, entries, args.system, facts, args.out)
    show(made, [*left_out, *more])
    return 0 if made.submittable else 1


def write_template(path: Path, run: SubmittedRun, organization: str) -> int:
    """Write the file of facts. Raises ``InputError`` if it exists or cannot be written."""
    from hpcbench.submission.system_facts import template

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template(run, organization))
    except FileExistsError:
        raise InputError(f"--write-facts {path} exists; remove it, or give another name") from None
    except OSError as error:
        raise InputError(f"--write-facts {path} cannot be written ({error.strerror}); give another name") from None
    print(f"facts to fill in: {path}")
    return 0


def show(made: Package, left_out: Sequence[str]) -> None:
    """Print the entries, what is missing, notes, and the official verdict."""
    from hpcbench.results.not_verified import NOT_VERIFIED
    from hpcbench.results.tables import table

    print(f"{made.folder.name}, rules {made.ruleset}, {made.division} division: {made.folder}\n")
    headers = ["system", "benchmark", "score", "runs", "minutes", "models/min"]
    print(table(headers, made.rows, right=headers[3:]))
    print(f"Scores are computed here from the logs. {NOT_VERIFIED}.")
    missing = [finding for finding in made.findings if not finding.note]
    notes = [finding for finding in made.findings if finding.note]
    for title, findings in (("Missing:", missing), ("Notes:", notes)):
        if findings or (title == "Notes:" and left_out):
            print(f"\n{title}")
        for finding in findings:
            show_finding(finding)
        for line in left_out if title == "Notes:" else ():
            show_words(line)
    print(f"\nOfficial checkers: {'no errors' if made.verdict.passed else 'errors'}")
    for message in () if made.verdict.passed else made.verdict.errors:
        show_words(message)
    print(f"\n{'Submittable.' if made.submittable else 'Not submittable yet.'}")


def show_finding(finding: Finding) -> None:
    """Print a finding and its remedy; a command stays on one line, so that it can be copied."""
    show_words(f"{finding.place}: {finding.problem}")
    if "hpcbench " in finding.remedy:
        print(f"      {finding.remedy}")
    elif finding.remedy:
        print(textwrap.fill(finding.remedy, 98, initial_indent="      ", subsequent_indent="      "))


def show_words(words: str) -> None:
    """Print an item of a list, wrapped."""
    print(textwrap.fill(words, 98, initial_indent="  ", subsequent_indent="    "))
